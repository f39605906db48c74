"""The tiny Qwen3-Omni as pods, in the shapes that tests need, and what it is asked there.

Its checkpoint lies on a volume. What it has to answer is worked out by transformers in a process of
its own: whoever loads torch should start no more programs.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_wire.messages import Tree
from tests.support.cluster_load import Load, steady_load
from tests.support.fake_gpus.mps import attach, pod_template
from tests.support.model_volume import from_volume, model_volume
from tests.support.node import Manifest, Node, Pipeline, example, merged
from tests.support.prompts import PROMPTS, Answer, Settings
from tests.support.speech_pipeline import greedy

TINY = "examples/qwen3-omni-tiny.yaml"
ENGINES = ("thinker", "talker_ar")
ON_GPUS = ("image_encoder", "audio_encoder", *ENGINES)
GROUPS = ("media", "thinker", "talker_ar", "output")
FAKE_CLASS = "fake-gpu"
TOLERANCE = 1e-5
ANSWER_SECONDS = 120.0
"""Two cores may start processes that load torch meanwhile."""
QUESTION = "turns"
"""A prompt with a picture and a sound."""
_ENGINE_ON_CPU: Manifest = {
    "dtype": "float32",
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "max_total_tokens": 65536,
}
_ON_CPU_ENVIRONMENT = (
    {"name": "SGLANG_PLATFORM", "value": "omnipipe_cpu"},
    {"name": "TORCHDYNAMO_DISABLE", "value": "1"},
)


@dataclass(frozen=True, slots=True)
class SpeechModel:
    """A tiny checkpoint.

    Attributes:
        folder: where it lies on this machine, readable for all.
        expected: transformers' answer to the question.
    """

    folder: Path
    expected: Answer


def speech_model(folder: Path) -> SpeechModel:
    """Write the tiny checkpoint into a new folder; learn what transformers answers with it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        expected = pool.submit(_judge, folder).result()
    # Pods are not root.
    for path in (folder, *folder.iterdir()):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return SpeechModel(folder, expected)


@contextmanager
def speaking(
    node: Node, model: SpeechModel, manifest: Manifest, *more: Manifest
) -> Iterator[Pipeline]:
    """Run a pipeline that finds the checkpoint on a volume; tell how long it takes to get Ready."""
    with (
        model_volume(node, model.folder) as claim,
        node.applied(manifest, claim, *more) as pipeline,
    ):
        began = time.monotonic()
        if manifest["spec"]["config"].get("mps") == "on":
            attach(pipeline, "gpu0")
        pipeline.wait_ready()
        print(f"\nReady {time.monotonic() - began:.1f} s after kubectl apply")
        yield pipeline


def _judge(folder: Path) -> Answer:
    from omni_models.qwen3_omni.tiny import write_tiny_checkpoint
    from tests.support.oracle import Oracle

    folder.mkdir()
    write_tiny_checkpoint(folder, seed=7)
    return Oracle(folder, folder.parent).answer(PROMPTS[QUESTION])


def ask(client: OmniClient, modalities: tuple[str, ...] = ("text", "audio")) -> ChatAnswer:
    """Return the answer to the question."""
    inputs: dict[str, Tree] = {"messages": PROMPTS[QUESTION].openai_messages()}
    with client.generate(
        inputs, modalities=list(modalities), params=greedy(Settings()), stage_events=True
    ) as events:
        return ChatProgress(None).read(events)


def fault_of(answer: ChatAnswer, expected: Answer) -> str:
    """Return how an answer differs from transformers' own, if it does."""
    if answer.token_ids != expected.text_ids.tolist():
        return f"text is {answer.token_ids}, not {expected.text_ids.tolist()}"
    if answer.codec_codes != expected.codes.tolist():
        return f"codes are {answer.codec_codes}, not {expected.codes.tolist()}"
    if answer.samples.shape != expected.wav.shape:
        return f"sound is {answer.samples.shape}, not {expected.wav.shape}"
    apart = float(np.abs(answer.samples - expected.wav).max())
    return "" if apart <= TOLERANCE else f"sound is {apart} apart"


