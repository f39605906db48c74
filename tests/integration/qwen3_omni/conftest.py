"""A tiny checkpoint, its judge, and its prompts as they reach thinker and talker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sglang")

if TYPE_CHECKING:
    from omni_wire.messages import Payload
    from tests.support.oracle import Oracle
    from tests.support.prompts import Answer
    from tests.support.speech_pipeline import SpeechPipeline


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt: what it is to the stages, and what must be said to it.

    Attributes:
        hidden: what the talker wants of the thinker at media positions, [rows, hidden].
    """

    payload: Payload
    answer: Answer
    hidden: Any


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    from tests.support.checkpoints import tiny_checkpoint

    return tiny_checkpoint()


@pytest.fixture(scope="session")
def oracle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    from tests.support.oracle import Oracle

    return Oracle(checkpoint, tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="session")
def cases(oracle: Oracle) -> Mapping[str, Case]:
    from tests.support.encoded_prompts import media_hidden_rows, merged_payload
    from tests.support.prompts import PROMPTS
    from tests.support.speech_stages import GREEDY_SPEECH

    made = {}
    for name, prompt in PROMPTS.items():
        answer = oracle.answer(prompt)
        answer.require_variety()
        params = {"max_tokens": 24, **GREEDY_SPEECH}
        payload = merged_payload(oracle, prompt, name, params)
        made[name] = Case(payload, answer, media_hidden_rows(oracle, prompt))
    return made


@pytest.fixture(scope="session")
def pipeline(checkpoint: Path) -> Iterator[SpeechPipeline]:
    """The speech pipeline under `omni up`, for the tests that leave it as it is."""
    from tests.support.speech_pipeline import speech_pipeline

    with speech_pipeline(checkpoint) as running:
        yield running
