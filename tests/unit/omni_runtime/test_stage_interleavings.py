"""Whatever the order of events, requests end once, with the same results, and nothing is left.

The machine below owns a whole pipeline of real state machines and schedulers and decides which
message moves next, which scheduler runs, who leaves and which process dies.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from examples.fan_out.topology import FanOutPipelineConfig
from examples.two_level_stream.stages import FRAME_SAMPLES
from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from tests.support.stage_calls import Call
from tests.support.stage_network import Network


class TwoLevelStream(RuleBasedStateMachine):
    """Two terminals, a stream that feeds a stream, two replicas."""

    @initialize()
    def start(self) -> None:
        self.network = Network(TwoLevelStreamPipelineConfig)
        self.numbers: dict[Call, range] = {}

    @rule(
        start=st.integers(0, 100),
        count=st.integers(-1, 5),
        modalities=st.sampled_from([None, "text"]),
    )
    def submit(self, start: int, count: int, modalities: str | None) -> None:
        metadata = {} if modalities is None else {"output_modalities": [modalities]}
        params = {"start": start, "count": count}
        call = self.network.submit(f"r{len(self.numbers)}", params=params, metadata=metadata)
        self.numbers[call] = range(start, start + count)

    @rule(choices=st.lists(st.integers(0, 1000), min_size=1, max_size=40))
    def let_things_happen(self, choices: list[int]) -> None:
        for choice in choices:
            possible = self.network.possible()
            if possible:
                possible[choice % len(possible)]()

    @precondition(lambda self: self.numbers)
    @rule(choice=st.integers(0, 1000))
    def a_client_leaves(self, choice: int) -> None:
        self.network.abort(list(self.numbers)[choice % len(self.numbers)])

    @rule(replica=st.sampled_from((0, 1)))
    def a_process_dies_and_comes_back(self, replica: int) -> None:
        self.network.kill(f"speaker@r{replica}")
        self.network.start(f"speaker@r{replica}")

    def teardown(self) -> None:
        self.network.settle()
        self.network.assert_nothing_left()
        for call, numbers in self.numbers.items():
            self._check(call, numbers)

    def _check(self, call: Call, numbers: range) -> None:
        assert call.ended, f"{call.key} never ended"
        if call.aborted:
            return
        if call.error is not None:
            expected = (
                "INVALID_REQUEST" if len(numbers) == 0 and numbers.stop < numbers.start else None
            )
            assert call.error.reason in {expected, "INSTANCE_LOST"}
            return
        assert call.rows.get("text", []) == list(numbers)
        assert call.results["text"] == {"chunks": len(numbers), "total": sum(numbers)}
        if "sound" in call.terminals:
            assert call.rows.get("sound", []) == [[number] * FRAME_SAMPLES for number in numbers]


class FanOut(RuleBasedStateMachine):
    """Payloads that meet again, which ones depending on the request."""

    @initialize()
    def start(self) -> None:
        self.network = Network(FanOutPipelineConfig)
        self.expected: dict[Call, dict[str, Any]] = {}

    @rule(
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        sides=st.sampled_from([(), ("total",), ("largest",), ("total", "largest")]),
    )
    def submit(self, numbers: list[int], sides: tuple[str, ...]) -> None:
        request_id = f"r{len(self.expected)}"
        view: dict[str, Any] = {"inputs": {"numbers": numbers}, "params": {"sides": list(sides)}}
        call = self.network.submit(request_id, **view)
        answers = {"total": float(sum(numbers)), "largest": float(max(numbers))}
        self.expected[call] = {side: answers[side] for side in sides}

    @rule(choices=st.lists(st.integers(0, 1000), min_size=1, max_size=20))
    def let_things_happen(self, choices: list[int]) -> None:
        for choice in choices:
            possible = self.network.possible()
            if possible:
                possible[choice % len(possible)]()

    @precondition(lambda self: self.expected)
    @rule(choice=st.integers(0, 1000))
    def a_client_leaves(self, choice: int) -> None:
        self.network.abort(list(self.expected)[choice % len(self.expected)])

    @rule(process=st.sampled_from(("front", "side", "back")))
    def a_process_dies_and_comes_back(self, process: str) -> None:
        self.network.kill(process)
        self.network.start(process)

    def teardown(self) -> None:
        self.network.settle()
        self.network.assert_nothing_left()
        for call, answers in self.expected.items():
            assert call.ended, f"{call.key} never ended"
            assert call.aborted or call.error is not None or call.results["join"] == answers
            assert call.error is None or call.error.reason == "INSTANCE_LOST"


_LIMITS = settings(max_examples=40, stateful_step_count=25, deadline=None)

TestTwoLevelStream = TwoLevelStream.TestCase
TestTwoLevelStream.settings = _LIMITS
TestFanOut = FanOut.TestCase
TestFanOut.settings = _LIMITS