def ask_often(client: OmniClient, expected: Answer, number: int) -> list[str]:
    """Ask at a concurrency of four; return the faults of the answers."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ask(client), range(number)))
    return [fault for fault in (fault_of(answer, expected) for answer in answers) if fault]


@contextmanager
def speech_load(client: OmniClient, expected: Answer) -> Iterator[Load]:
    """Ask for the time of the block."""
    with steady_load(lambda _: fault_of(ask(client), expected)) as load:
        yield load


def speech() -> Manifest:
    """Return the example with its checkpoint on the volume."""
    return from_volume(example(TINY))


def text_only() -> Manifest:
    """Return the variant without speech."""
    manifest = speech()
    spec = manifest["spec"]
    spec["config"]["config_cls"] = "Qwen3OmniPipelineConfig"
    # This variant's author puts all stages into one process unless told otherwise.
    spec["config"]["stages"]["thinker"]["process"] = "thinker"
    spec["config"]["stages"]["mm_aggregate"] = {"process": "media"}
    for name in ("talker_ar", "code2wav"):
        del spec["config"]["stages"][name]
    del spec["groups"]["talker_ar"]
    without_gpu = (*ON_GPUS[:2], "mm_aggregate", "thinker")
    spec["overrides"] = [{"path": f"{name}.gpu"} for name in without_gpu]
    return manifest


def two_talkers() -> Manifest:
    """Return the example with two replicas of the talker."""
    return merged(speech(), {"spec": {"config": {"processes": {"talker_ar": {"num_replicas": 2}}}}})


def on_one_claim() -> Manifest:
    """Return the pipeline with a pod per group on one fake GPU, computing on the CPU."""
    groups = {**dict.fromkeys(ON_GPUS[:2], "media"), **{name: name for name in ENGINES}}
    manifest = _on_a_fake_gpu("SharedClaim", groups)
    spec = manifest["spec"]
    spec["config"]["stages"] |= {
        "preprocessing": {"process": "media"},
        "decode": {"process": "output"},
    }
    spec["config"]["stages"]["code2wav"]["process"] = "output"
    for name in GROUPS:
        container = {"name": container_of(name), "env": list(_ON_CPU_ENVIRONMENT)}
        spec["groups"][name] |= {"podTemplate": {"spec": {"containers": [container]}}}
    return manifest


def colocated() -> Manifest:
    """Return the pipeline with the groups of all GPU stages in one pod with an MPS sidecar."""
    manifest = _on_a_fake_gpu("Sidecar", {name: name for name in ON_GPUS})
    spec, group = manifest["spec"], manifest["spec"]["groups"]["media"]
    spec["config"]["mps"] = "on"
    spec["config"]["stages"] |= {
        "preprocessing": {"process": "media"},
        "decode": {"process": "media"},
    }
    template = pod_template(*map(container_of, ON_GPUS))
    for container in template["spec"]["containers"]:
        container["env"] += _ON_CPU_ENVIRONMENT
    spec["groups"] = {"media": group}
    spec["groups"] |= {name: {**group, "podTemplate": template} for name in ON_GPUS}
    return manifest


def container_of(group: str) -> str:
    """Return the name of a group's container."""
    return group.replace("_", "-")


def _on_a_fake_gpu(mode: str, processes: dict[str, str]) -> Manifest:
    stages: Manifest = {
        "code2wav": {"gpu": 0, "gpu_memory_fraction": 0.02, "factory": {"device": "cpu"}}
    }
    for name, fraction in zip(ON_GPUS, (0.02, 0.02, 0.6, 0.2), strict=True):
        own = {"engine": _ENGINE_ON_CPU} if name in ENGINES else {"factory": {"device": "cpu"}}
        stages[name] = {
            "process": processes[name],
            "gpu": 0,
            "gpu_memory_fraction": fraction,
            **own,
        }
    manifest = speech()
    spec = manifest["spec"]
    spec["config"] |= {"config_cls": "Qwen3OmniSpeechColocatedPipelineConfig", "stages": stages}
    spec["gpuSharing"] = {"mode": mode, "deviceClassName": FAKE_CLASS}
    del spec["overrides"]
    return manifest
