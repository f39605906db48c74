"""The documents show what kubectl really says of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.control_plane import Cluster
from tests.support.described import described, shown, without_varying

pytestmark = pytest.mark.cluster


async def test_the_document_shows_what_kubectl_says(api_server: Cluster, tmp_path: Path) -> None:
    said = await described(api_server, tmp_path)
    documented = shown()
    assert documented.keys() == said.keys()
    for command, text in said.items():
        wanted, found = without_varying(text), without_varying(documented[command])
        assert found == wanted, f"{command}: run `python -m tests.support.described`"
