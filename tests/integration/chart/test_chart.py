"""The chart, rendered and installed by the real Helm program."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from omni_operator.controller.resources import OWNED, PIPELINES, PODS
from tests.support.helm import CHART, Manifest, helm, rendered

pytestmark = pytest.mark.cluster


def of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == kind]


def test_helm_finds_nothing_to_say_about_the_chart() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("operator.replicas=9", "/operator/replicas"),
        ("operator.workers=0", "/operator/workers"),
        ("operator.namespaces={Not_A_Name}", "/operator/namespaces/0"),
        ("images.pullPolicy=Sometimes", "/images/pullPolicy"),
        ("metrics.serviceMonitor.interval=often", "/metrics/serviceMonitor/interval"),
        ("operatr.replicas=1", "operatr"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_path(setting: str, says: str) -> None:
    done = helm("template", "omnipipe", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert says in done.stderr


def test_the_operator_may_do_what_it_does_and_reads_no_secrets() -> None:
    (role,) = [
        one
        for one in of_kind(rendered(), "ClusterRole")
        if one["metadata"]["name"] == "omni-system-omnipipe"
    ]
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for resource in OWNED:
        verbs = {"get", "list", "watch", "create", "patch", "delete"}
        assert verbs <= _merged(role, resource.group, resource.plural), resource.kind
    assert {"get", "list", "watch"} <= _merged(role, PIPELINES.group, PIPELINES.plural)
    assert {"get", "list", "watch", "patch"} <= _merged(role, PODS.group, PODS.plural)
    assert "create" not in allowed["", "pods"]
    assert not {"get", "list", "watch"} & allowed["", "secrets"]
    assert all("*" not in verbs for verbs in allowed.values())


def _merged(role: Manifest, group: str, resource: str) -> set[str]:
    return {
        verb
        for rule in role["rules"]
        if group in rule["apiGroups"] and resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_with_namespaces_the_operator_has_no_power_beyond_them() -> None:
    manifests = rendered("operator.namespaces={team-a,team-b}", "rbac.aggregate=false")
    assert of_kind(manifests, "ClusterRole") == []
    assert of_kind(manifests, "ClusterRoleBinding") == []
    places = {one["metadata"]["namespace"] for one in of_kind(manifests, "Role")}
    assert places == {"omni-system", "team-a", "team-b"}
    (deployment,) = of_kind(manifests, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--namespace=team-a", "--namespace=team-b"} <= set(container["args"])


def test_every_pod_keeps_the_restricted_standard() -> None:
    manifests = rendered()
    pods = [one["spec"]["template"]["spec"] for one in of_kind(manifests, "Deployment")]
    pods += [one["spec"] for one in of_kind(manifests, "Pod")]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_definitions_are_the_project_s_own_and_stay_when_the_chart_goes() -> None:
    definitions = of_kind(rendered(), "CustomResourceDefinition")
    sources = [yaml.safe_load(path.read_text()) for path in sorted(_definition_files())]
    assert [one["spec"] for one in definitions] == [one["spec"] for one in sources]
    for one in definitions:
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind(rendered("crds.install=false"), "CustomResourceDefinition") == []


def _definition_files() -> Iterable[Path]:
    return (CHART.parents[1] / "crds").glob("*.yaml")
