"""The CPU platform says yes only where it was asked for: a GPU must never be taken away."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from omni_runtime.sglang_bridge.platform_plugin import CPU_PLATFORM, PLATFORM_VARIABLE, activate


def test_sglang_finds_it() -> None:
    (found,) = entry_points(group="sglang.srt.platforms", name=CPU_PLATFORM)
    assert found.load() is activate


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [
        pytest.param(None, False, id="nothing named"),
        pytest.param("cuda", False, id="another"),
        pytest.param(CPU_PLATFORM, True, id="this one"),
    ],
)
def test_it_answers_only_to_its_name(
    wanted: str | None, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PLATFORM_VARIABLE, raising=False)
    if wanted is not None:
        monkeypatch.setenv(PLATFORM_VARIABLE, wanted)
    assert (activate() is not None) is answers
