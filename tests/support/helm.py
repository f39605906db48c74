"""The real Helm program, built once like the control plane's programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster_programs import build_program

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "omnipipe"

Manifest = dict[str, Any]


def helm(
    *arguments: str, kubeconfig: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Helm and return what it printed, whatever its exit status."""
    given = {"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {}
    return subprocess.run(
        [build_program("helm"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **given, **(environ or {})},
    )


def chart_of_version(directory: Path, version: str) -> Path:
    """Return a copy of the chart as one released before: it says another version, and its
    definitions have no printer columns yet."""
    copied = directory / f"omnipipe-{version}"
    shutil.copytree(CHART, copied)
    about = yaml.safe_load((copied / "Chart.yaml").read_text())
    about |= {"version": version, "appVersion": version}
    (copied / "Chart.yaml").write_text(yaml.safe_dump(about))
    for file in (copied / "files/crds").glob("*.yaml"):
        definition = yaml.safe_load(file.read_text())
        for served in definition["spec"]["versions"]:
            served.pop("additionalPrinterColumns", None)
        file.write_text(yaml.safe_dump(definition))
    return copied


def rendered(*settings: str, namespace: str = "omni-system") -> list[Manifest]:
    """Return the manifests of a release with `--set` settings."""
    flags = [word for setting in settings for word in ("--set", setting)]
    done = helm("template", "omnipipe", str(CHART), "--namespace", namespace, *flags)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]
