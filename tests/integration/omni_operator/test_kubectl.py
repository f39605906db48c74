"""`kubectl omni` tells of a real cluster what the operator itself thinks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from omni_cli.main import KUBECTL, run
from omni_operator.render.manifest import Manifest
from tests.support.control_plane import Cluster
from tests.support.operator_site import Site, pipeline

pytestmark = pytest.mark.cluster


async def test_the_commands_tell_of_a_running_pipeline(
    site: Site, api_server: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def said(*words: str) -> tuple[int, str]:
        at = ("--namespace", site.namespace, "--kubeconfig", str(api_server.kubeconfig))
        capsys.readouterr()
        status = await asyncio.to_thread(run, [*words, *at], KUBECTL)
        return status, capsys.readouterr().out

    manifest = pipeline(site, profileRefs=[{"name": "platform"}])
    file = tmp_path / "tts.yaml"
    file.write_text(yaml.safe_dump_all([_profile(site), manifest]))
    status, text = await said("plan", "-f", str(file))
    assert (status, "create Deployment tts-gateway" in text) == (0, True)
    assert await site.owned("tts") == {}
    file.write_text(yaml.safe_dump(_profile(site)))
    status, text = await said("plan", "-f", str(file))
    assert (status, text) == (2, ""), "a file without a pipeline"

    await site.client.create(_profile(site))

    site.start_operator()
    await site.create(manifest)
    await site.until_ready("tts")
    status, text = await said("config", "tts")
    assert (status, "stages.preprocessing.process = front" in text) == (0, True)
    status, text = await said("explain", "tts", "preprocessing.process")
    assert (status, "front" in text) == (0, True)
    status, text = await said("status", "tts")
    assert (status, "Ready: True" in text) == (0, True)

    manifest["spec"]["gateway"]["replicas"] = 2
    file.write_text(yaml.safe_dump(manifest))
    status, text = await said("plan", "-f", str(file), "--diff")
    assert (status, "+  replicas: 2" in text) == (0, True)
    manifest["spec"]["config"]["stages"]["vocodr"] = {}
    file.write_text(yaml.safe_dump(manifest))
    status, text = await said("plan", "-f", str(file))
    assert (status, "vocoder" in text) == (1, True)


def _profile(site: Site) -> Manifest:
    """Return a profile that a file may bring along."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "platform", "namespace": site.namespace},
        "data": {"config.yaml": "stages: {tts_engine: {engine: {max_running_requests: 2}}}"},
    }
