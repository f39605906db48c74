"""What carrying an object out takes: its goal, its Deployments, everything it owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from omni_operator.names import LABEL_REVISION, LABEL_SHAPE, SCALE_KIND, gateway_name
from omni_operator.plan import actions as steps
from omni_operator.plan.cluster_state import (
    labels_of,
    live_revisions,
    observed_fleet,
    stage_deployments,
)
from omni_operator.plan.fleet import Fleet
from omni_operator.plan.goal import Goal, ShapeGoal
from omni_operator.plan.observed import ObservedFleet
from omni_operator.plan.policy import step_limits
from omni_operator.plan.revisions import ShapeTarget, pipeline_revision, shape_targets
from omni_operator.plan.rollout import decide, known_revisions
from omni_operator.plan.sharing import PodMode
from omni_operator.plan.world import Action, Delete, ObjectId, Observed
from omni_operator.plan.writes import (
    drain_repairs,
    identity,
    object_writes,
    pod_writes,
    prunes,
    rescaled,
    routes_notices,
)
from omni_operator.render.manifest import Manifest
from omni_operator.render.objects import gpus_of, supporting_objects
from omni_operator.render.optional import omni_group_name
from omni_operator.render.view import PipelineView
from omni_operator.render.workload import stage_deployment


@dataclass(frozen=True)
class CarryingOut:
    """One valid object against the live state.

    Attributes:
        now: Unix seconds.
    """

    view: PipelineView
    observed: Observed
    now: float

    @cached_property
    def targets(self) -> tuple[ShapeTarget, ...]:
        """The wanted revision of every pod shape."""
        return shape_targets(self.view, live_revisions(self.observed))

    @cached_property
    def goal(self) -> Goal:
        """What the rollout is to reach."""
        rollout = self.view.spec.rollout
        return Goal(
            revision=pipeline_revision(self.targets),
            shapes=tuple(self._shape_goal(target) for target in self.targets),
            surge_free=rollout.type == "SurgeFree",
            paused=rollout.paused,
            history_limit=rollout.history_limit,
            progress_deadline=rollout.progress_deadline_seconds,
            groups={unit.name: one.name for one in self.view.pods.shapes for unit in one.units},
        )

    @cached_property
    def fleet(self) -> Fleet:
        """Live pods against the goal."""
        seen = self._seen
        return Fleet(self.goal, seen, known_revisions(self.goal, seen, self.now), self.now)

    @cached_property
    def steps(self) -> tuple[steps.RolloutAction, ...]:
        """The steps that the rollout takes now."""
        return decide(self.goal, self._seen, self.now)

    @property
    def gpus(self) -> int:
        """Whole GPUs that the wanted state asks for; a shared claim counts once."""
        claims = {one.claim: one.gpus for one in self.goal.shapes if one.claim and one.replicas}
        own = (one.gpus * one.replicas for one in self.goal.shapes if not one.claim)
        return sum(own) + sum(claims.values())

    @cached_property
    def scaled(self) -> Mapping[str, int]:
        """Replicas that live OmniGroups ask for, by shape."""
        found: dict[str, int] = {}
        for shape in self.view.pods.shapes:
            name = omni_group_name(self.view, shape)
            live = self.observed.objects.get(ObjectId(SCALE_KIND, name))
            if live is not None and shape.settings.scaling.is_dynamic:
                found[shape.name] = live.get("spec", {}).get("replicas", shape.replicas)
        return found

    @cached_property
    def wanted(self) -> tuple[Manifest, ...]:
        """Every object that should exist, in the order in which they are needed."""
        supporting = supporting_objects(
            self.view, self.targets, self.fleet.revisions, self._gateway, self.scaled
        )
        return (*supporting, *self._target_deployments())

    @property
    def ready_gateways(self) -> int:
        """Gateway pods that are ready."""
        count: int = (self._gateway or {}).get("status", {}).get("readyReplicas", 0)
        return count

    def actions(self) -> tuple[Action, ...]:
        """Return the writes of this decision, in order."""
        owner = self.view.pipeline.uid
        return (
            *prunes(self.wanted, self.observed, owner),
            *object_writes(self.wanted, self.observed),
            *object_writes(self._rescaled(), self.observed),
            *pod_writes(self.steps, self.observed, self.now),
            *routes_notices(self.view.name, self.observed),
            *self._repairs(),
            *self._deleted_revisions(),
        )

    @property
    def _gateway(self) -> Manifest | None:
        return self.observed.objects.get(ObjectId("Deployment", gateway_name(self.view.name)))

    @cached_property
    def _seen(self) -> ObservedFleet:
        return observed_fleet(self.view.name, self.observed)

    @cached_property
    def _scales(self) -> Mapping[tuple[str, str], int]:
        taken = (step for step in self.steps if isinstance(step, steps.Scale))
        return {(step.shape, step.revision): step.replicas for step in taken}

    def _shape_goal(self, target: ShapeTarget) -> ShapeGoal:
        shape, settings = target.shape, target.shape.settings
        replicas = self.scaled.get(shape.name, shape.replicas)
        return ShapeGoal(
            shape=shape.name,
            revision=target.revision,
            replicas=replicas,
            limits=step_limits(self.view.spec.rollout, settings.rollout, replicas),
            gpus=gpus_of(self.view, target),
            claim=target.claim if shape.mode is PodMode.SHARED_CLAIM else "",
            drain_seconds=settings.drain.timeout_seconds,
        )

    def _target_deployments(self) -> Iterator[Manifest]:
        """Yield the Deployments of wanted revisions that exist or should."""
        for target in self.targets:
            key = (target.shape.name, target.revision)
            live = self.fleet.target(target.shape.name)
            if live is None and key not in self._scales:
                continue
            replicas = self._scales.get(key, 0 if live is None else live.replicas)
            yield stage_deployment(self.view, target, replicas, gpus_of(self.view, target))

    def _rescaled(self) -> Iterator[Manifest]:
        """Yield the Deployments of old revisions whose replicas change."""
        wanted = {identity(one) for one in self.wanted}
        for live in stage_deployments(self.observed):
            labels = labels_of(live)
            count = self._scales.get((labels[LABEL_SHAPE], labels.get(LABEL_REVISION, "")))
            if count is not None and identity(live) not in wanted:
                yield rescaled(live, count)

    def _repairs(self) -> Iterator[Action]:
        """Yield drain repairs of pods that this decision does not drain or take back anyway."""
        touched = {
            step.uid for step in self.steps if isinstance(step, steps.Drain | steps.CancelDrain)
        }
        for action in drain_repairs(self.observed):
            if getattr(action, "uid", None) not in touched:
                yield action

    def _deleted_revisions(self) -> Iterator[Delete]:
        for step in self.steps:
            if isinstance(step, steps.DeleteRevision):
                one = ObjectId("Deployment", step.workload)
                uid = self.observed.objects[one]["metadata"]["uid"]
                yield Delete(one, uid, "beyond spec.rollout.historyLimit")
