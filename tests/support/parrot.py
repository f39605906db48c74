"""The chatting pipeline of the examples as pods, in the shapes that tests need."""

from __future__ import annotations

from typing import Any

from tests.support.node import Manifest, example, merged

CHAT = "examples/kubernetes/chat.yaml"
GROUPS = ("chat", "words", "sound")
"""Process groups of `parrot_of_three`: one writes the answer, two tell it."""
STEP_SECONDS = 0.02
"""Per word of an answer; a request is in flight for about a quarter of a second."""


def parrot() -> Manifest:
    """Return the example as it is: one process group."""
    return example(CHAT)


def parrot_of_three() -> Manifest:
    """Return it with a process group, and so a pod, for each stage."""
    small = {"resources": example(CHAT)["spec"]["groups"]["chat"]["resources"]}
    stages = {
        "writer": {"factory": {"step_seconds": STEP_SECONDS}},
        "decode": {"process": "words"},
        "code2wav": {"process": "sound"},
    }
    return merged(
        parrot(),
        {"spec": {"config": {"stages": stages}, "groups": dict.fromkeys(GROUPS, small)}},
    )


def on_gpus(*gpus: int, **spec: Any) -> Manifest:
    """Return `parrot_of_three` with its groups on these GPUs, in their order.

    Args:
        spec: further fields of the object's spec.
    """
    stages = {
        stage: {"gpu": gpu, "gpu_memory_fraction": 0.2}
        for stage, gpu in zip(("writer", "decode", "code2wav"), gpus, strict=True)
    }
    return merged(
        merged(parrot_of_three(), {"spec": {"config": {"stages": stages}}}), {"spec": spec}
    )
