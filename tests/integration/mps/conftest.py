import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mps import Card, fake_host


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    """A card that nobody uses yet, with a fake control program."""
    monkeypatch.setenv("FAKE_MPS_CALLS", str(tmp_path / "calls"))
    with tempfile.TemporaryDirectory(prefix="mps-") as short, fake_host(Path(short)) as host:
        yield host
