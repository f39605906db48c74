"""Factory arguments: nobody but placement writes what placement owns."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from omni_config.errors import ConfigError, PlanError, Problem
from omni_config.planning.factory_kwargs import Injection, factory_kwargs
from omni_config.planning.plan import Signatures, prepare_pipeline_runtime
from omni_config.schema import PipelineConfig, StageConfig
from tests.support.pipelines import FACTORY, chain, engine, replicas, stage
from tests.support.planning import no_signatures, signature, signatures_of


class WithAuthor(PipelineConfig):
    """A model whose author passes something to every factory."""

    author: ClassVar[dict[str, object]] = {}

    def stage_factory_kwargs(self, stage: StageConfig) -> dict[str, object]:
        """Return the author channel."""
        return dict(self.author)

    def derived_engine(self, stage: StageConfig) -> dict[str, object]:
        """Derive one engine key."""
        return {"disable_custom_all_reduce": True}


def _problems(config: PipelineConfig, signatures: Signatures = no_signatures) -> list[Problem]:
    with pytest.raises(PlanError) as refusal:
        prepare_pipeline_runtime(config, signatures=signatures)
    return list(refusal.value.problems)


@pytest.mark.parametrize(
    ("settings", "placed"),
    [
        pytest.param({"gpu": 0, "factory": {"device": "cuda:1"}}, "GPU(s) [0]", id="another card"),
        pytest.param({"factory": {"device": "cuda"}}, "the CPU", id="a card for a CPU stage"),
    ],
)
def test_a_device_that_contradicts_placement_is_refused_by_the_plan(
    settings: dict[str, Any], placed: str
) -> None:
    (problem,) = _problems(chain(stage("a", **settings)))
    assert problem.path == "stages.a.factory.device"
    assert placed in problem.message
    assert "write stages.a.gpu instead" in problem.message


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "cuda:2"])
def test_a_device_that_agrees_with_placement_is_planned(device: str) -> None:
    prepare_pipeline_runtime(chain(stage("a", gpu=2, factory={"device": device})))


def test_the_device_of_every_copy_counts() -> None:
    config = chain(stage("a", gpu=0, factory={"device": "cuda:1"}), processes=replicas(a=[0, 1]))
    prepare_pipeline_runtime(config)


def test_a_misspelt_factory_key_is_refused_with_the_nearest_name() -> None:
    config = chain(stage("a", factory={"max_batchsize": 4}))
    (problem,) = _problems(config, signatures_of({FACTORY: ["model_path", "max_batch_size"]}))
    assert problem.path == "stages.a.factory.max_batchsize"
    assert problem.suggestions == ("a.factory.max_batch_size",)


@pytest.mark.parametrize("key", ["mem-fraction-static", "mem_fraction_statc"])
def test_a_misspelt_engine_key_is_refused_with_the_nearest_name(key: str) -> None:
    (problem,) = _problems(chain(engine("a", gpu=0, engine={key: 0.5})))
    assert problem.path == f"stages.a.engine.{key}"
    assert problem.suggestions[0] == "a.engine.mem_fraction_static"


@pytest.mark.parametrize("key", ["tp_size", "base_gpu_id"])
def test_engine_keys_of_placement_are_refused_in_their_hidden_spelling_too(key: str) -> None:
    config = chain(engine("a", gpu=0, factory={"server_args_overrides": {key: 1}}))
    (problem,) = _problems(config)
    assert problem.path == f"stages.a.factory.server_args_overrides.{key}"
    assert "owned by placement" in problem.message


def test_a_typo_in_the_hidden_spelling_of_engine_keys_is_refused() -> None:
    config = chain(engine("a", gpu=0, factory={"server_args_overrides": {"kv_cache_bytes": 1}}))
    (problem,) = _problems(config)
    assert "has no server argument 'kv_cache_bytes'" in problem.message


@pytest.mark.parametrize(
    "settings",
    [
        {"factory": {"tp_rank": 1}},
        {"factory": {"gpu_id": 1}},
        {"engine": {"tp_size": 2}},
        {"env": {"CUDA_VISIBLE_DEVICES": "1"}},
    ],
    ids=str,
)
def test_what_placement_owns_cannot_be_written_anywhere(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="owned by"):
        chain(engine("a", gpu=0, **settings))


def test_an_author_that_writes_rank_wiring_is_refused() -> None:
    class Rash(WithAuthor):
        author: ClassVar[dict[str, object]] = {"tp_rank": 0}

    (problem,) = _problems(chain(stage("a"), pipeline=Rash))
    assert "stage_factory_kwargs('a') returns ['tp_rank']" in problem.message


def test_an_author_that_passes_what_the_factory_has_not_is_refused() -> None:
    class Rash(WithAuthor):
        author: ClassVar[dict[str, object]] = {"speed": 1}

    (problem,) = _problems(
        chain(stage("a"), pipeline=Rash), signatures_of({FACTORY: ["model_path"]})
    )
    assert "returns 'speed'" in problem.message


def test_ranks_of_a_stage_whose_factory_knows_none_are_refused() -> None:
    config = chain(engine("a", gpu=(0, 1), tp_size=2))
    (problem,) = _problems(config, signatures_of({FACTORY: ["gpu_id", "server_args_overrides"]}))
    assert problem.path == "stages.a.tp_size"
    assert "no tp_rank parameter" in problem.message


def test_a_rank_is_told_its_wiring_and_the_derived_keys_give_way_to_written_ones() -> None:
    config = chain(
        engine("a", gpu=(0, 1), tp_size=2, engine={"disable_custom_all_reduce": False}),
        pipeline=WithAuthor,
    )
    known = signature(
        FACTORY, ["gpu_id", "tp_rank", "tp_size", "nccl_port", "server_args_overrides"]
    )
    injection = Injection(gpu_id=0, tp_rank=1, nccl_port=29500)
    assert factory_kwargs(config, config.stages[0], known, injection) == {
        "gpu_id": 0,
        "tp_rank": 1,
        "tp_size": 2,
        "nccl_port": 29500,
        "server_args_overrides": {"disable_custom_all_reduce": False},
    }
