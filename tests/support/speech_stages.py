"""Thinker and talker in processes of their own, and what passes between them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from omni_runtime.scheduler import Chunks, OutboxMessage, Result, StepOutput
from omni_runtime.sglang_bridge.pool_counters import PoolCounters, pool_counters
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, Row, StepFrame, Tree
from tests.support.encoded_prompts import key_of
from tests.support.patience import PATIENT_SECONDS
from tests.support.stage_process import StageProcess

FACTORIES = "omni_models.qwen3_omni.factories"
ENGINE = {"dtype": "float32", "max_total_tokens": 4096}
GREEDY_SPEECH = {
    "talker_temperature": 0,
    "talker_repetition_penalty": 1.0,
    "talker_max_tokens": 24,
}


def start_thinker(
    checkpoint: Path, engine: Mapping[str, object] | None = None, **more: Any
) -> StageProcess:
    """Start a thinker that a talker listens to."""
    environment = more.pop("environment", None)
    kwargs = {
        "model_path": str(checkpoint),
        "speech_enabled": True,
        "server_args_overrides": {**ENGINE, **(engine or {})},
        **more,
    }
    return StageProcess(f"{FACTORIES}.create_thinker", kwargs, environment)


def start_talker(
    checkpoint: Path, engine: Mapping[str, object] | None = None, **more: Any
) -> StageProcess:
    """Start a talker that sends every frame at once."""
    environment = more.pop("environment", None)
    kwargs = {
        "model_path": str(checkpoint),
        "max_running_requests": 32,
        "codec_coalesce_frames": 1,
        "server_args_overrides": {**ENGINE, **(engine or {})},
        **more,
    }
    return StageProcess(f"{FACTORIES}.create_talker_ar", kwargs, environment)


def renamed(payload: Payload, name: str, **params: Tree) -> Payload:
    """Return a payload under another name, with further parameters."""
    view = payload.request
    assert view is not None
    return replace(
        payload, key=key_of(name), request=replace(view, params={**view.params, **params})
    )


def tokens_of(messages: Iterable[OutboxMessage], key: RequestKey, target: str) -> list[int]:
    """Return the tokens that went to a stage, in order."""
    return [
        int(message.columns["token_id"][message.keys.index(key)])  # type: ignore[index]
        for message in messages
        if isinstance(message, StepOutput)
        and message.target == target
        and "token_id" in message.columns
        and key in message.keys
    ]


def media_rows_of(messages: Iterable[OutboxMessage], key: RequestKey) -> list[Any]:
    """Return the hidden rows that went to the talker, a tensor per frame."""
    return [
        message.columns["media_hidden"][0]  # type: ignore[index]
        for message in messages
        if isinstance(message, StepOutput)
        and "media_hidden" in message.columns
        and key in message.keys
    ]


def codes_of(messages: Iterable[OutboxMessage], key: RequestKey) -> list[list[int]]:
    """Return the frames that went to code2wav, in order."""
    frames: list[list[int]] = []
    for message in messages:
        if isinstance(message, StepOutput) and key in message.keys:
            columns: Mapping[str, Any] = message.columns
            row = message.keys.index(key)
            frames += columns["codes"][row][: int(columns["frames"][row])].tolist()
    return frames


def result_of(messages: Iterable[OutboxMessage], key: RequestKey) -> Any:
    """Return the data of a request's result."""
    for message in messages:
        if isinstance(message, Result) and message.key == key:
            return message.data
    raise AssertionError(f"{key} has no result")


def talker_input(key: RequestKey, tokens: Sequence[int], hidden: Any = None) -> list[Chunks]:
    """Return what the thinker sends of one request: hidden rows of media, then its tokens."""
    columns: list[dict[str, Any]] = []
    if hidden is not None and len(hidden):
        # In two parts, as chunks of a long prompt would come.
        half = len(hidden) // 2
        columns += [{"media_hidden": part[None]} for part in (hidden[:half], hidden[half:])]
    columns += [{"token_id": np.array([token], np.int64)} for token in tokens]
    return [
        Chunks("thinker", StepFrame("thinker", step, (Row(key, step),), own), (0,))
        for step, own in enumerate(columns)
        if all(len(column[0:1].reshape(1, -1)[0]) for column in own.values())
    ]


def steps_of(messages: Sequence[OutboxMessage], key: RequestKey) -> list[int]:
    """Return the steps in which a request sent something."""
    return [m.step for m in messages if isinstance(m, StepOutput) and key in m.keys]


def counters(stage: StageProcess) -> PoolCounters:
    """Return the free memory of a stage's engine."""
    found: PoolCounters = stage.ask(_counters)
    return found


def wait_until_free(stage: StageProcess, start: PoolCounters) -> PoolCounters:
    """Return the counters once the loop has gone idle; it may be a pass behind its last word."""
    deadline = time.monotonic() + PATIENT_SECONDS
    while (now := counters(stage)) != start and time.monotonic() < deadline:
        pass
    return now


def wait_until_occupied(stage: StageProcess, rows: int) -> int:
    """Return how many requests have begun, once they are so many or time is up.

    A held one counts as running between two steps, and one that has ended until the next pass.
    """
    deadline = time.monotonic() + PATIENT_SECONDS
    while (now := _occupied(counters(stage))) != rows and time.monotonic() < deadline:
        pass
    return now


def _occupied(now: PoolCounters) -> int:
    return now.running + now.held


def _counters(scheduler: Any) -> PoolCounters:
    return pool_counters(scheduler.hosted)
