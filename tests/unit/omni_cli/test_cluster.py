"""What `kubectl omni` asks of a cluster, as far as no cluster is needed for it."""

from __future__ import annotations

from typing import Any

import pytest

from omni_cli.cluster import gateway_paths, release_of
from omni_operator.names import APP_COMPONENT
from omni_operator.plan.world import Observed
from omni_operator.render.view import Release


def pod(name: str, component: str = "gateway", phase: str = "Running") -> dict[str, Any]:
    labels = {APP_COMPONENT: component}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "status": {"phase": phase},
    }


def test_gateways_that_run_are_asked_by_way_of_the_api_server() -> None:
    observed = Observed(pods=(pod("g-1"), pod("g-2", phase="Pending"), pod("s-1", "stage")))
    assert list(gateway_paths({}, observed)) == [
        "/api/v1/namespaces/team/pods/g-1:8000/proxy/v1/pipeline"
    ]
    secured = {"spec": {"gateway": {"tls": {"secretName": "edge"}}}}
    assert list(gateway_paths(secured, observed)) == [
        "/api/v1/namespaces/team/pods/https:g-1:8000/proxy/v1/pipeline"
    ]


def test_the_operators_images_are_read_from_what_it_is_told() -> None:
    told = ["--stage-image=registry/stage:1", "--gateway-image=registry/gateway:1", "--workers=8"]
    assert release_of(told) == Release("registry/stage:1", "registry/gateway:1")
    with pytest.raises(ValueError, match="gateway-image"):
        release_of(told[:1])
