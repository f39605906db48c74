"""Layers: who wins, who is remembered, and where a problem is pointed at."""

from __future__ import annotations

import pytest

from omni_config.errors import ConfigError
from omni_config.resolution.body import Body
from omni_config.resolution.document import parse_document
from omni_config.resolution.inspection import (
    compile_path,
    config_hash,
    explain_all_lines,
    explain_lines,
    provenance_json,
)
from omni_config.resolution.resolve import (
    Override,
    Resolution,
    Sources,
    file_body,
    pipeline_of,
    profile_body,
    resolve,
)
from omni_config.resolution.sources import Layer, Source
from omni_config.schema import engine_of
from tests.support.config import registry

SPEECH = "config_cls: Qwen3OmniSpeechPipelineConfig\nmodel_path: m\n"
THINKER = "stages.thinker.engine.mem_fraction_static"


def resolved(text: str, profiles: tuple[str, ...] = (), **sources: object) -> Resolution:
    body = file_body(parse_document(SPEECH + text, "mine.yaml"))
    below = tuple(profile_body(parse_document(p, f"team{i}.yaml")) for i, p in enumerate(profiles))
    return resolve(pipeline_of(body, registry()), Sources(body=body, profiles=below, **sources))  # type: ignore[arg-type]


def setting(value: float) -> str:
    return f"stages: {{thinker: {{engine: {{mem_fraction_static: {value}}}}}}}\n"


def test_each_layer_beats_the_one_below_and_all_are_remembered() -> None:
    resolution = resolved(
        setting(0.5),
        profiles=(setting(0.4),),
        mem_fraction_static=0.6,
        words=("--thinker.engine.mem_fraction_static", "0.7"),
    )
    (row,) = [row for row in provenance_json(resolution) if row["path"] == THINKER]
    assert row["value"] == 0.7
    assert [(w["value"], w["source"]) for w in row["writes"]] == [
        (0.4, "profile (team0.yaml)"),
        (0.5, "yaml file (mine.yaml)"),
        (0.6, "cli flag (--mem-fraction-static)"),
        (0.7, "cli dotted (command line)"),
    ]


def test_a_shared_entry_is_weaker_than_the_stage_it_selects() -> None:
    shared = "shared:\n  - select: {engine: true}\n    engine: {mem_fraction_static: 0.5}\n"
    resolution = resolved(shared + setting(0.7))
    stages = resolution.config.by_name
    assert engine_of(stages["thinker"]).mem_fraction_static == 0.7
    assert engine_of(stages["talker_ar"]).mem_fraction_static == 0.5


