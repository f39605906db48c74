"""The factories: what they accept fits what authors, placement and the launcher pass."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

from omni_config.consumer_keys import unknown_keys
from omni_config.errors import PlanOnlyError
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig
from omni_config.settings import FactoryArgs
from omni_config.vocabulary import FactorySignature, factory_signature
from omni_models.catalog import registry
from tests.support.patience import PROGRAM_SECONDS

STAGES = [
    pytest.param(cls, stage, id=f"{name}-{stage.name}")
    for name in registry().names
    for cls in [registry().by_name(name)]
    for stage in cls.declared_stages()
]
PLAN_ONLY = "omni_models.qwen3_tts.topology"
every_stage = pytest.mark.parametrize(("cls", "stage"), STAGES)


def signature_of(stage: StageConfig) -> FactorySignature:
    signature = factory_signature(stage.factory_path)
    assert signature is not None
    return signature


@every_stage
def test_a_factory_accepts_what_its_author_writes(
    cls: type[PipelineConfig], stage: StageConfig
) -> None:
    config = cls(model_path="m")
    accepted = set(signature_of(stage).parameters)
    assert not signature_of(stage).accepts_any
    assert set(stage.factory.written()) <= accepted
    assert set(config.stage_factory_kwargs(config.by_name[stage.name])) <= accepted


@every_stage
def test_placement_and_engine_reach_the_factory(
    cls: type[PipelineConfig], stage: StageConfig
) -> None:
    accepted = set(signature_of(stage).parameters)
    assert "model_path" in accepted
    assert ("gpu_id" in accepted) == (stage.gpu is not None)
    assert ("server_args_overrides" in accepted) == isinstance(stage, EngineStageConfig)
    able = cls.tensor_parallel_stages or tuple(
        other.name for other in cls.declared_stages() if isinstance(other, EngineStageConfig)
    )
    ranks = {"tp_rank", "tp_size", "nccl_port"}
    assert (ranks <= accepted) == (stage.name in able)


@every_stage
def test_every_parameter_says_in_a_line_what_it_does(
    cls: type[PipelineConfig], stage: StageConfig
) -> None:
    parameters = signature_of(stage).parameters.values()
    assert [parameter.name for parameter in parameters if not parameter.doc] == []
    assert [parameter.name for parameter in parameters if not parameter.annotation] == []


@pytest.mark.parametrize(
    ("cls", "stage"), [case for case in STAGES if case.values[0].__module__ != PLAN_ONLY]
)
def test_no_setting_is_accepted_without_being_read(
    cls: type[PipelineConfig], stage: StageConfig
) -> None:
    module, _, name = stage.factory_path.rpartition(".")
    source = inspect.getsource(getattr(importlib.import_module(module), name))
    read = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert set(signature_of(stage).settable) <= read


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, id=key)
        for key in registry().by_name("Qwen3OmniSpeechPipelineConfig").refused_factory_keys
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_with_the_reason(key: str) -> None:
    name, setting = key.split(".")
    cls = registry().by_name("Qwen3OmniSpeechPipelineConfig")
    value = 4 if setting.startswith("request_build") else True
    declared = [
        stage.model_copy(update={"factory": FactoryArgs.model_validate({setting: value})})
        if stage.name == name
        else stage
        for stage in cls.declared_stages()
    ]
    [problem] = unknown_keys(cls(model_path="m", stages=tuple(declared)))
    assert problem.path == f"stages.{name}.factory.{setting}"
    assert problem.message.startswith(f"Stage '{name}' sets factory.{setting}, but ")
    assert problem.message.endswith(cls.refused_factory_keys[key])


@pytest.mark.parametrize(
    ("cls", "stage"), [case for case in STAGES if case.values[0].__module__ == PLAN_ONLY]
)
def test_a_stage_that_is_not_built_refuses_to_be(
    cls: type[PipelineConfig], stage: StageConfig
) -> None:
    module, _, name = stage.factory_path.rpartition(".")
    required = {
        name: 1 for name, parameter in signature_of(stage).parameters.items() if parameter.required
    }
    with pytest.raises(PlanOnlyError):
        getattr(importlib.import_module(module), name)(**required)


def test_topologies_import_nothing_heavy() -> None:
    code = (
        "import sys; from omni_models.catalog import registry; registry();"
        "print([name for name in ('torch', 'transformers', 'sglang', 'numpy', 'grpc', 'yaml')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    assert done.stdout.strip() == "[]"
