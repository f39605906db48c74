"""Lists put right what watches miss, and tell which watch has gone silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from omni_operator.controller.audit import audit, fill
from omni_operator.controller.client import Client, Page
from omni_operator.controller.resources import CONFIG_MAPS, Resource
from omni_operator.controller.store import Store
from omni_operator.controller.watched import Watched, whole
from omni_operator.names import LABEL_PIPELINE
from omni_operator.render.manifest import Manifest
from tests.support.virtual_time import in_virtual_time

KIND = Watched(CONFIG_MAPS, whole)
KEY = ("team", "tts")


class Lists:
    """What the API server has, handed out two objects a page.

    Attributes:
        between: called between two pages.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Manifest] = {}
        self.version = 0
        self.between: Callable[[], None] = lambda: None

    def put(self, name: str, namespace: str = "team") -> Manifest:
        self.version += 1
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid of {name}",
            "resourceVersion": str(self.version),
            "labels": {LABEL_PIPELINE: "tts"},
        }
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.objects[name] = made
        return made

    def drop(self, name: str) -> Manifest:
        self.version += 1
        gone = self.objects.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        return gone

    async def pages(
        self, resource: Resource, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[Page]:
        assert (resource, selector) == (CONFIG_MAPS, KIND.selector)
        version, found = self.version, list(self.objects.values())
        found = [one for one in found if namespace in (None, one["metadata"]["namespace"])]
        for at in range(0, len(found) + 1, 2):
            yield Page(version, tuple(found[at : at + 2]))
            self.between()


class Scene:
    def __init__(self) -> None:
        self.lists = Lists()
        self.store = Store()
        self.store.keep((KIND,))

    @property
    def client(self) -> Client:
        return cast(Client, self.lists)

    @property
    def names(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.store.owned(KEY))

    def hear(self, manifest: dict[str, Any]) -> None:
        self.store.heard(CONFIG_MAPS, manifest)


async def test_a_fill_leaves_exactly_what_the_list_has() -> None:
    scene = Scene()
    for name in "abcde":
        scene.hear(scene.lists.put(name))
    scene.lists.drop("b")
    scene.lists.put("f")
    await fill(scene.client, scene.store, KIND, ())
    assert scene.names == ["a", "c", "d", "e", "f"]


async def test_what_comes_and_goes_between_two_pages_is_left_to_the_watch() -> None:
    scene = Scene()
    for name in "abc":
        scene.hear(scene.lists.put(name))

    def change() -> None:
        scene.lists.between = lambda: None
        scene.hear(scene.lists.put("new"))
        scene.store.ended(CONFIG_MAPS, scene.lists.drop("c"))

    scene.lists.between = change
    await fill(scene.client, scene.store, KIND, ())
    assert scene.names == ["a", "b", "new"]


async def test_a_fill_of_one_namespace_says_nothing_of_others() -> None:
    scene = Scene()
    scene.hear(scene.lists.put("a"))
    elsewhere = scene.lists.put("z", "elsewhere")
    scene.hear(elsewhere)
    scene.lists.drop("a")
    await fill(scene.client, scene.store, KIND, ("team",))
    assert [one["metadata"]["name"] for one in scene.store.owned(("elsewhere", "tts"))] == ["z"]
    assert scene.names == []


@in_virtual_time
async def test_a_watch_that_tells_in_time_is_not_silent() -> None:
    scene = Scene()
    made = [scene.lists.put("a"), scene.lists.put("b")]
    scene.lists.put("c")
    auditing = asyncio.create_task(audit(scene.client, scene.store, ()))
    await asyncio.sleep(5.0)
    for one in made:
        scene.hear(one)
    scene.store.ended(CONFIG_MAPS, scene.lists.drop("c"))
    assert await auditing == []


@in_virtual_time
async def test_a_watch_that_tells_nothing_is_silent_and_the_store_knows_all_the_same() -> None:
    scene = Scene()
    scene.hear(scene.lists.put("a"))
    scene.lists.put("a")
    scene.lists.put("b")
    (silence,) = await audit(scene.client, scene.store, ())
    assert (silence.kind, silence.missed) == (KIND, 2)
    assert scene.names == ["a", "b"]


@in_virtual_time
async def test_an_own_write_that_the_watch_does_not_echo_shows_a_silent_watch() -> None:
    scene = Scene()
    scene.store.written(scene.lists.put("a"))
    (silence,) = await audit(scene.client, scene.store, ())
    assert silence.missed == 1
