"""Runs on a real node: containers, kubelet, Services, DNS and the chart, nothing played.

What takes seconds once there is a node runs with `make test`; `make e2e` runs all of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.faults import Scene
from tests.support.cluster_load import parrot_load
from tests.support.node import Node, Pipeline, installed_node
from tests.support.parrot import parrot, parrot_of_three
from tests.support.pod_speech import SpeechModel, speech_model

# They need the large image of the stages.
_SPEECH = ["test_speech.py", "test_speech_under_load.py"]
collect_ignore = [] if os.environ.get("OMNIPIPE_STAGE") == "cpu" else _SPEECH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure first: a node whose API server was stopped is slow for a while after it is back."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/e2e/test_first_answer.py"))


@pytest.fixture(scope="package")
def node() -> Iterator[Node]:
    """A cluster with omnipipe installed by its chart."""
    with installed_node() as node:
        yield node


@pytest.fixture(scope="module")
def small(node: Node) -> Iterator[Pipeline]:
    """The chatting example, Ready."""
    with node.pipeline(parrot()) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def three(node: Node) -> Iterator[Pipeline]:
    """The chatting example with a pod for each of its stages, Ready."""
    with node.pipeline(parrot_of_three()) as pipeline:
        yield pipeline


@pytest.fixture
def scene(node: Node, three: Pipeline) -> Iterator[Scene]:
    """The pipeline of three pods, under load."""
    overrides = three.object()["spec"].get("overrides", [])
    with three.client() as client, parrot_load(client) as load:
        yield Scene(node, three, load, overrides)


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> SpeechModel:
    """The tiny Qwen3-Omni."""
    return speech_model(tmp_path_factory.mktemp("models") / "tiny")
