"""Where the time from `kubectl apply` to Ready goes, told by watches and logs."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.support.node import Pipeline

PARTS = ("plan", "schedule", "start", "import", "load", "register")
"""Until the operator has made the pod, it has a node, its container runs, its program builds the
first stage, it has registered, and Kubernetes knows it as routable."""
ROUTABLE = "omnipipe.dev/routable"


@dataclass(slots=True)
class StartTimes:
    """When each pod of a pipeline reached what, in seconds since the epoch."""

    pipeline: Pipeline
    applied: float
    seen: dict[str, dict[str, float]] = field(default_factory=dict)

    def parts(self, pod: str) -> dict[str, float]:
        """Return the seconds that each part of a stage pod's start took."""
        seen = self.seen[pod] | self._logged(pod)
        moments = [self.applied, *(seen[part] for part in PARTS)]
        return {
            part: after - before
            for part, (before, after) in zip(PARTS, pairwise(moments), strict=True)
        }

    def table(self) -> str:
        """Return a line per stage pod, and how long everything took."""
        lines = [" ".join(("pod".ljust(40), *(part.rjust(9) for part in PARTS)))]
        for pod in self.pipeline.pods():
            name = pod["metadata"]["name"]
            if "omnipipe.dev/group" in pod["metadata"]["labels"]:
                parts = self.parts(name)
                cells = (f"{parts[part]:8.2f}s" for part in PARTS)
                lines.append(" ".join((name.ljust(40), *cells)))
        return "\n".join(lines)

    def note(self, pod: dict[str, Any], now: float) -> None:
        """Take in the state of a pod."""
        seen = self.seen.setdefault(pod["metadata"]["name"], {})
        status = pod.get("status", {})
        states = [one["state"] for one in status.get("containerStatuses", ())]
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        reached = {
            "plan": True,
            "schedule": "nodeName" in pod["spec"],
            "start": bool(states) and all("running" in state for state in states),
            "register": conditions.get(ROUTABLE) == "True",
        }
        for part, yes in reached.items():
            if yes:
                seen.setdefault(part, now)

    def _logged(self, pod: str) -> dict[str, float]:
        """Return when a pod's program said that it builds, and that it has registered."""
        found: dict[str, float] = {}
        for line in self.pipeline.kubectl("logs", pod, "--timestamps").splitlines():
            moment, _, text = line.partition(" ")
            for part, event in (("import", "building stage"), ("load", "registered")):
                if event in text:
                    found.setdefault(part, _seconds(moment))
        return found


@contextmanager
def start_times(pipeline: Pipeline) -> Iterator[StartTimes]:
    """Watch the pods of a pipeline that is about to be applied."""
    times = StartTimes(pipeline, time.time())
    command = ["kubectl", "-n", pipeline.namespace, "get", "pods", "--watch", "-o", "json"]
    with subprocess.Popen(
        command, env=pipeline.node.environ, stdout=subprocess.PIPE, text=True
    ) as watch:
        reader = threading.Thread(target=_read, args=(watch, times))
        reader.start()
        times.applied = time.time()
        try:
            yield times
        finally:
            watch.terminate()
            reader.join()


def _read(watch: subprocess.Popen[str], times: StartTimes) -> None:
    assert watch.stdout is not None
    text = ""
    for line in watch.stdout:
        text += line
        if line == "}\n":
            times.note(json.loads(text), time.time())
            text = ""


def _seconds(moment: str) -> float:
    # Python reads six digits of a second, containerd writes nine.
    whole, _, rest = moment.partition(".")
    digits = rest.rstrip("Z")[:6]
    return datetime.fromisoformat(f"{whole}.{digits}+00:00").timestamp()
