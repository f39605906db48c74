"""Revisions told by a file that changes while the gateway runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from omni_gateway import routes_file
from omni_gateway.coordinator import Routes
from omni_gateway.routes_file import follow_routes, parse_routes
from tests.support.patience import PATIENT_SECONDS

ONE = {"revisions": [{"name": "a", "groups": {"text": "1"}, "shapes": {}, "served": True}]}
TWO = {"revisions": [*ONE["revisions"], {"name": "b", "groups": {"text": "2"}}]}


def test_a_pod_serves_every_revision_that_names_its_own() -> None:
    routes = parse_routes(json.dumps(TWO).encode())

    assert routes.serves("text", "2") == {"b"}
    assert routes.serves("text", "3") == frozenset()
    assert routes.knows("text", "1")
    assert not routes.knows("voice", "1")


def test_without_revisions_a_pods_own_is_the_pipelines() -> None:
    assert Routes().serves("text", "x") == {"x"}
    assert not Routes().knows("text", "x")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"revisions": [{"name": "a"}]}'])
def test_what_is_no_routes_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_routes(content)


async def test_changes_are_followed_and_damage_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_file, "LOOK_SECONDS", 0.001)
    path = tmp_path / "routes.json"
    seen: asyncio.Queue[Routes] = asyncio.Queue()
    following = asyncio.ensure_future(follow_routes(path, seen.put_nowait))
    async with asyncio.timeout(PATIENT_SECONDS):
        path.write_text(json.dumps(ONE))
        assert (await seen.get()).revisions.keys() == {"a"}
        path.write_text("damaged")
        path.unlink()
        path.write_text(json.dumps(TWO))
        assert (await seen.get()).revisions.keys() == {"a", "b"}
    following.cancel()
