"""`kubectl omni status`: a pipeline as a tree of pod shapes and pods, and the edges of stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omni_operator.api.status import GroupStatus, OmniPipelineStatus
from omni_operator.names import LABEL_REVISION, LABEL_SHAPE
from omni_operator.plan.cluster_state import gateway_pods, labels_of, pod_state, stage_pods
from omni_operator.plan.world import Observed
from omni_operator.render.manifest import Manifest
from omni_operator.status import reasons
from omni_operator.status.pods import why_not_serving
from omni_wire.v1 import gateway_pb2

_SHOWN = (reasons.READY, reasons.ROUTABLE, reasons.PROGRESSING, reasons.DEGRADED)


def status_lines(
    name: str, status: OmniPipelineStatus, observed: Observed, now: float
) -> Iterator[str]:
    """Yield the tree of one pipeline.

    Args:
        observed: its pods, and what gateways say of them where they could be asked.
    """
    yield f"{name}  revision {status.revision.current or '-'}  groups {status.groups_ready or '-'}"
    for type_ in _SHOWN:
        one = status.condition(type_)
        if one is not None:
            said = f"  {one.message}" if one.message else ""
            yield f"  {type_}: {one.status} ({one.reason}){said}"
    yield f"  gateway  {status.gateway_replicas} ready"
    for pod in gateway_pods(observed):
        yield f"    {pod['metadata']['name']}"
    for group in status.groups:
        yield _group_line(group)
        for pod in stage_pods(observed):
            if labels_of(pod)[LABEL_SHAPE] == group.name:
                yield f"    {_pod_line(pod, observed, now)}"


def edge_lines(answers: Sequence[gateway_pb2.GetPipelineResponse]) -> Iterator[str]:
    """Yield where each stage sends what it makes, as a gateway says it."""
    if not answers:
        yield "  edges  unknown: no gateway could be asked"
        return
    yield "  edges"
    for stage in answers[0].stages:
        targets = [f"{one} (stream)" for one in stage.stream_to]
        targets += [one for one in stage.next if one not in stage.stream_to]
        if stage.terminal:
            targets.append(f"client ({stage.modality})" if stage.modality else "client")
        yield f"    {stage.name} -> {', '.join(targets)}"


def _group_line(group: GroupStatus) -> str:
    words = [f"{group.routable}/{group.desired} routable"]
    if group.draining:
        words.append(f"{group.draining} draining")
    if group.mps:
        words.append(f"MPS {group.mps}")
    return f"  {group.name}  {group.sharing}  {', '.join(words)}  {group.revision}"


def _pod_line(pod: Manifest, observed: Observed, now: float) -> str:
    state = pod_state(pod, observed.gateways)
    revision = labels_of(pod).get(LABEL_REVISION, "-")
    head = f"{state.name}  {revision}"
    if state.terminating:
        return f"{head}  terminating"
    flight = "?" if state.in_flight is None else str(state.in_flight)
    if state.serves:
        return f"{head}  routable, {flight} in flight"
    reason, said = why_not_serving(pod, state, now)
    return f"{head}  {reason}: {said.removeprefix(state.name).strip(' :')}"
