"""How far a download is, as it is told over HTTP while it lasts."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from omni_runtime.download_progress import telling_progress
from tests.support.patience import PATIENT_SECONDS
from tests.support.ports import free_port


def test_it_tells_what_is_on_disk_for_as_long_as_the_download_lasts(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with telling_progress(tmp_path, 12, port):
        assert httpx.get(f"{url}/progress", timeout=PATIENT_SECONDS).json() == {
            "bytes": 0,
            "of": 12,
        }
        (tmp_path / "part").mkdir()
        (tmp_path / "part" / "model.incomplete").write_bytes(b"seven b")
        assert httpx.get(f"{url}/progress", timeout=PATIENT_SECONDS).json() == {
            "bytes": 7,
            "of": 12,
        }
        assert httpx.get(f"{url}/else", timeout=PATIENT_SECONDS).status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/progress", timeout=PATIENT_SECONDS)
