"""The gateway remembers when each stage worked on the latest requests."""

from __future__ import annotations

from omni_gateway.coordinator.records import Phase
from omni_gateway.coordinator.timelines import StageSpan, TimelineStore
from omni_wire.messages import Tree


def entry(instance: str, opened: float, first: float | None, finished: float) -> Tree:
    return {"instance": instance, "opened": opened, "first_output": first, "finished": finished}


def test_spans_count_from_admission_in_the_order_of_work() -> None:
    store = TimelineStore(now=lambda: 1000.0)
    store.begin("a")
    thinker = entry("thinker@r1", 1000.5, 1000.75, 1002.0)
    speech = entry("speech", 1001.0, None, 1003.0)
    decode = entry("decode", 1000.75, 1001.0, 1002.0)
    results: dict[str, Tree] = {
        "speech": {"timeline": {"thinker": thinker, "speech": speech}},
        "decode": {"timeline": {"thinker": thinker, "decode": decode}},
    }

    store.end("a", Phase.COMPLETED, 3.0, results=results)

    kept = store.get("a")
    assert kept is not None
    assert (kept.phase, kept.seconds) == (Phase.COMPLETED, 3.0)
    assert [span.stage for span in kept.stages] == ["thinker", "decode", "speech"]
    assert kept.stages[0] == StageSpan("thinker", "thinker@r1", 0.5, 0.75, 2.0)


def test_a_request_whose_stages_tell_no_times_still_ends() -> None:
    store = TimelineStore()
    store.begin("a")
    store.end("a", Phase.COMPLETED, 1.0, results={"decode": {"text": "hello"}, "code2wav": None})
    kept = store.get("a")
    assert kept is not None
    assert (kept.phase, kept.stages) == (Phase.COMPLETED, ())


def test_only_the_latest_requests_are_kept() -> None:
    store = TimelineStore(limit=2)
    for name in ("a", "b", "c"):
        store.begin(name)
    assert store.get("a") is None
    assert [kept.request_id for kept in store.latest()] == ["c", "b"]
    store.end("a", Phase.COMPLETED, 1.0)
    assert store.get("a") is None, "what was forgotten does not come back"


def test_a_failure_says_why() -> None:
    store = TimelineStore()
    store.begin("a")
    store.end("a", Phase.FAILED, 1.0, reason="STAGE_FAILED")
    kept = store.get("a")
    assert kept is not None
    assert (kept.phase, kept.reason) == (Phase.FAILED, "STAGE_FAILED")
