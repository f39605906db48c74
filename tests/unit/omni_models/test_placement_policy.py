"""Which placements of the speech pipelines are refused, with the words a user would search for."""

from collections.abc import Mapping

import pytest

from omni_config.errors import Problem
from omni_config.planning.instances import expand_replicas
from omni_config.planning.placement import plan_placement
from omni_config.schema import PipelineConfig
from omni_models.qwen3_omni.topology import (
    Qwen3OmniSpeechColocatedPipelineConfig,
    Qwen3OmniSpeechPipelineConfig,
)

Settings = Mapping[str, Mapping[str, object]]

BUDGETS: Settings = {
    "image_encoder": {"gpu_memory_fraction": 0.02},
    "audio_encoder": {"gpu_memory_fraction": 0.02},
    "thinker": {"gpu_memory_fraction": 0.78},
    "talker_ar": {"gpu_memory_fraction": 0.1},
}
GPU_STAGES = (*BUDGETS, "code2wav")


def problems(
    cls: type[PipelineConfig],
    stages: Settings,
    processes: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Problem]:
    declared = [
        type(stage).model_validate(stage.model_dump() | dict(stages.get(stage.name, {})))
        for stage in cls.declared_stages()
    ]
    settings = {"model_path": "m", "stages": declared, "processes": processes or {}}
    config = cls.model_validate(settings)
    return config.placement_problems(plan_placement(expand_replicas(config)))


def with_budgets(stages: Settings) -> Settings:
    return {name: {**BUDGETS.get(name, {}), **stages.get(name, {})} for name in {*BUDGETS, *stages}}


class TestColocated:
    cls = Qwen3OmniSpeechColocatedPipelineConfig

    def test_without_budgets_all_missing_ones_are_listed(self) -> None:
        [problem] = problems(self.cls, {})
        assert problem.message.startswith(
            "Qwen colocated speech requires gpu_memory_fraction or engine.kv_cache_bytes for "
            "['audio_encoder', 'image_encoder', 'talker_ar', 'thinker']"
        )
        assert problem.path == "stages.audio_encoder.gpu_memory_fraction"

    @pytest.mark.parametrize(
        "thinker",
        [
            {"gpu_memory_fraction": 0.78},
            {"gpu_memory_fraction": 0.78, "engine": {"mem_fraction_static": 0.7805}},
            {"gpu_memory_fraction": None, "total_reserve_bytes": "60GiB"},
            {"gpu_memory_fraction": None, "engine": {"kv_cache_bytes": "8GiB"}},
        ],
        ids=["fraction", "equal fractions", "bytes in all", "bytes of KV cache"],
    )
    def test_each_spelling_of_a_budget_counts(self, thinker: dict[str, object]) -> None:
        assert problems(self.cls, with_budgets({"thinker": thinker})) == []

    @pytest.mark.parametrize(
        ("stages", "path", "message"),
        [
            pytest.param(
                {"thinker": {"engine": {"mem_fraction_static": 0.7}}},
                "stages.thinker.engine.mem_fraction_static",
                "Qwen colocated speech stage thinker sets conflicting memory fractions: "
                "gpu_memory_fraction=0.780, mem_fraction_static=0.700",
                id="conflicting fractions",
            ),
            pytest.param(
                {"thinker": {"gpu": 1}},
                "stages.thinker.gpu",
                "Qwen colocated speech requires image_encoder, audio_encoder, thinker, "
                "talker_ar, and code2wav to share one GPU",
                id="two GPUs",
            ),
            pytest.param(
                {"code2wav": {"gpu": None, "gpu_memory_fraction": None, "process": "c2w"}},
                "stages.code2wav.gpu",
                "Qwen colocated speech requires exactly one GPU id for ['code2wav']",
                id="one stage on the CPU",
            ),
            pytest.param(
                {"thinker": {"tp_size": 2, "gpu": (0, 1)}},
                "stages.thinker.tp_size",
                "Qwen Phase 1 colocation does not support thinker TP",
                id="two ranks",
            ),
        ],
    )
    def test_refusals(self, stages: Settings, path: str, message: str) -> None:
        [problem] = problems(self.cls, with_budgets(stages))
        assert problem.path == path
        assert problem.message.startswith(message)

    def test_replicas(self) -> None:
        processes = {"thinker": {"num_replicas": 2, "replica_devices": (0, 0)}}
        [problem] = problems(self.cls, BUDGETS, processes)
        assert problem.path == "processes.thinker.num_replicas"
        assert problem.message == (
            "Qwen colocated speech does not support process replicas; got replicated stage(s) "
            "['thinker']"
        )

    def test_all_on_the_cpu_has_no_gpu_to_share(self) -> None:
        nowhere = {"gpu": None, "gpu_memory_fraction": None}
        assert problems(self.cls, dict.fromkeys(GPU_STAGES, nowhere)) == []


class TestSeparate:
    cls = Qwen3OmniSpeechPipelineConfig

    def test_as_declared(self) -> None:
        assert problems(self.cls, {}) == []

    def test_thinker_and_talker_on_one_gpu(self) -> None:
        [problem] = problems(self.cls, {"talker_ar": {"gpu": 0}})
        assert problem.path == "stages.talker_ar.gpu"
        assert problem.message.startswith(
            "Qwen thinker and talker_ar may share a GPU only with "
            "Qwen3OmniSpeechColocatedPipelineConfig or its subclasses"
        )

    def test_a_replica_on_the_thinkers_gpu_is_named(self) -> None:
        processes = {"talker_ar": {"num_replicas": 2, "replica_devices": (0, 1)}}
        [problem] = problems(self.cls, {}, processes)
        assert problem.path == "processes.talker_ar.replica_devices"
        assert problem.message.startswith(
            "Qwen thinker and talker_ar ('talker_ar@r0') may share a GPU only with "
            "Qwen3OmniSpeechColocatedPipelineConfig or its subclasses"
        )

    def test_a_rank_of_the_thinker_may_meet_the_talker(self) -> None:
        assert problems(self.cls, {"thinker": {"tp_size": 2, "gpu": (0, 1)}}) == []


def test_ranks_do_not_gather_prefills_by_a_clock() -> None:
    ranks = {"gpu": [0, 2], "tp_size": 2, "factory": {"prefill_coalesce_requests": 4}}
    [problem] = problems(Qwen3OmniSpeechPipelineConfig, {"thinker": ranks})
    assert problem.path == "stages.thinker.factory.prefill_coalesce_requests"
    assert "tp_size=2" in problem.message
