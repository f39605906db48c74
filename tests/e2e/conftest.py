"""Runs on a real node: containers, kubelet, Services, DNS and the chart, nothing played.

Making images and a cluster takes minutes: these tests run when `make e2e` asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.node import Node, Pipeline, installed_node

ASKED = os.environ.get("OMNIPIPE_E2E") == "1"

collect_ignore_glob = [] if ASKED else ["test_*.py"]


def pytest_report_header() -> str:
    return "end to end: asked for" if ASKED else "end to end: left out; `make e2e` runs these tests"


@pytest.fixture(scope="session")
def node() -> Node:
    """A cluster with omnipipe installed by its chart."""
    return installed_node()


@pytest.fixture
def parrot(node: Node) -> Iterator[Pipeline]:
    """The pipeline of examples/kubernetes/chat.yaml, Ready, in a namespace of its own."""
    with node.pipeline("examples/kubernetes/chat.yaml") as pipeline:
        yield pipeline
