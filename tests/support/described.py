"""What `kubectl describe` and `kubectl omni` say of the Qwen3-Omni of the examples.

    python -m tests.support.described     writes it into docs/kubernetes.md

The API server, kubectl and the operator are real; the node is played. What differs from run to run,
such as times and hashes, is left out of the comparison but shown in the document as it was.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from omni_operator.controller.resources import EVENTS
from tests.support.cluster_programs import build_program
from tests.support.control_plane import Cluster, cluster
from tests.support.operator_site import Site, eventually, install_definitions, open_site

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/kubernetes.md"
EXAMPLE = ROOT / "examples/kubernetes/qwen3-omni.yaml"
NAME = "qwen3-omni"
PLAN = f"kubectl omni plan --filename examples/kubernetes/{NAME}.yaml"
COMMANDS = (
    f"kubectl describe omni {NAME}",
    f"kubectl omni config {NAME}",
    f"kubectl omni explain {NAME} talker_ar.engine.max_running_requests",
    f"kubectl omni status {NAME}",
)
_VARYING = (
    r"(?<=-)[0-9a-z]{6,10}-[0-9a-z]{5}\b",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    r"\b[0-9a-f]{8}(?:[0-9a-f]{8})?\b",
    r"(?<=Resource Version:)\s+\d+",
    r"(?<=  )\S+(?=\s+omnipipe-operator)",
)


async def described(running: Cluster, directory: Path) -> dict[str, str]:
    """Return what each command prints, the namespace called `default`: the plan before the example
    is applied in a namespace of its own, the others once it serves."""
    async with open_site(running, directory, private=False) as site:
        claim = {"namespace": site.namespace, "name": f"{NAME}-models"}
        await site.offer_volume("100Gi", claimRef=claim)

        async def said(command: str) -> str:
            place = (f"--namespace={site.namespace}", f"--kubeconfig={running.kubeconfig}")
            text = await asyncio.to_thread(_run, [*command.split(), *place])
            return text.replace(site.namespace, "default")

        planned = {PLAN: await said(PLAN)}
        site.start_operator()
        await said(f"kubectl apply --server-side --filename {EXAMPLE}")
        await site.until_ready(NAME)
        await eventually(lambda: _is_told(site))
        return planned | {command: await said(command) for command in COMMANDS}


def shown() -> dict[str, str]:
    """Return what the document says each command prints."""
    text = DOCUMENT.read_text()
    found = {command: _block(command).search(text) for command in (PLAN, *COMMANDS)}
    return {command: block[1] for command, block in found.items() if block is not None}


def without_varying(text: str) -> list[str]:
    """Return the lines without what differs from run to run, and spaces that follow from it.

    Events of the same second have no order.
    """
    for pattern in _VARYING:
        text = re.sub(pattern, "…", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    events = lines.index("Events:") if "Events:" in lines else len(lines)
    return [*lines[:events], *sorted(lines[events:])]


def _block(command: str) -> re.Pattern[str]:
    return re.compile(rf"^```console\n\$ {re.escape(command)}\n(.*?)^```$", re.M | re.S)


def _split(text: str, command: str) -> tuple[str, str, str]:
    """Return what stands before a command's block, the block, and what stands after it."""
    found = _block(command).search(text)
    if found is None:
        return text, "", ""
    return text[: found.start()], found[0], text[found.end() :]


def _run(words: Sequence[str]) -> str:
    """Run a command as a shell in the repository's root would, with our kubectl and its plugin."""
    kubectl = build_program("kubectl")
    path = os.pathsep.join((str(kubectl.parent), str(Path(sys.executable).parent), "/usr/bin"))
    done = subprocess.run(
        [str(kubectl), *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def _is_told(site: Site) -> bool:
    """Whether the last Event of a rollout is there."""
    reasons = {one["reason"] async for one in site.client.list(EVENTS, site.namespace)}
    return "RolloutCompleted" in reasons


def main() -> None:
    """Write into the document what is said now."""
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory)) as running:
        asyncio.run(install_definitions(running))
        said = asyncio.run(described(running, Path(directory)))
    text = DOCUMENT.read_text()
    for command, output in said.items():
        block = f"```console\n$ {command}\n{output}```"
        before, found, after = _split(text, command)
        assert found, f"{DOCUMENT} does not show {command}"
        text = before + block + after
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
