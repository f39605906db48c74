"""What it costs to know, before anything starts, what will run where and why.

The work is resolving and planning a pipeline of 64 stages whose settings come from a file and from
flags. The baseline is `json.dumps` of what that work produces: values, provenance and plan. YAML
parsing is left out of both. A ratio to the size of the answer stays true on any machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.report import Bar, Ratios, alternate, count, main
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.resolution.body import Body
from omni_config.resolution.inspection import config_body, provenance_json
from omni_config.resolution.resolve import Resolution, Sources, resolve
from omni_config.resolution.sources import Layer, Source
from omni_config.schema import EngineStageConfig, PipelineConfig, StageConfig

STAGES = 64
ROUNDS = 15
STARTS = 7


def pipeline(stages: int) -> type[PipelineConfig]:
    """Return a class with a chain of stages, every fourth an engine stage on a GPU of its own."""

    def declare(_: type[PipelineConfig]) -> tuple[StageConfig, ...]:
        return tuple(_stage(index, stages) for index in range(stages))

    name = f"Chain{stages}PipelineConfig"
    return type(name, (PipelineConfig,), {"declare": classmethod(declare)})


def _stage(index: int, stages: int) -> StageConfig:
    last = index == stages - 1
    fields = {
        "name": f"stage_{index}",
        "factory_path": "chain.stages.create_stage",
        "process": f"stage_{index}",
        "next": () if last else (f"stage_{index + 1}",),
        "terminal": last,
    }
    if index % 4:
        return StageConfig.model_validate(fields)
    return EngineStageConfig.model_validate({**fields, "gpu": index // 4})


def sources(stages: int) -> Sources:
    """Return settings for every stage: a file body and a flag per engine stage."""
    body: dict[object, object] = {"model_path": "m", "mps": "off"}
    body["stages"] = {f"stage_{index}": _settings(index) for index in range(stages)}
    words = [
        f"--stage_{index}.engine.max_running_requests={index + 1}" for index in range(0, stages, 4)
    ]
    return Sources(
        body=Body(body, Source("yaml file", "pipeline.yaml"), Layer.FILE),
        words=tuple(words),
        mem_fraction_static=0.5,
    )


def _settings(index: int) -> dict[str, object]:
    settings: dict[str, object] = {
        "env": {"OMP_NUM_THREADS": "2"},
        "factory": {"dtype": "bfloat16", "max_seq_len": 8192},
        "comm": {"shared_memory": True},
    }
    if index % 4 == 0:
        settings["gpu_memory_fraction"] = 0.8
        settings["engine"] = {"mem_fraction_static": 0.6, "context_length": 8192}
    return settings


def plan(cls: type[PipelineConfig], given: Sources) -> tuple[Resolution, PipelineRuntime]:
    """Resolve and plan."""
    resolution = resolve(cls, given)
    return resolution, prepare_pipeline_runtime(resolution.config)


def answer(resolution: Resolution, runtime: PipelineRuntime) -> dict[str, object]:
    """Return values, provenance and plan as plain data."""
    return {
        "values": config_body(resolution.config),
        "provenance": provenance_json(resolution),
        "plan": runtime.to_json(),
    }


def measure() -> Iterable[Bar]:
    cls, given = pipeline(STAGES), sources(STAGES)
    plain = answer(*plan(cls, given))
    ratios = alternate(
        _repeat(lambda: plan(cls, given)), _repeat(lambda: json.dumps(plain)), rounds=ROUNDS
    )
    yield ratios.at_most(
        10,
        bar="resolve and plan 64 stages",
        method=f"seconds over json.dumps of the answer ({len(json.dumps(plain)) // 1024} KiB)",
    )
    yield _linearity()
    loaded = _loaded("import omni_config.planning.plan, omni_config.resolution.resolve")
    heavy = [name for name in ("torch", "sglang", "transformers", "numpy") if name in loaded]
    yield count(len(heavy), 0, bar="heavy modules of omni_config", method="sys.modules")
    yield _start_ratio()
    yield _memory()


def _repeat(action: Callable[[], object], times: int = 5) -> Callable[[], object]:
    def repeated() -> None:
        for _ in range(times):
            action()

    return repeated


def _linearity() -> Bar:
    """Compare twice 64 stages with 128 at once: linear work costs the same."""
    small, large = pipeline(STAGES), pipeline(2 * STAGES)
    one, two = sources(STAGES), sources(2 * STAGES)
    ratios = alternate(
        _repeat(lambda: plan(large, two), 3), _repeat(lambda: plan(small, one), 6), rounds=ROUNDS
    )
    return ratios.at_most(1.3, bar="128 stages over twice 64", method="seconds; 1 is linear")


def _loaded(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def _start_ratio() -> Bar:
    """Compare the CPU time of `omni --help` with that of importing torch, each a fresh process."""
    help_command = [str(Path(sys.executable).with_name("omni")), "--help"]
    torch_command = [sys.executable, "-c", "import torch"]
    pairs = [(_cpu_seconds(help_command), _cpu_seconds(torch_command)) for _ in range(STARTS)]
    ratios = Ratios(tuple(ours / theirs for ours, theirs in pairs))
    return ratios.at_most(0.15, bar="omni --help over import torch", method="CPU seconds")


def _cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _memory() -> Bar:
    """Count the memory of one process that resolves and plans; the reference takes 1.3 GB."""
    code = (
        "import resource\n"
        "from benchmarks.planning import *\n"
        "plan(pipeline(STAGES), sources(STAGES))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    megabytes = int(done.stdout) // 1024
    method = f"peak MiB of a fresh process that plans 64 stages (it took {seconds:.1f} s)"
    return count(megabytes, 100, bar="memory of resolve and plan", method=method)


if __name__ == "__main__":
    sys.exit(main(measure))
