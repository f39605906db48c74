"""Choosing a pipeline class by name, by checkpoint and by variant."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from omni_config.errors import ConfigError
from omni_config.registry import Registry
from omni_config.schema import Names, PipelineConfig
from omni_models.catalog import registry
from omni_models.qwen3_omni.topology import (
    Qwen3OmniPipelineConfig,
    Qwen3OmniSpeechColocatedPipelineConfig,
    Qwen3OmniSpeechPipelineConfig,
)
from omni_models.qwen3_tts.topology import Qwen3TTSPipelineConfig

CASES = Path(__file__).parents[2] / "cases"
DEVIATIONS = json.loads((CASES / "deviations/models.json").read_text())


def selection_cases() -> list[Any]:
    cases = json.loads((CASES / "config/registry.json").read_text())["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if "stages_of" not in case["input"]]


@pytest.mark.parametrize("case", selection_cases())
def test_selection_follows_the_cases(case: dict[str, Any]) -> None:
    expected = case["expected"]
    if expected["ok"]:
        assert select(case["input"]).__name__ == expected["cls"]
        return
    deviation = DEVIATIONS.get(case["id"])
    says = deviation["expected"]["says"] if deviation else expected["error"]["says"]
    with pytest.raises(ConfigError) as refusal:
        select(case["input"])
    assert says in str(refusal.value)


def select(given: dict[str, Any]) -> type[PipelineConfig]:
    if "name" in given:
        return registry().by_name(given["name"])
    return registry().for_checkpoint(given["config_json"], given.get("variant"), "./ckpt")


@pytest.mark.parametrize(
    ("config_json", "says"),
    [
        pytest.param(
            {"architectures": ["Qwen3OmniMoeForConditionalGeneratoin"]},
            "did you mean: Qwen3OmniMoeForConditionalGeneration",
            id="misspelt architecture",
        ),
        pytest.param(
            {"model_type": "qwen3_omni_mo"},
            "did you mean: qwen3_omni_moe",
            id="misspelt model type",
        ),
        pytest.param(
            {"architectures": "LlamaForCausalLM"},
            "supported architectures: Qwen3OmniMoeForConditionalGeneration, "
            "Qwen3TTSForConditionalGeneration",
            id="another model",
        ),
        pytest.param(
            {"architectures": [], "model_type": None},
            "has neither architectures nor model_type; name the pipeline with config_cls",
            id="nothing to go by",
        ),
    ],
)
def test_an_unknown_checkpoint_is_refused_with_what_would_do(
    config_json: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        registry().for_checkpoint(config_json, None, "./ckpt")
    assert says in str(refusal.value)
    assert refusal.value.problems[0].path == "model_path"


def test_a_lone_architecture_and_any_listed_one_are_found() -> None:
    for config_json in (
        {"architecture": "Qwen3TTSForConditionalGeneration"},
        {"architectures": ["Other", "Qwen3TTSForConditionalGeneration"], "model_type": "x"},
    ):
        assert registry().for_checkpoint(config_json, None, "m") is Qwen3TTSPipelineConfig


def test_a_misspelt_variant_is_answered_with_the_nearest() -> None:
    config_json = {"architectures": ["Qwen3OmniMoeForConditionalGeneration"]}
    with pytest.raises(ConfigError) as refusal:
        registry().for_checkpoint(config_json, "speech-collocated", "m")
    assert refusal.value.problems[0].suggestions[0] == "speech-colocated"


def test_a_variant_alone_is_enough_while_one_model_has_it() -> None:
    assert registry().by_variant("speech-colocated") is Qwen3OmniSpeechColocatedPipelineConfig
    with pytest.raises(ConfigError, match=r"Unknown variant 'foo'\. Available variants: speech, "):
        registry().by_variant("foo")


def test_models_are_listed_with_their_default_first() -> None:
    listed = {model.architectures: model.pipelines for model in registry().models}
    assert listed == {
        ("Qwen3OmniMoeForConditionalGeneration",): (
            Qwen3OmniSpeechPipelineConfig,
            Qwen3OmniSpeechColocatedPipelineConfig,
            Qwen3OmniPipelineConfig,
        ),
        ("Qwen3TTSForConditionalGeneration",): (Qwen3TTSPipelineConfig,),
    }


def test_variants_of_any_member_are_those_of_the_model() -> None:
    for cls in (Qwen3OmniPipelineConfig, Qwen3OmniSpeechPipelineConfig):
        assert list(registry().variants_of(cls)) == ["speech", "speech-colocated", "text"]
    assert registry().variants_of(Qwen3TTSPipelineConfig) == {}
    assert Registry([]).variants_of(Qwen3TTSPipelineConfig) == {}


class Echo(PipelineConfig):
    architectures: ClassVar[Names] = ("Echo",)
    variant: ClassVar[str | None] = "text"


class EchoAgain(Echo):
    pass


def test_two_defaults_of_one_model_are_a_mistake_of_the_author() -> None:
    with pytest.raises(ValueError, match=r"exactly one of .*Echo.* must be the default"):
        Registry([Echo, EchoAgain])


def test_two_classes_of_one_name_are_a_mistake_of_the_author() -> None:
    other = type("Echo", (Echo,), {})
    with pytest.raises(ValueError, match="two pipeline classes are called Echo"):
        Registry([Echo, other])


def test_a_variant_of_two_models_must_be_named_by_class() -> None:
    both = Registry([Echo, *registry().models[0].pipelines])
    with pytest.raises(ConfigError, match="ambiguous; name one with config_cls: Echo, Qwen3Omni"):
        both.by_variant("text")
