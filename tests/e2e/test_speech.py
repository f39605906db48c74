"""The tiny Qwen3-Omni as pods answers what transformers answers to the same checkpoint."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sglang")

from omni_cli.chat_answer import ChatAnswer, ChatProgress
from omni_client import OmniClient
from omni_wire.messages import Tree
from tests.support.checkpoints import tiny_checkpoint
from tests.support.fake_gpus.mps import pod_template, programs
from tests.support.node import Manifest, Node, Pipeline, example, merged
from tests.support.oracle import Oracle
from tests.support.prompts import PROMPTS, Answer

pytestmark = [
    pytest.mark.node,
    pytest.mark.storm,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

TINY = "examples/qwen3-omni-tiny.yaml"
TOLERANCE = 1e-5
ON_GPUS = ("image_encoder", "audio_encoder", "thinker", "talker_ar")
REQUESTS = 8
QUESTION = "turns"
"""A prompt with a picture and a sound."""
GREEDY: dict[str, Tree] = {
    "max_tokens": 24,
    "temperature": 0.0,
    "speaker": "Ethan",
    "talker_temperature": 0.0,
    "talker_repetition_penalty": 1.0,
    "talker_max_tokens": 24,
    "return_codes": True,
}


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return tiny_checkpoint()


@pytest.fixture(scope="module")
def expected(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """What transformers answers."""
    return Oracle(checkpoint, tmp_path_factory.mktemp("answers")).answer(PROMPTS[QUESTION])


@contextmanager
def running(node: Node, manifest: Manifest, *more: Manifest) -> Iterator[Pipeline]:
    """Run a pipeline, telling how long it takes to get Ready."""
    began = time.monotonic()
    with node.pipeline(manifest, *more) as pipeline:
        print(f"\nReady {time.monotonic() - began:.1f} s after kubectl apply")
        yield pipeline


def ask(client: OmniClient, modalities: tuple[str, ...] = ("text", "audio")) -> ChatAnswer:
    inputs: dict[str, Tree] = {"messages": PROMPTS[QUESTION].openai_messages()}
    with client.generate(
        inputs, modalities=list(modalities), params=GREEDY, stage_events=True
    ) as events:
        return ChatProgress(None).read(events)


def speakers(url: str) -> Iterator[str]:
    """Yield the talker of every request that the gateway remembers."""
    with urllib.request.urlopen(f"{url}/v1/requests") as answer:
        for request in json.load(answer)["requests"]:
            yield from (
                span["instance"] for span in request["stages"] if span["stage"] == "talker_ar"
            )


def assert_same(answer: ChatAnswer, expected: Answer) -> None:
    assert answer.token_ids == expected.text_ids.tolist()
    assert answer.codec_codes == expected.codes.tolist()
    assert answer.samples.shape == expected.wav.shape
    assert np.abs(answer.samples - expected.wav).max() <= TOLERANCE


def test_speech_in_pods_is_transformers_own(node: Node, expected: Answer) -> None:
    with running(node, example(TINY)) as pipeline, pipeline.client() as client:
        assert len(pipeline.pods()) == 5
        assert_same(ask(client), expected)


def test_text_in_pods_is_transformers_own(node: Node, expected: Answer) -> None:
    manifest = example(TINY)
    spec = manifest["spec"]
    spec["config"]["config_cls"] = "Qwen3OmniPipelineConfig"
    # This variant's author puts all stages into one process unless told otherwise.
    spec["config"]["stages"]["thinker"]["process"] = "thinker"
    for name in ("talker_ar", "code2wav"):
        del spec["config"]["stages"][name]
    del spec["groups"]["talker_ar"]
    spec["overrides"] = [{"path": f"{name}.gpu"} for name in ON_GPUS[:3]]

    with running(node, manifest) as pipeline, pipeline.client() as client:
        answer = ask(client, ("text",))

    assert answer.token_ids == expected.text_ids.tolist()


def test_requests_are_spread_over_two_talkers(node: Node, expected: Answer) -> None:
    two = {"processes": {"talker_ar": {"num_replicas": 2}}}
    manifest = merged(example(TINY), {"spec": {"config": two}})

    with (
        running(node, manifest) as pipeline,
        pipeline.reachable() as (address, url),
        OmniClient(address, timeout_seconds=120) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(lambda _: ask(client), range(REQUESTS)))
        spoke = Counter(speakers(url))

    for answer in answers:
        assert_same(answer, expected)
    print(f"requests by talker: {dict(spoke)}")
    assert set(spoke) == {"talker_ar@r0", "talker_ar@r1"}
    assert sum(spoke.values()) >= REQUESTS


ENGINE_ON_CPU: Manifest = {
    "dtype": "float32",
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "max_total_tokens": 65536,
}


def colocated() -> Manifest:
    """Return the tiny pipeline with all its GPU stages on one fake GPU, computing on the CPU."""
    stages: Manifest = {
        "preprocessing": {"process": "media"},
        "decode": {"process": "media"},
        "code2wav": {"gpu": 0, "gpu_memory_fraction": 0.02, "factory": {"device": "cpu"}},
    }
    for name, fraction in zip(ON_GPUS, (0.02, 0.02, 0.6, 0.2), strict=True):
        own = {"factory": {"device": "cpu"}} if "encoder" in name else {"engine": ENGINE_ON_CPU}
        stages[name] = {"gpu": 0, "gpu_memory_fraction": fraction, **own}
    manifest = example(TINY)
    spec, media = manifest["spec"], manifest["spec"]["groups"]["media"]
    spec["config"] |= {
        "config_cls": "Qwen3OmniSpeechColocatedPipelineConfig",
        "mps": "on",
        "stages": stages,
    }
    del spec["overrides"]
    spec["gpuSharing"] = {"mode": "Sidecar", "deviceClassName": "fake-gpu"}
    variables = {"SGLANG_PLATFORM": "omnipipe_cpu", "TORCHDYNAMO_DISABLE": "1"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    names = [name.replace("_", "-") for name in ON_GPUS]
    shared = pod_template(*names)
    for container in shared["spec"]["containers"]:
        container["env"] += env
    shared["spec"]["initContainers"] += media["podTemplate"]["spec"]["initContainers"]
    spec["groups"] = {"media": media}
    spec["groups"] |= {key: {**media, "podTemplate": shared} for key in ON_GPUS}
    return manifest


def test_speech_of_one_pod_with_an_mps_sidecar_is_transformers_own(
    node: Node, expected: Answer
) -> None:
    with running(node, colocated(), programs()) as pipeline, pipeline.client() as client:
        (pod,) = pipeline.pods("gpu0")
        assert next(one["name"] for one in pod["status"]["initContainerStatuses"]) == "mps"
        assert len(pod["spec"]["containers"]) == len(ON_GPUS)
        assert_same(ask(client), expected)
