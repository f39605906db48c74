"""A step that raises takes its own requests along, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omni_runtime.scheduler import NewRequest, RequestError, StepOutput
from omni_wire.errors import StepFailed
from omni_wire.messages import Payload
from tests.support.poison import BROKEN, EARLY, LATE
from tests.support.speech_stages import (
    ENGINE,
    counters,
    media_rows_of,
    renamed,
    result_of,
    tokens_of,
    wait_until_free,
)
from tests.support.stage_process import StageProcess

if TYPE_CHECKING:
    from tests.integration.qwen3_omni.conftest import Case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Cases = Mapping[str, "Case"]
CHUNK = 64


@pytest.fixture(scope="module")
def thinker(checkpoint: Path) -> Iterator[StageProcess]:
    kwargs = {
        "model_path": str(checkpoint),
        "speech_enabled": True,
        "server_args_overrides": {**ENGINE, "chunked_prefill_size": CHUNK},
    }
    stage = StageProcess("tests.support.poison.create_poisoned_thinker", kwargs)
    yield stage
    stage.close()


def poisoned(payload: Payload, name: str, token: int, at: int = -1) -> Payload:
    """Return a prompt with one token that raises."""
    assert isinstance(payload.data, dict)
    ids = payload.data["prompt"]["input_ids"].copy()
    ids[at] = token
    return replace(renamed(payload, name), data={**payload.data, "prompt": {"input_ids": ids}})


@pytest.mark.parametrize("token", [EARLY, LATE])
@pytest.mark.parametrize("name", ["text", "image"])
def test_a_request_that_raises_fails_alone(
    name: str, token: int, thinker: StageProcess, cases: Cases
) -> None:
    start = counters(thinker)
    running = renamed(cases["mixed"].payload, f"running {name} {token}", max_tokens=60)
    thinker.put(NewRequest(running))
    seen = [thinker.get()]
    while not tokens_of(seen, running.key, "decode"):
        seen.append(thinker.get())
    bad = poisoned(cases[name].payload, f"bad {name} {token}", token)
    thinker.put(NewRequest(bad))
    seen += thinker.until_ended([bad.key, running.key])
    [failed] = [m for m in seen if isinstance(m, RequestError)]
    assert failed.key == bad.key
    assert isinstance(failed.error, StepFailed)
    assert failed.error.info.retryable
    assert "no kernel for this shape" in str(failed.error)
    assert not [m for m in seen if isinstance(m, StepOutput) and bad.key in m.keys]
    told = tokens_of(seen, running.key, "decode")
    assert told[:24] == cases["mixed"].answer.text_ids.tolist()
    assert result_of(seen, running.key)["finish_reason"] in ("length", "stop")
    assert wait_until_free(thinker, start) == start


@pytest.mark.parametrize("name", ["image", "mixed"])
def test_nothing_of_a_failed_prefill_is_in_the_prefix_cache(
    name: str, thinker: StageProcess, cases: Cases
) -> None:
    ids = cases[name].answer.input_ids
    for at in (5, len(ids) - 1):
        bad = poisoned(cases[name].payload, f"{name} raises at {at}", LATE, at)
        good = renamed(cases[name].payload, f"{name} after {at}")
        thinker.put(NewRequest(bad))
        thinker.until_ended([bad.key])
        thinker.put(NewRequest(good))
        said = thinker.until_ended([good.key])
        assert tokens_of(said, good.key, "decode") == cases[name].answer.text_ids.tolist()
        rows = sum(len(part) for part in media_rows_of(said, good.key))
        assert rows == len(cases[name].hidden)


def test_a_lost_device_ends_the_stage(thinker: StageProcess, cases: Cases) -> None:
    bad = poisoned(cases["text"].payload, "device lost", BROKEN)
    thinker.put(NewRequest(bad))
    with pytest.raises(AssertionError, match="device-side assert"):
        thinker.until_ended([bad.key])
