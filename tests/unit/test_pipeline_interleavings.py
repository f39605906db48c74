"""Coordinator and stages together: every request ends once, rightly, in any order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from examples.two_level_stream.stages import FRAME_SAMPLES
from examples.two_level_stream.topology import TwoLevelStreamPipelineConfig
from omni_gateway.coordinator.records import Phase
from tests.support.coordinated_network import Client, CoordinatedNetwork

PROCESSES = ("writer", "text", "speaker@r0", "speaker@r1")


class Pipeline(RuleBasedStateMachine):
    """Two terminals, a stream that feeds a stream, two replicas, clients that read or leave."""

    @initialize()
    def start(self) -> None:
        self.network = CoordinatedNetwork(TwoLevelStreamPipelineConfig)
        self.numbers: dict[Client, range] = {}

    @rule(start=st.integers(0, 100), count=st.integers(-1, 5), text_only=st.booleans())
    def a_client_asks(self, start: int, count: int, text_only: bool) -> None:
        metadata = {"output_modalities": ["text"]} if text_only else {}
        params = {"start": start, "count": count}
        client = self.network.ask(f"r{len(self.numbers)}", params=params, metadata=metadata)
        self.numbers[client] = range(start, start + count)

    @rule(choices=st.lists(st.integers(0, 1000), min_size=1, max_size=40))
    def let_things_happen(self, choices: list[int]) -> None:
        for choice in choices:
            possible = self.network.possible()
            if possible:
                possible[choice % len(possible)]()

    @precondition(lambda self: self.numbers)
    @rule(choice=st.integers(0, 1000))
    def a_client_leaves(self, choice: int) -> None:
        self.network.leave(list(self.numbers)[choice % len(self.numbers)])

    @rule(process=st.sampled_from(PROCESSES))
    def a_process_dies_and_comes_back(self, process: str) -> None:
        self.network.kill(process)
        self.network.start(process)

    def teardown(self) -> None:
        self.network.settle()
        for client, numbers in self.numbers.items():
            self._check(client, numbers)
        self.network.assert_nothing_left()

    def _check(self, client: Client, numbers: range) -> None:
        record = client.record
        assert len(client.ends) == 1, f"{record.key} ended {client.ends}"
        if client.left:
            return
        if record.phase is not Phase.COMPLETED:
            assert record.error is not None
            refused = numbers.stop < numbers.start
            assert record.error.reason in {
                "INSTANCE_LOST",
                *({"INVALID_REQUEST"} if refused else ()),
            }
            return
        assert client.rows["text"] == list(numbers)
        if "sound" in record.expected:
            assert client.rows["sound"] == [[number] * FRAME_SAMPLES for number in numbers]


TestPipeline = Pipeline.TestCase
TestPipeline.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
