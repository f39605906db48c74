"""What the facts of one decision say about each condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omni_config.errors import PlanError, Problem
from omni_operator.names import LABEL_REVISION, LABEL_SHAPE, gateway_name
from omni_operator.plan.cluster_state import gateway_pods, labels_of, pod_state, stage_pods
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.progress import Progress, RolloutPhase
from omni_operator.plan.revisions import ShapeTarget
from omni_operator.plan.sharing import Refusal
from omni_operator.plan.world import ObjectId, Observed
from omni_operator.render.optional import missing_kinds
from omni_operator.render.view import PipelineView
from omni_operator.status import reasons
from omni_operator.status.conditions import Finding, fails, holds, unknown
from omni_operator.status.pods import why_not_serving
from omni_operator.status.rows import attached

MAX_PROBLEMS = 5
MAX_PODS = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything conditions are derived from."""

    view: PipelineView
    targets: tuple[ShapeTarget, ...]
    fleet: Fleet
    progress: Progress
    observed: Observed


def rejected(problems: Iterable[Problem]) -> list[Finding]:
    """Return the findings of an object whose shape is wrong."""
    return [fails(reasons.ACCEPTED, reasons.INVALID_OBJECT, problem_text(problems))]


def unresolved(error: Exception, problems: tuple[Problem, ...]) -> list[Finding]:
    """Return the findings of a configuration that cannot work."""
    missing = all(one.path.startswith("spec.profileRefs") for one in problems)
    reason = reasons.PROFILE_MISSING if missing and problems else reasons.INVALID_CONFIG
    if isinstance(error, PlanError):
        reason = reasons.PLAN_REFUSED
    return [
        holds(reasons.ACCEPTED, reasons.AS_EXPECTED),
        fails(reasons.CONFIG_RESOLVED, reason, problem_text(problems)),
    ]


def refused(refusals: Iterable[Refusal]) -> list[Finding]:
    """Return the findings of a sharing mode that the cluster cannot give."""
    found = list(refusals)
    message = "; ".join(one.message for one in found)
    return [
        holds(reasons.ACCEPTED, reasons.AS_EXPECTED),
        holds(reasons.CONFIG_RESOLVED, reasons.AS_EXPECTED),
        fails(reasons.GPU_SHARING_SUPPORTED, found[0].reason, message),
    ]


def problem_text(problems: Iterable[Problem]) -> str:
    """Return problems as one message, the first ones in full."""
    found = list(problems)
    texts = [_problem(one) for one in found[:MAX_PROBLEMS]]
    more = len(found) - MAX_PROBLEMS
    return "\n".join([*texts, f"and {more} more"] if more > 0 else texts)


def still_serving(observed: Observed, fleet: Fleet) -> list[Finding]:
    """Return what holds of the pods while the object itself is not usable."""
    routable = _routable(observed, fleet)
    old = (
        fails(reasons.DEGRADED, reasons.AS_EXPECTED, "nothing runs yet")
        if not fleet.observed.workloads
        else holds(
            reasons.DEGRADED,
            reasons.OLD_REVISION_SERVES,
            "the object cannot be used as it is; the last good revision goes on serving",
        )
    )
    return [routable, old]


def findings(facts: Facts) -> list[Finding]:
    """Return the findings of an object that is carried out."""
    found = [
        _accepted(facts.view),
        _resolved(facts.view),
        _sharing(facts),
        _groups(facts),
        _gateway(facts),
        _routable(facts.observed, facts.fleet),
        _progressing(facts.progress),
        _degraded(facts),
    ]
    return [*found, ready(found)]


def ready(found: Iterable[Finding]) -> Finding:
    """Return Ready: true when nothing that it sums up fails; else the first thing that does."""
    summed = {one.type: one for one in found}
    for type_ in reasons.ORDER[: reasons.ORDER.index(reasons.PROGRESSING)]:
        one = summed.get(type_)
        if one is None:
            return unknown(reasons.READY, reasons.UNKNOWN)
        if not one.holds:
            return Finding(reasons.READY, "False", one.reason, one.message)
    moving = summed[reasons.PROGRESSING]
    if moving.reason != reasons.ROLLOUT_COMPLETE:
        return fails(reasons.READY, moving.reason, moving.message)
    return holds(reasons.READY, reasons.AS_EXPECTED, "the wanted revision serves")


def _problem(problem: Problem) -> str:
    where = problem.path if problem.where in ("", problem.path) else problem.where
    repeated = problem.message.startswith(where)
    text = problem.message if repeated or not where else f"{where}: {problem.message}"
    if not problem.suggestions:
        return text
    return f"{text} (did you mean {', '.join(problem.suggestions)}?)"


def _accepted(view: PipelineView) -> Finding:
    missing = missing_kinds(view)
    if not missing:
        return holds(reasons.ACCEPTED, reasons.AS_EXPECTED)
    message = "; ".join(f"{field} needs the kind {kind}" for kind, field in missing.items())
    text = f"{message}, which this cluster does not have"
    return fails(reasons.ACCEPTED, reasons.KIND_MISSING, text)


def _resolved(view: PipelineView) -> Finding:
    warnings = "; ".join(view.resolved.warnings)
    return holds(reasons.CONFIG_RESOLVED, reasons.AS_EXPECTED, warnings)


