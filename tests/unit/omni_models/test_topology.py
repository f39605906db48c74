"""The shipped pipelines: their stages, their defaults, and what the author derives."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from omni_config.errors import PlanOnlyError
from omni_config.schema import CPU_COUNT, EngineStageConfig, PipelineConfig, StageConfig
from omni_models.catalog import registry
from omni_models.qwen3_omni.topology import (
    Qwen3OmniPipelineConfig,
    Qwen3OmniSpeechColocatedPipelineConfig,
    Qwen3OmniSpeechPipelineConfig,
)
from omni_models.qwen3_tts.topology import Qwen3TTSPipelineConfig

CASES = json.loads((Path(__file__).parents[2] / "cases/config/registry.json").read_text())["cases"]
TOPOLOGIES = [case for case in CASES if "stages_of" in case["input"]]
PIPELINES = [pytest.param(registry().by_name(name), id=name) for name in registry().names]


def changed(
    cls: type[PipelineConfig], stages: dict[str, dict[str, object]], **settings: object
) -> PipelineConfig:
    """A pipeline with settings of stages and of its own changed, as resolving would."""
    declared = [
        type(stage).model_validate(stage.model_dump() | stages.get(stage.name, {}))
        for stage in cls.declared_stages()
    ]
    return cls.model_validate({"model_path": "m", "stages": declared} | settings)


def kwargs_of(config: PipelineConfig, stage: str) -> dict[str, object]:
    return config.stage_factory_kwargs(config.by_name[stage])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TOPOLOGIES])
def test_stages_are_those_of_the_cases(case: dict[str, Any]) -> None:
    config = registry().by_name(case["input"]["stages_of"])(model_path="m")
    expected = case["expected"]
    assert config.entry == expected["entry"]
    assert list(config.terminals) == expected["terminal"]
    assert [_shown(stage) for stage in config.stages] == [
        stage | {key: _names(stage[key]) for key in ("next", "stream_to", "wait_for")}
        for stage in expected["stages"]
    ]


def _shown(stage: StageConfig) -> dict[str, object]:
    return {
        "name": stage.name,
        "engine": isinstance(stage, EngineStageConfig),
        "gpu": stage.gpu,
        "process": stage.process,
        "next": stage.next,
        "stream_to": stage.stream_to,
        "wait_for": stage.wait_for,
        "terminal": stage.terminal,
    }


def _names(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


@pytest.mark.parametrize("cls", PIPELINES)
def test_every_hook_is_an_importable_function(cls: type[PipelineConfig]) -> None:
    paths = [cls.terminal_stages_fn, cls.warm_up_fn]
    for stage in cls.declared_stages():
        paths += [stage.factory_path, stage.route_fn, stage.stream_done_to_fn]
        paths += [stage.wait_for_fn, stage.merge_fn, *stage.project_payload.values()]
    for path in filter(None, paths):
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), path


@pytest.mark.parametrize("cls", PIPELINES)
def test_a_pipeline_whose_stages_are_not_built_refuses_to_start(cls: type[PipelineConfig]) -> None:
    config = cls(model_path="m")
    if cls.plan_only is None:
        config.require_runnable()
        return
    with pytest.raises(PlanOnlyError, match=f"{cls.__name__} is plan-only .* not built yet"):
        config.require_runnable()


def test_speech_starts_with_the_first_token_in_both_speech_pipelines() -> None:
    for cls in (Qwen3OmniSpeechPipelineConfig, Qwen3OmniSpeechColocatedPipelineConfig):
        talker = cls(model_path="m").by_name["talker_ar"].factory
        assert talker.enable_partial_start is True
        assert talker.partial_start_min_chunks == 1


def test_only_code2wav_has_a_fraction_of_its_own() -> None:
    for cls in (Qwen3OmniSpeechPipelineConfig, Qwen3OmniSpeechColocatedPipelineConfig):
        fractions = {stage.name: stage.gpu_memory_fraction for stage in cls.declared_stages()}
        assert {name for name, fraction in fractions.items() if fraction} == {"code2wav"}
        assert fractions["code2wav"] == 0.02


def test_two_ranks_switch_the_custom_all_reduce_off() -> None:
    config = changed(Qwen3OmniSpeechPipelineConfig, {"thinker": {"tp_size": 2, "gpu": (0, 2)}})
    derived = {stage.name: config.derived_engine(stage) for stage in config.stages}
    assert derived.pop("thinker") == {"disable_custom_all_reduce": True}
    assert not any(derived.values())


@pytest.mark.parametrize(
    ("cls", "env"),
    [
        (Qwen3OmniPipelineConfig, {"OMP_NUM_THREADS": CPU_COUNT}),
        (Qwen3OmniSpeechPipelineConfig, {"OMP_NUM_THREADS": CPU_COUNT}),
        (Qwen3OmniSpeechColocatedPipelineConfig, {}),
        (Qwen3TTSPipelineConfig, {}),
    ],
)
def test_preprocessing_uses_every_cpu_unless_threads_are_written(
    cls: type[PipelineConfig], env: dict[str, str]
) -> None:
    config = cls(model_path="m")
    assert config.stage_env(config.by_name["preprocessing"]) == env
    written = cls(model_path="m", env_defaults={"OMP_NUM_THREADS": "2"})
    assert written.stage_env(written.by_name["preprocessing"]) == {}


def test_environment_floor_of_each_variant() -> None:
    floor = {"SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"}
    assert Qwen3OmniPipelineConfig.env_floor == floor
    assert Qwen3OmniSpeechPipelineConfig.env_floor == floor
    assert Qwen3OmniSpeechColocatedPipelineConfig.env_floor == floor | {
        "OMP_NUM_THREADS": "8",
        "TOKENIZERS_PARALLELISM": "false",
    }


class TestSpeechAuthorChannel:
    def test_separate_processes(self) -> None:
        config = Qwen3OmniSpeechPipelineConfig(model_path="m")
        assert kwargs_of(config, "thinker") == {"speech_enabled": True}
        assert kwargs_of(config, "talker_ar") == {"max_running_requests": 32}
        assert kwargs_of(config, "code2wav") == {"codec_state_slots": 32}

    def test_a_vocoder_serves_all_talker_replicas(self) -> None:
        config = changed(
            Qwen3OmniSpeechPipelineConfig,
            {"talker_ar": {"engine": {"max_running_requests": 8}}},
            processes={"talker_ar": {"num_replicas": 3, "replica_devices": [1, 2, 3]}},
        )
        assert kwargs_of(config, "talker_ar")["max_running_requests"] == 8
        assert kwargs_of(config, "code2wav")["codec_state_slots"] == 24

    def test_a_vocoder_in_the_talker_process_serves_that_replica(self) -> None:
        config = changed(
            Qwen3OmniSpeechPipelineConfig,
            {"code2wav": {"process": "talker_ar", "gpu": 1}},
            processes={"talker_ar": {"num_replicas": 2, "replica_devices": [1, 2]}},
        )
        assert kwargs_of(config, "code2wav")["codec_state_slots"] == 32

    def test_the_format_of_calls_is_set_where_they_are_read(self) -> None:
        decode: dict[str, object] = {"factory": {"tool_call_parser": "hermes"}}
        config = changed(Qwen3OmniSpeechPipelineConfig, {"decode": decode})
        assert kwargs_of(config, "preprocessing")["tool_call_parser"] == "hermes"

    def test_the_text_pipeline_says_that_there_is_no_speech(self) -> None:
        config = Qwen3OmniPipelineConfig(model_path="m")
        said = {stage.name: config.stage_factory_kwargs(stage) for stage in config.stages}
        assert {name: kwargs for name, kwargs in said.items() if kwargs} == {
            "preprocessing": {"speech_enabled": False, "tool_call_parser": "qwen25"}
        }


class TestTtsAuthorChannel:
    def test_one_process(self) -> None:
        config = Qwen3TTSPipelineConfig(model_path="m")
        assert kwargs_of(config, "preprocessing") == {}
        assert kwargs_of(config, "vocoder") == {"running_stream_count": 64}
        assert kwargs_of(config, "tts_engine") == {}

    def test_engine_apart(self) -> None:
        config = changed(
            Qwen3TTSPipelineConfig,
            {"tts_engine": {"process": "engine", "engine": {"max_running_requests": 8}}},
            processes={"engine": {"num_replicas": 2, "replica_devices": [1, 2]}},
        )
        assert kwargs_of(config, "preprocessing") == {"load_frontend": True}
        assert kwargs_of(config, "vocoder") == {"running_stream_count": 16}

    def test_deterministic(self) -> None:
        config = Qwen3TTSPipelineConfig(model_path="m", enable_deterministic_inference=True)
        assert kwargs_of(config, "preprocessing") == {"max_concurrency": 1}
        assert kwargs_of(config, "vocoder") == {
            "running_stream_count": 64,
            "enable_deterministic_inference": True,
            "initial_cuda_graph": False,
            "followup_cuda_graph": False,
        }
        assert kwargs_of(config, "tts_engine") == {
            "server_args_overrides": {"enable_deterministic_inference": True}
        }
