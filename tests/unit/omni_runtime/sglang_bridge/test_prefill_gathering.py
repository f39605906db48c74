"""When prompts wait for company."""

from __future__ import annotations

import pytest

from omni_runtime.sglang_bridge.prefill_gathering import PrefillGathering


@pytest.mark.parametrize(
    ("waiting", "oldest_seconds", "decoding", "waits"),
    [
        pytest.param(1, 0.0, True, True, id="alone beside decoding rows"),
        pytest.param(1, 0.0, False, False, id="alone with nothing to hold up"),
        pytest.param(4, 0.0, True, False, id="all together"),
        pytest.param(2, 0.06, True, False, id="waited long enough"),
    ],
)
def test_prompts_wait_for_company_beside_decoding_rows_only(
    waiting: int, oldest_seconds: float, decoding: bool, waits: bool
) -> None:
    gathering = PrefillGathering(requests=4, wait_seconds=0.06)
    assert gathering.waits(waiting, oldest_seconds, decoding) is waits


def test_they_may_be_told_to_wait_always() -> None:
    assert PrefillGathering(4, 0.06, when_idle=True).waits(1, 0.0, decoding=False)