def _sharing(facts: Facts) -> Finding:
    type_ = reasons.GPU_SHARING_SUPPORTED
    for target in facts.targets:
        counts = attached(target.shape, facts.observed)
        if counts is not None and counts[0] < counts[1]:
            message = (
                f"{counts[0]} of {counts[1]} processes of {target.shape.name} are attached to "
                "their MPS daemon; the others take turns on the GPU"
            )
            return fails(type_, reasons.MPS_NOT_ATTACHED, message)
    sharing = facts.view.pods.sharing
    modes = dict.fromkeys(one.mode.value for one in sharing.values() if one.mode != "Exclusive")
    message = "; ".join(dict.fromkeys(one.reason for one in sharing.values()))
    return holds(type_, next(iter(modes), reasons.NOT_SHARED), message)


def _groups(facts: Facts) -> Finding:
    type_ = reasons.GROUPS_READY
    waiting = [one for one in facts.targets if _short(facts, one)]
    if not waiting:
        return holds(type_, reasons.AS_EXPECTED, "every group has its pods, routable")
    names = ", ".join(one.shape.name for one in waiting)
    why = list(_why_waiting(facts, waiting))
    if not why:
        return fails(type_, reasons.PODS_MISSING, f"waiting for pods of {names}")
    commonest = Counter(reason for reason, _ in why).most_common(1)[0][0]
    told = [text for reason, text in why if reason == commonest]
    more = f" and {len(told) - MAX_PODS} more" if len(told) > MAX_PODS else ""
    return fails(type_, commonest, f"waiting for {names}: {'; '.join(told[:MAX_PODS])}{more}")


def _short(facts: Facts, target: ShapeTarget) -> bool:
    workload, goal = facts.fleet.target(target.shape.name), facts.fleet.wanted(target.shape.name)
    serving = 0 if workload is None else sum(pod.serves for pod in workload.pods)
    return goal is not None and serving < goal.replicas


def _why_waiting(facts: Facts, waiting: list[ShapeTarget]) -> Iterator[tuple[str, str]]:
    wanted = {(one.shape.name, one.revision) for one in waiting}
    for pod in stage_pods(facts.observed):
        labels = labels_of(pod)
        state = pod_state(pod, facts.observed.gateways)
        of_these = (labels[LABEL_SHAPE], labels.get(LABEL_REVISION, "")) in wanted
        if of_these and not state.serves and not state.terminating:
            yield why_not_serving(pod, state, facts.fleet.now)


def _gateway(facts: Facts) -> Finding:
    type_ = reasons.GATEWAY_READY
    wanted = facts.view.spec.gateway.replicas
    name = gateway_name(facts.view.name)
    live = facts.observed.objects.get(ObjectId("Deployment", name), {})
    count = live.get("status", {}).get("readyReplicas", 0)
    if count < wanted:
        pods = [pod["metadata"]["name"] for pod in gateway_pods(facts.observed)]
        message = f"{count} of {wanted} gateways are ready ({', '.join(pods) or 'no pod yet'})"
        return fails(type_, reasons.GATEWAYS_NOT_READY, message)
    seen = facts.observed.gateways
    if seen is None or not seen.whole:
        message = "gateways run but the operator cannot ask all of them: nothing is drained"
        return unknown(type_, reasons.GATEWAYS_UNREACHABLE, message)
    return holds(type_, reasons.AS_EXPECTED, f"{count} of {wanted} gateways are ready")


def _routable(observed: Observed, fleet: Fleet) -> Finding:
    complete = [one.name for one in fleet.revisions if fleet.paths.complete(one)]
    if complete:
        message = f"requests are served by revision {', '.join(reversed(complete))}"
        return holds(reasons.ROUTABLE, reasons.AS_EXPECTED, message)
    if observed.gateways is None and any(one.living for one in fleet.observed.workloads):
        message = "no gateway answers, so nobody knows"
        return unknown(reasons.ROUTABLE, reasons.GATEWAYS_UNREACHABLE, message)
    serving = fleet.paths.serving_by_shape()
    missing = [one.shape for one in fleet.goal.shapes if not serving.get(one.shape)]
    lacking = f"; nothing serves {', '.join(missing)}" if missing else ""
    message = f"no revision has a routable pod of every group{lacking}"
    return fails(reasons.ROUTABLE, reasons.NO_COMPLETE_PATH, message)


def _progressing(progress: Progress) -> Finding:
    type_, names = reasons.PROGRESSING, ", ".join(progress.waiting)
    match progress.phase:
        case RolloutPhase.COMPLETE:
            return fails(type_, reasons.ROLLOUT_COMPLETE, "every pod is as wanted")
        case RolloutPhase.PAUSED:
            return fails(type_, reasons.PAUSED, f"spec.rollout.paused holds back {names}")
        case RolloutPhase.STALLED if progress.lacks_capacity:
            message = f"no node has room for {names}"
            return fails(type_, reasons.INSUFFICIENT_CAPACITY, message)
        case RolloutPhase.STALLED:
            return fails(type_, reasons.ROLLOUT_STALLED, f"no progress on {names}")
        case RolloutPhase.PROGRESSING:
            reason = reasons.ROLLOUT_IN_PROGRESS
            return holds(type_, reason, f"on the way: {names}")


def _degraded(facts: Facts) -> Finding:
    type_ = reasons.DEGRADED
    if facts.progress.overdue:
        names = ", ".join(dict.fromkeys(facts.progress.overdue))
        return holds(type_, reasons.DRAIN_TIMED_OUT, f"requests outlived the drain of {names}")
    if facts.progress.phase is RolloutPhase.STALLED:
        moving = _progressing(facts.progress)
        return holds(type_, moving.reason, moving.message)
    groups = _groups(facts)
    if groups.reason in (reasons.CRASH_LOOP, reasons.IMAGE_PULL, reasons.INSUFFICIENT_CAPACITY):
        return holds(type_, groups.reason, groups.message)
    return fails(type_, reasons.AS_EXPECTED, "")
