"""Golden manifests: every owned object of the shipped pipelines, in every GPU sharing mode.

    python -m tests.support.golden      rewrites them; read the diff before committing it

They are what `omni plan` shows for an object that does not exist yet, on a cluster that is written
down in the case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from omni_operator.names import API_VERSION, KIND
from omni_operator.plan.capabilities import OPTIONAL_KINDS, Capabilities
from omni_operator.plan.decision import decide
from omni_operator.plan.world import Apply, Decision, Observed, World
from omni_operator.render.view import Release
from omni_operator.yaml_text import to_yaml

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/operator"
RELEASE = Release("ghcr.io/omnipipe/stage:1.0.0", "ghcr.io/omnipipe/gateway:1.0.0")
NOW = 1_700_000_000.0
PLAIN = Capabilities(version=34, resources=frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"}))
WITH_DRA = Capabilities(
    version=34,
    device_classes=frozenset({"gpu.nvidia.com"}),
    resources=frozenset({"nvidia.com/gpu"}),
    kinds=frozenset(OPTIONAL_KINDS),
)


@dataclass(frozen=True)
class Case:
    """One object on one cluster.

    Attributes:
        example: file of `examples/`.
        config: top-level settings over the example's; null leaves one out.
        spec: fields beside `config`.
        whole: whether the golden file holds every object, or only how pods get their GPUs.
    """

    name: str
    example: str
    cluster: Capabilities
    config: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    whole: bool = False

    @property
    def manifest(self) -> dict[str, Any]:
        """The object."""
        config = yaml.safe_load((ROOT / f"examples/{self.example}.yaml").read_text())
        written = {**config, **self.config}
        settings = {key: value for key, value in written.items() if value is not None}
        return pipeline(self.example, settings, self.spec)

    def decision(self) -> Decision:
        """Return what the operator decides when nothing is there yet."""
        return decide(self.manifest, Observed(), World(self.cluster, RELEASE, NOW))

    def manifests(self) -> list[dict[str, Any]]:
        """Return every object that is made, in order."""
        return [one.manifest for one in self.decision().actions if isinstance(one, Apply)]

    def text(self) -> str:
        """Return the objects as the golden file has them. Data of ConfigMaps is left out: it is
        the configuration's own, tested elsewhere."""
        documents = [
            _without_data(one)
            for one in self.manifests()
            if self.whole or one["kind"] in _GPU_KINDS
        ]
        return to_yaml(*documents)


def pipeline(name: str, config: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Return an OmniPipeline."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "demo", "uid": "0000", "generation": 1},
        "spec": {"config": config, **spec},
    }


def _sharing(mode: str, **more: str) -> dict[str, Any]:
    return {"gpuSharing": {"mode": mode, **more}}


_GPU_KINDS = ("Deployment", "ResourceClaim", "ResourceClaimTemplate")

FULL = {
    "model": {"repo": "Qwen/Qwen3-Omni-30B-A3B-Instruct", "tokenSecretRef": {"name": "hub"}},
    "modelCache": {"size": "100Gi", "storageClassName": "fast"},
    "groups": {
        "talker_ar": {
            "scaling": {"minReplicas": 1, "maxReplicas": 4},
            "resources": {"requests": {"cpu": 4, "memory": "16Gi"}},
            "nodeSelector": {"gpu": "h100"},
            "podTemplate": {"spec": {"priorityClassName": "speech"}},
        },
        "preprocessing": {
            "scaling": {
                "replicas": 2,
                "maxReplicas": 6,
                "autoscaler": "ScaledObject",
                "prometheusAddress": "http://prometheus.monitoring:9090",
            },
        },
    },
    "gateway": {
        "replicas": 2,
        "service": {"type": "LoadBalancer"},
        "auth": {"apiKeySecret": "keys"},
        "tls": {"secretName": "edge"},
        "route": {"hostnames": ["omni.example.com"], "parentRefs": [{"name": "public"}]},
    },
    "certificates": {"mode": "CertManager", "issuerRef": {"name": "mesh"}},
    "networkPolicy": {"monitoring": {"namespaceLabels": {"name": "monitoring"}}},
}

CASES = (
    Case("speech-exclusive", "qwen3-omni", PLAIN, spec=_sharing("Exclusive")),
    Case("speech-shared-claim", "qwen3-omni", WITH_DRA),
    Case(
        "speech-sidecar",
        "qwen3-omni",
        WITH_DRA,
        {"mps": "on", "mps_quota": {"active_thread_percentage": 50, "pinned_memory": "30GiB"}},
    ),
    Case("speech-in-container", "qwen3-omni", PLAIN),
    Case("speech-in-container-mps", "qwen3-omni", PLAIN, {"mps": True}),
    Case(
        "speech-device-plugin",
        "qwen3-omni",
        PLAIN,
        spec=_sharing("DevicePlugin", resourceName="nvidia.com/gpu.shared"),
    ),
    Case("colocated-shared-claim", "qwen3-omni-colocated", WITH_DRA),
    Case("colocated-sidecar", "qwen3-omni-colocated", WITH_DRA, {"mps": "on"}),
    Case("colocated-in-container", "qwen3-omni-colocated", PLAIN),
    Case("tts", "qwen3-tts", PLAIN, whole=True),
    Case("speech-everything", "qwen3-omni", WITH_DRA, {"model_path": None}, FULL, whole=True),
)
"""Where no mode is named, Auto chose the one in the name."""


def golden_texts() -> dict[Path, str]:
    """Return the content of every golden file."""
    return {GOLDEN / f"{case.name}.yaml": case.text() for case in CASES}


def _without_data(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] != "ConfigMap":
        return manifest
    return {**manifest, "data": {key: "..." for key in manifest["data"]}}


def main() -> None:
    """Rewrite the golden files."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    wanted = golden_texts()
    for path in set(GOLDEN.glob("*.yaml")) - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