@pytest.mark.parametrize(
    ("text", "profiles", "words"),
    [
        pytest.param(
            "shared:\n"
            "  - {select: {engine: true}, engine: {mem_fraction_static: 0.5}}\n"
            "  - {select: {stages: [thinker]}, engine: {mem_fraction_static: 0.6}}\n",
            (),
            (),
            id="two shared entries",
        ),
        pytest.param("", (setting(0.5), setting(0.6)), (), id="two profiles"),
        pytest.param(
            "",
            (),
            (f"--{THINKER[7:]}=0.5", f"--{THINKER[7:]}=0.6"),
            id="two flags",
        ),
    ],
)
def test_two_values_in_one_layer_are_refused(
    text: str, profiles: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(text, profiles, words=words)
    assert f"{THINKER} is set twice at the same precedence" in str(refused.value)
    assert "0.5" in str(refused.value)
    assert "0.6" in str(refused.value)


def test_a_cleared_group_is_the_winner_of_what_it_cleared() -> None:
    resolution = resolved("stages: {thinker: {engine: null}}\n", profiles=(setting(0.4),))
    (row,) = [row for row in provenance_json(resolution) if row["path"] == THINKER]
    assert row["value"] is None
    assert row["writes"][-1]["source"] == (
        "yaml file (mine.yaml) - cleared with stages.thinker.engine"
    )


def test_a_derived_value_says_so_and_a_written_one_wins() -> None:
    words = ("--thinker.tp_size=2", "--thinker.gpu=0,2")
    path = "thinker.engine.disable_custom_all_reduce"
    derived = resolved("", words=words)
    address = compile_path(type(derived.config), path)
    assert explain_lines(derived, address) == [
        f"stages.{path} = True",
        "  True  <- model default - derived from the resolved TP settings at launch  [winner]",
    ]
    written = resolved("", words=(*words, f"--{path}=false"))
    assert explain_lines(written, address)[0] == f"stages.{path} = False"


def test_a_stage_moved_to_the_cpu_loses_the_budget_nobody_wrote() -> None:
    resolution = resolved("stages: {code2wav: {gpu: null}}\n")
    assert resolution.config.by_name["code2wav"].gpu_memory_fraction is None
    address = compile_path(type(resolution.config), "code2wav.gpu_memory_fraction")
    assert explain_lines(resolution, address)[-1] == (
        "  None  <- model default - a stage without a GPU has no GPU budget  [winner]"
    )
    with pytest.raises(ConfigError, match="would have no effect"):
        resolved("stages: {code2wav: {gpu: null, gpu_memory_fraction: 0.1}}\n")


def test_a_value_that_validation_changed_shows_both() -> None:
    resolution = resolved("", words=("--thinker.engine.kv_cache_bytes", "2GiB"))
    address = compile_path(type(resolution.config), "thinker.engine.kv_cache_bytes")
    assert explain_lines(resolution, address)[-1] == (
        "  '2GiB'  <- cli dotted (command line)  [winner] (resolved to 2147483648)"
    )


def test_an_untouched_path_is_explained_by_the_model() -> None:
    resolution = resolved("")
    address = compile_path(type(resolution.config), "code2wav.gpu_memory_fraction")
    first, second, description = explain_lines(resolution, address)
    assert first == "stages.code2wav.gpu_memory_fraction = 0.02"
    assert "no source touched this path" in second
    assert "Share of a whole GPU's memory" in description
    assert explain_lines(resolution, compile_path(type(resolution.config), "thinker.engine.x")) == [
        "stages.thinker.engine.x is not set"
    ]


def test_a_group_lists_what_was_written_below_it() -> None:
    resolution = resolved(setting(0.5))
    lines = explain_lines(resolution, compile_path(type(resolution.config), "thinker.engine"))
    assert lines == [
        "stages.thinker.engine = {'mem_fraction_static': 0.5}",
        f"  {THINKER} = 0.5  <- yaml file (mine.yaml)",
    ]
    assert f"{THINKER} = 0.5  <- yaml file (mine.yaml)" in explain_all_lines(resolution)


def test_a_problem_is_pointed_at_the_line_that_caused_it() -> None:
    text = "stages:\n  thinker:\n    engine:\n      mem_fraction_static: 7\n  decode: {gpuu: 1}\n"
    with pytest.raises(ConfigError) as refused:
        resolved(text, words=("--code2wav.gpu", "-3"))
    problems = {problem.path: problem for problem in refused.value.problems}
    assert problems[THINKER].where == "mine.yaml:6"
    assert problems["stages.decode.gpuu"].where == "mine.yaml:7"
    assert problems["stages.decode.gpuu"].suggestions == ("decode.gpu",)
    assert "stages.code2wav.gpu" in problems


def test_an_object_names_its_fields_and_their_managers() -> None:
    body = Body(
        {"model_path": "m", "stages": {"thinker": {"gpu_memory_fraction": 0.7}}, "mps": True},
        Source("object", "OmniPipeline demo/qwen"),
        Layer.FILE,
        managers={(): "kubectl", ("stages", "thinker"): "argocd"},
    )
    override = Override(
        "stages.thinker.gpu_memory_fraction", 0.6, Source("override", "spec.overrides[0]")
    )
    pipeline = registry().by_name("Qwen3OmniSpeechPipelineConfig")
    resolution = resolve(pipeline, Sources(body=body, overrides=(override,)))
    assert resolution.config.mps == "on"
    (row,) = [r for r in provenance_json(resolution) if str(r["path"]).endswith("memory_fraction")]
    first, last = row["writes"]
    assert (first["source"], first["manager"]) == ("object (OmniPipeline demo/qwen)", "argocd")
    assert (last["value"], last["source"]) == (0.6, "override (spec.overrides[0])")


def test_the_hash_follows_values_and_not_their_spelling() -> None:
    plain = resolved(setting(0.5)).config
    flag = resolved("", mem_fraction_static=None, words=(f"--{THINKER[7:]}", "0.5")).config
    other = resolved(setting(0.6)).config
    assert config_hash(plain) == config_hash(flag)
    assert config_hash(plain) != config_hash(other)


def test_dashes_and_the_bare_on_mean_what_a_user_expects() -> None:
    resolution = resolved("mps: on\n", words=("--talker-ar.engine.mem-fraction-static", "0.3"))
    assert resolution.config.mps == "on"
    assert "stages.talker_ar.engine.mem_fraction_static" in {
        row["path"] for row in provenance_json(resolution)
    }
    assert resolution.warnings == ()


@pytest.mark.parametrize("word", ["--terminal_stages_fn=os.getcwd", "--thinker.factory_path=os.x"])
def test_no_import_path_is_taken_from_a_user(word: str) -> None:
    with pytest.raises(ConfigError, match="never executed"):
        resolved("", words=(word,))


def test_a_stage_written_beside_stages_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match="'thinker' is a stage; write its settings under stages:"):
        resolved("thinker: {gpu: 1}\n")
