"""The soak, shortened: the same promises over fewer requests."""

import pytest

from tests.soak.soak import Load, soak


@pytest.mark.slow
async def test_every_request_ends_once_and_rightly_while_groups_are_killed() -> None:
    load = Load(requests=200, concurrency=16, warm_up=150, kill_requests=20)
    report = await soak(load)
    assert not report.problems, "\n".join(report.lines())
