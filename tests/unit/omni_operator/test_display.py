"""What `kubectl omni` says of plans, settings and pods."""

from __future__ import annotations

import pytest

from omni_config.errors import ConfigError
from omni_operator.display.changes import changes, diff_lines, refusals, summary_lines
from omni_operator.display.settings import changed_lines, config_text, explain_lines
from omni_operator.display.tree import edge_lines, status_lines
from omni_operator.plan.world import GatewaysSeen, ObjectId, Observed
from omni_wire.v1 import gateway_pb2
from tests.support.decision_site import Site, running
from tests.support.objects import speech, stage


def config_map(site: Site) -> dict[str, object]:
    (name,) = [one for one in site.objects if one.name.startswith("demo-config-")]
    return site.objects[name]


def test_a_new_object_creates_and_an_unchanged_one_does_nothing() -> None:
    decision = Site(speech()).decide()
    lines = list(summary_lines(decision, changes(decision, {})))
    assert "create ConfigMap demo-routes" in lines
    assert lines[0].endswith("2 GPUs")
    site = running()
    decision = site.decide()
    assert list(summary_lines(decision, changes(decision, site.objects)))[-1] == "nothing to change"


def test_a_diff_shows_what_changes_and_not_what_the_server_keeps() -> None:
    site = running()
    site.edit(speech(gateway={"replicas": 3}))
    found = changes(site.decide(), site.objects)
    (gateway,) = [one for one in found if one.id == ObjectId("Deployment", "demo-gateway")]
    lines = list(diff_lines(gateway))
    assert "-  replicas: 1" in lines
    assert "+  replicas: 3" in lines
    assert not any("uid" in line and line[0] in "+-" for line in lines[2:])


def test_a_refused_object_says_why() -> None:
    (line,) = refusals(Site(speech(gpuSharing={"mode": "Sidecar"})).decide())
    assert line.startswith("GPUSharingSupported: MPSOff: ")


def test_a_setting_is_explained_with_its_history() -> None:
    manifest = stage(speech(), "thinker", engine={"max_running_requests": 8})
    manifest["spec"]["overrides"] = [{"path": "thinker.engine.max_running_requests", "value": 16}]
    site = Site(manifest)
    status = site.settle()[-1].status
    lines = explain_lines(config_map(site), "thinker.engine.max_running_requests")
    assert lines[0] == "stages.thinker.engine.max_running_requests = 16"
    assert "[winner]" in lines[1]
    assert "[superseded]" in lines[2]
    assert lines[-1].endswith("<- model default")
    assert "stages.thinker.engine.max_running_requests = 16" in list(changed_lines(status.config))
    assert "max_running_requests: 16" in config_text(config_map(site))


def test_a_setting_that_nobody_set_is_a_default() -> None:
    with pytest.raises(ConfigError, match="model's default") as refusal:
        explain_lines(config_map(running()), "thinker.gpu_memory_fracton")
    assert refusal.value.problems[0].suggestions == ("thinker.gpu_memory_fraction",)


def test_the_tree_shows_pods_and_what_they_wait_for() -> None:
    site = running()
    victim = next(pod for name, pod in site.pods.items() if "talker" in name)
    del site.traffic[victim["status"]["podIP"]]
    decision = site.decide()
    seen = GatewaysSeen(site.traffic, 1, 1)
    observed = Observed(dict(site.objects), tuple(site.pods.values()), {}, seen)
    lines = list(status_lines("demo", decision.status, observed, site.now))
    assert lines[0].startswith("demo  revision ")
    assert any("NotRegistered" in line and "talker" in line for line in lines)
    assert any(line.endswith("routable, 0 in flight") for line in lines)


def test_edges_are_those_that_a_gateway_knows() -> None:
    stages = [
        gateway_pb2.Stage(name="thinker", next=["decode", "talker"], stream_to=["talker"]),
        gateway_pb2.Stage(name="decode", terminal=True, modality="text"),
    ]
    lines = list(edge_lines([gateway_pb2.GetPipelineResponse(stages=stages)]))
    assert lines == [
        "  edges",
        "    thinker -> talker (stream), decode",
        "    decode -> client (text)",
    ]
    assert list(edge_lines([])) == ["  edges  unknown: no gateway could be asked"]
