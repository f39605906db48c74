"""`kubectl omni plan`: what would be written, and with --diff which fields.

Works on the decision the operator itself would take, so it cannot tell another story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from omni_operator.plan.world import Apply, Decision, Delete, ObjectId
from omni_operator.render.manifest import Manifest
from omni_operator.status import reasons
from omni_operator.yaml_text import to_yaml

CREATE, UPDATE, DELETE = "create", "update", "delete"
_NOISE = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Change:
    """One object that would be written.

    Attributes:
        verb: `create`, `update` or `delete`.
        before, after: the object as it is and as it would be; null where there is none.
    """

    verb: str
    id: ObjectId
    before: Manifest | None
    after: Manifest | None


def changes(decision: Decision, live: Mapping[ObjectId, Manifest]) -> tuple[Change, ...]:
    """Return the objects that a decision writes, in order."""
    return tuple(_changes(decision, live))


def refusals(decision: Decision) -> list[str]:
    """Return why the object cannot be carried out, one line per condition; empty when it can."""
    blocking = (reasons.ACCEPTED, reasons.CONFIG_RESOLVED, reasons.GPU_SHARING_SUPPORTED)
    return [
        f"{one.type}: {one.reason}: {one.message}"
        for one in decision.status.conditions
        if one.type in blocking and one.status == "False"
    ]


def summary_lines(decision: Decision, found: Iterable[Change]) -> Iterator[str]:
    """Yield what would happen: pods and their GPUs first, then the objects."""
    status = decision.status
    yield f"revision {status.revision.update or '-'}, {status.gpus} GPUs"
    yield f"GPU sharing: {status.gpu_sharing.mode or '-'} ({status.gpu_sharing.reason or '-'})"
    for group in status.groups:
        processes = ", ".join(group.processes)
        yield f"  {group.name}: {group.desired} x {group.sharing} [{processes}] {group.revision}"
    listed = list(found)
    if not listed:
        yield "nothing to change"
    for one in listed:
        yield f"{one.verb} {one.id.kind} {one.id.name}"


def diff_lines(one: Change) -> Iterator[str]:
    """Yield a unified diff of one object as YAML."""
    name = f"{one.id.kind}/{one.id.name}"
    yield from unified_diff(
        _yaml(one.before), _yaml(one.after), f"live/{name}", f"planned/{name}", lineterm=""
    )


def _changes(decision: Decision, live: Mapping[ObjectId, Manifest]) -> Iterator[Change]:
    for action in decision.actions:
        match action:
            case Apply(manifest=manifest):
                before = live.get(action.id)
                verb = CREATE if before is None else UPDATE
                yield Change(verb, action.id, before, manifest)
            case Delete(id=one):
                yield Change(DELETE, one, live.get(one), None)


def _yaml(manifest: Manifest | None) -> list[str]:
    if manifest is None:
        return []
    shown: dict[str, Any] = {key: value for key, value in manifest.items() if key != "status"}
    metadata = shown.get("metadata") or {}
    shown["metadata"] = {key: value for key, value in metadata.items() if key not in _NOISE}
    return to_yaml(shown, sort_keys=True).splitlines()
