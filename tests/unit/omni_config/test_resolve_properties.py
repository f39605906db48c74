"""Properties that hold for any settings: nothing depends on order, and provenance never lies."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_config.errors import ConfigError, PlanError
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.document import parse_document
from omni_config.resolution.grammar import Leaf, grammar_of
from omni_config.resolution.inspection import config_body, config_yaml
from omni_config.resolution.paths import format_path
from omni_config.resolution.provenance import plain, value_at
from omni_config.resolution.resolve import Resolution, Sources, file_body, pipeline_of, resolve
from omni_config.schema import PipelineConfig
from tests.support.config import registry

NAMES = ("Qwen3TTSPipelineConfig", "Qwen3OmniSpeechPipelineConfig", "Qwen3OmniPipelineConfig")

fractions = st.sampled_from([None, 0.02, 0.1, 0.3, 0.45, 0.6])
gpus = st.sampled_from([None, 0, 1, 2])
stage_settings = st.fixed_dictionaries(
    {},
    optional={
        "gpu": gpus,
        "gpu_memory_fraction": fractions,
        "process": st.sampled_from(["pipeline", "own", "thinker", "talker_ar"]),
        "env": st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["1", "2"])),
        "factory": st.dictionaries(
            st.sampled_from(["dtype", "device", "free_key"]), st.sampled_from(["x", "y"])
        ),
    },
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(NAMES))
    stages = [stage.name for stage in registry().by_name(name).declared_stages()]
    chosen = draw(st.lists(st.sampled_from(stages), unique=True, max_size=4))
    body: dict[str, Any] = {"config_cls": name, "model_path": "m"}
    body["stages"] = {stage: draw(stage_settings) for stage in chosen}
    body["mps"] = draw(st.sampled_from(["off", "on", "auto"]))
    return body


words = st.lists(
    st.sampled_from(
        [
            ("preprocessing.env.A", "3"),
            ("preprocessing.factory.dtype", "float32"),
            ("preprocessing.process", "front"),
            ("mps", "auto"),
            ("name", "n"),
            ("placement.max_total_gpu_memory_fraction_per_gpu", "0.9"),
        ]
    ),
    unique_by=lambda pair: pair[0],
)


def resolved(body: dict[str, Any], pairs: list[tuple[str, str]]) -> Resolution | None:
    document = parse_document(yaml.safe_dump(body, sort_keys=False), "f.yaml")
    file = file_body(document)
    flat = tuple(word for path, text in pairs for word in (f"--{path}", text))
    try:
        return resolve(pipeline_of(file, registry()), Sources(body=file, words=flat))
    except ConfigError:
        return None


@given(bodies(), words, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_the_order_inside_a_layer_decides_nothing(
    body: dict[str, Any], pairs: list[tuple[str, str]], shuffle: random.Random
) -> None:
    first = resolved(body, pairs)
    stages = list(body["stages"].items())
    shuffle.shuffle(stages)
    shuffle.shuffle(pairs)
    second = resolved({**body, "stages": dict(stages)}, pairs)
    assert (first and first.config) == (second and second.config)


@given(bodies(), words)
@settings(max_examples=150, deadline=None)
def test_an_exported_configuration_resolves_to_itself(
    body: dict[str, Any], pairs: list[tuple[str, str]]
) -> None:
    first = resolved(body, pairs)
    if first is None:
        return
    text = config_yaml(first.config)
    file = file_body(parse_document(text, "exported.yaml"))
    again = resolve(type(first.config), Sources(body=file))
    assert config_body(again.config) == config_body(first.config)
    assert config_yaml(again.config) == text


@given(bodies(), words)
@settings(max_examples=150, deadline=None)
def test_the_winner_of_every_path_is_its_resolved_value(
    body: dict[str, Any], pairs: list[tuple[str, str]]
) -> None:
    resolution = resolved(body, pairs)
    if resolution is None:
        return
    config = resolution.config
    declared = {stage.name: stage for stage in config.declared_stages()}
    for path, node in _leaves(config):
        value = value_at(config, path)
        trace = resolution.traces.get(path)
        if trace is not None:
            assert isinstance(node, Leaf)
            assert value == _read(node, trace.winner.value)
        elif path[0] == "stages":
            default: Any = declared[path[1]]
            for segment in path[2:]:
                default = getattr(default, segment)
            assert value == plain(default), format_path(path)


def _leaves(config: PipelineConfig) -> list[tuple[tuple[str, ...], object]]:
    grammar = grammar_of(type(config))
    return [
        (tuple(path.split(".")), node)
        for path, node in grammar.public_paths()
        if isinstance(node, Leaf) and "*" not in path and path != "model_path"
    ]


def _read(leaf: Leaf, written: object) -> object:
    return leaf.type.read_text(written) if isinstance(written, str) else written


@given(bodies(), words)
@settings(max_examples=200, deadline=None)
def test_a_plan_keeps_every_rule_or_is_refused_with_a_path(
    body: dict[str, Any], pairs: list[tuple[str, str]]
) -> None:
    resolution = resolved(body, pairs)
    if resolution is None:
        return
    outcome = _planned(resolution.config)
    if isinstance(outcome, PlanError):
        assert outcome.problems
        assert all(problem.path for problem in outcome.problems)
        return
    _assert_sound(outcome)


def _planned(config: PipelineConfig) -> PipelineRuntime | PlanError:
    try:
        return prepare_pipeline_runtime(config)
    except PlanError as refused:
        return refused


def _assert_sound(plan: PipelineRuntime) -> None:
    held = [name for group in plan.process_plan.groups for name in group.stage_names]
    assert len(held) == len(set(held))
    for stage in plan.config.stages:
        instances = plan.replica_topology.replicas.get(stage.name, (stage.name,))
        assert stage.tp_size > 1 or set(instances) <= set(held)
    limit = plan.config.placement.max_total_gpu_memory_fraction_per_gpu
    for gpu in plan.placement_plan.gpus.values():
        assert gpu.total_gpu_memory_fraction <= limit + 1e-9


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_misspelt_path_is_answered_with_the_right_one(name: str, data: st.DataObject) -> None:
    grammar = grammar_of(registry().by_name(name))
    paths = [
        path.removeprefix("stages.")
        for path, node in grammar.public_paths()
        if isinstance(node, Leaf) and "*" not in path and ".engine." not in path
    ]
    path = data.draw(st.sampled_from([p for p in paths if ".factory." not in p]))
    segments = path.split(".")
    which = data.draw(st.integers(0, len(segments) - 1))
    word = segments[which]
    if len(word) < 5:
        return
    at = data.draw(st.integers(1, len(word) - 2))
    misspelt = word[:at] + word[at + 1 :]
    broken = ".".join([*segments[:which], misspelt, *segments[which + 1 :]])
    try:
        grammar.compile_cli(broken)
    except ConfigError as refused:
        (problem,) = refused.problems
        assert any(word == hint.split(".")[-1] for hint in problem.suggestions), problem
