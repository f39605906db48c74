"""The one entry: from an object and the live state to actions, status and events.

It is run for every change and for nothing at all, over and over. When all is as wanted it gives no
action and the status it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omni_config.errors import ConfigError
from omni_config.registry import Registry
from omni_models.catalog import registry as installed_pipelines
from omni_operator.api.pipeline import OmniGroupStatus, read_pipeline
from omni_operator.api.status import OmniPipelineStatus, RevisionStatus, SharingStatus
from omni_operator.plan import actions as steps
from omni_operator.plan.carrying_out import CarryingOut
from omni_operator.plan.cluster_state import observed_fleet
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import Goal, ShapeGoal
from omni_operator.plan.observed import KnownRevision, ObservedFleet
from omni_operator.plan.policy import StepLimits
from omni_operator.plan.progress import progress
from omni_operator.plan.rollout import readiness_steps
from omni_operator.plan.shapes import PodPlan, plan_pods
from omni_operator.plan.world import Decision, Observed, World
from omni_operator.plan.writes import pod_writes
from omni_operator.render.optional import group_selector, omni_group_name
from omni_operator.render.view import PipelineView
from omni_operator.resolution import config_status, resolve_pipeline
from omni_operator.status.conditions import Finding, conditions
from omni_operator.status.events import events
from omni_operator.status.findings import (
    Facts,
    findings,
    ready,
    refused,
    rejected,
    still_serving,
    unresolved,
)
from omni_operator.status.rows import group_rows, groups_ready, model_status, scale_status


def decide(
    manifest: Mapping[str, Any],
    observed: Observed,
    world: World,
    registry: Registry | None = None,
) -> Decision:
    """Return what to do about one object; nothing when all is as wanted.

    Args:
        manifest: the object as the API server has it, managedFields included.
        registry: pipelines that objects may name; the installed ones when null.
    """
    try:
        pipeline = read_pipeline(manifest)
    except ConfigError as error:
        return _keep_serving(manifest, observed, world, rejected(error.problems))
    try:
        resolved = resolve_pipeline(pipeline, observed.profiles, registry or installed_pipelines())
        pods = plan_pods(resolved, world.cluster)
    except ConfigError as error:
        found = unresolved(error, error.problems)
        return _keep_serving(manifest, observed, world, found)
    if pods.refusals:
        return _keep_serving(manifest, observed, world, refused(pods.refusals))
    view = PipelineView(resolved, pods, world.cluster, world.release)
    return _carry_out(CarryingOut(view, observed, world.now))


def _carry_out(work: CarryingOut) -> Decision:
    pipeline, actions = work.view.pipeline, work.actions()
    status = _status(work)
    waits = [step.seconds for step in work.steps if isinstance(step, steps.Wait)]
    return Decision(
        actions=actions,
        status=status,
        events=events(pipeline.status, status, actions),
        group_status=_group_status(work),
        requeue_seconds=min(waits, default=None),
    )


def _status(work: CarryingOut) -> OmniPipelineStatus:
    view, before = work.view, work.view.pipeline.status
    facts = Facts(view, work.targets, work.fleet, progress(work.fleet), work.observed)
    rows = group_rows(work.targets, work.fleet, work.observed)
    generation = view.pipeline.generation
    return OmniPipelineStatus(
        observed_generation=generation,
        model=model_status(view, work.observed),
        groups_ready=groups_ready(rows),
        gpus=work.gpus,
        revision=RevisionStatus(
            current=_current(work.fleet.revisions, before),
            update=work.goal.revision,
            render_version=view.release.render_version,
        ),
        gpu_sharing=_sharing(view.pods),
        groups=rows,
        config=config_status(view.resolved, view.config_map),
        scale=scale_status(view, work.fleet),
        gateway_replicas=work.ready_gateways,
        conditions=conditions(findings(facts), before, generation, work.now),
    )


def _current(revisions: Iterable[KnownRevision], before: OmniPipelineStatus) -> str:
    """Return the newest revision that ever served."""
    served = [one.name for one in revisions if one.served]
    return served[-1] if served else before.revision.current


def _sharing(pods: PodPlan) -> SharingStatus:
    modes = dict.fromkeys(one.mode.value for one in pods.sharing.values())
    reasons = dict.fromkeys(one.reason for one in pods.sharing.values())
    return SharingStatus(mode=", ".join(modes), reason="; ".join(reasons))


def _group_status(work: CarryingOut) -> dict[str, OmniGroupStatus]:
    return {
        omni_group_name(work.view, shape): OmniGroupStatus(
            replicas=sum(len(one.living) for one in work.fleet.observed.of_shape(shape.name)),
            selector=group_selector(work.view, shape),
        )
        for shape in work.view.pods.shapes
        if shape.settings.scaling.is_dynamic
    }


def _keep_serving(
    manifest: Mapping[str, Any], observed: Observed, world: World, found: list[Finding]
) -> Decision:
    """Change nothing that runs, and say what is wrong with the object."""
    metadata = manifest.get("metadata") or {}
    seen = observed_fleet(str(metadata.get("name", "")), observed)
    fleet = _as_it_runs(seen, world.now)
    before = OmniPipelineStatus.model_validate(manifest.get("status") or {})
    generation = int(metadata.get("generation", 0))
    found = [*found, *still_serving(observed, fleet)]
    status = before.model_copy(
        update={
            "observed_generation": generation,
            "conditions": conditions([*found, ready(found)], before, generation, world.now),
        }
    )
    actions = tuple(pod_writes(readiness_steps(seen), observed, world.now))
    return Decision(actions, status, events(before, status, actions))


def _as_it_runs(seen: ObservedFleet, now: float) -> Fleet:
    """Return the fleet with itself as goal."""
    newest = seen.revisions[-1] if seen.revisions else KnownRevision("", {}, now)
    limits = StepLimits(0, 0)
    shapes = tuple(
        ShapeGoal(shape, revision, 1, limits) for shape, revision in newest.shapes.items()
    )
    return Fleet(Goal(newest.name, shapes), seen, seen.revisions or (newest,), now)
