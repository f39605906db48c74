"""The dashboard asks a gateway for nothing that it does not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from omni_client import OmniClient
from tests.support.chat_gateway import ChatGateway
from tests.support.patience import PATIENT_SECONDS

DASHBOARD = Path(__file__).resolve().parents[3] / "charts/omnipipe/dashboards/omnipipe.json"
METRIC = re.compile(r"\bomni_gateway_[a-z_]+")


def test_every_metric_of_the_dashboard_is_served(parrot: ChatGateway) -> None:
    with OmniClient(parrot.target) as client:
        client.chat("hi")
    served = set(METRIC.findall(httpx.get(f"{parrot.url}/metrics", timeout=PATIENT_SECONDS).text))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        metric
        for panel in panels
        for target in panel["targets"]
        for metric in METRIC.findall(target["expr"])
    }
    assert len(panels) > 10
    assert asked <= served
