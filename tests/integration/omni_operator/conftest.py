"""One API server for all tests of the operator, and a namespace of it for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import Cluster, cluster
from tests.support.operator_site import Site, install_definitions, open_site


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("control-plane")) as running:
        asyncio.run(install_definitions(running))
        yield running


@pytest.fixture
async def site(api_server: Cluster, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(api_server, tmp_path) as opened:
        yield opened
