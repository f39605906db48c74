"""From the steps of a rollout and the wanted objects to writes of the cluster."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping

from omni_operator.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_CONFIG_MAP,
    ANNOTATION_DELETION_COST,
    ANNOTATION_DRAIN_STARTED,
    ANNOTATION_MANIFEST_HASH,
    ANNOTATION_ROUTES,
    HEALTH_PORT,
    routes_name,
    short_hash,
)
from omni_operator.plan import actions as steps
from omni_operator.plan.cluster_state import (
    COST_DONE,
    COST_DRAINING,
    annotations_of,
    created_of,
    gateway_pods,
    stage_deployments,
    stage_pods,
)
from omni_operator.plan.comparison import differences, is_drift
from omni_operator.plan.world import (
    Action,
    Annotate,
    Apply,
    CancelDrain,
    Delete,
    ObjectId,
    Observed,
    SetRoutable,
    StartDrain,
)
from omni_operator.render.config_maps import read_routes
from omni_operator.render.manifest import Manifest, canonical

_KEPT_KINDS = ("Deployment", "Secret", "PersistentVolumeClaim")
"""Not pruned here: rollouts delete Deployments, certificates have their own life, and a cache of
downloaded models outlives its pipeline."""
CREATION_SECONDS = 1.0
"""Kubernetes tells the creation of an object in whole seconds."""
_LIVE_ONLY = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


def object_writes(wanted: Iterable[Manifest], observed: Observed) -> Iterator[Apply]:
    """Yield an apply for every object that is missing or differs from what is wanted."""
    for one in wanted:
        live = observed.objects.get(identity(one))
        if live is None:
            yield Apply(one)
            continue
        one = _keeping_immutable(one, live)
        different = differences(one, live)
        if different:
            yield Apply(one, different if is_drift(one, live) else ())


def _keeping_immutable(one: Manifest, live: Manifest) -> Manifest:
    """Return a manifest with the data that a live immutable object has: nobody can change it.

    Old ConfigMaps are such objects: unchanged pods still mount them, and their settings cannot be
    rendered any more.
    """
    if not live.get("immutable"):
        return one
    kept = {**one, "data": live.get("data")}
    notes = dict(one["metadata"]["annotations"])
    notes[ANNOTATION_MANIFEST_HASH] = annotations_of(live).get(ANNOTATION_MANIFEST_HASH, "")
    kept["metadata"] = {**one["metadata"], "annotations": notes}
    return kept


def prunes(wanted: Iterable[Manifest], observed: Observed, owner: str) -> Iterator[Delete]:
    """Yield a delete for every owned object that is neither wanted nor used by a running revision.

    Args:
        owner: UID of the pipeline; an object of another owner is never touched.
    """
    needed = {identity(one) for one in wanted} | set(_in_use(observed))
    for one, live in observed.objects.items():
        if one in needed or one.kind in _KEPT_KINDS or not _is_owned(live, owner):
            continue
        yield Delete(one, live["metadata"]["uid"], "nothing needs it any more")


def rescaled(live: Manifest, replicas: int) -> Manifest:
    """Return a live Deployment with other replicas, all else as it is.

    An old revision cannot be rendered any more: the settings it was rendered from are gone. Its
    hash becomes another, for it is we who change it, now and when it is wanted again.
    """
    one = copy.deepcopy(live)
    one.pop("status", None)
    for key in _LIVE_ONLY:
        one["metadata"].pop(key, None)
    one["spec"]["replicas"] = replicas
    notes = one["metadata"].setdefault("annotations", {})
    for key in ("deployment.kubernetes.io/revision", ANNOTATION_MANIFEST_HASH):
        notes.pop(key, None)
    notes[ANNOTATION_MANIFEST_HASH] = short_hash(canonical(one))
    return one


def pod_writes(
    taken: Iterable[steps.RolloutAction], observed: Observed, now: float
) -> Iterator[Action]:
    """Yield the writes of the steps that concern single pods."""
    pods = {pod["metadata"].get("uid", ""): pod for pod in stage_pods(observed)}
    for step in taken:
        match step:
            case steps.Drain(pod=name, uid=uid, reason=reason):
                yield Annotate(name, uid, _drain_marks(now))
                yield StartDrain(name, uid, _ip(pods[uid]), health_ports(pods[uid]), reason)
            case steps.Release(pod=name, uid=uid):
                yield Annotate(name, uid, {ANNOTATION_DELETION_COST: COST_DONE})
            case steps.CancelDrain(pod=name, uid=uid):
                yield Annotate(name, uid, dict.fromkeys(_drain_marks(now)))
                yield CancelDrain(name, uid, _ip(pods[uid]), health_ports(pods[uid]))
            case steps.SetReadinessGate(pod=name, uid=uid, routable=routable, reason=reason):
                yield SetRoutable(name, uid, routable, reason)


def drain_repairs(observed: Observed) -> Iterator[Action]:
    """Yield what brings a pod in line with its mark: a drain that it has not heard of, or one that
    was taken back."""
    if observed.gateways is None:
        return
    for pod in stage_pods(observed):
        seen = observed.gateways.pods.get(_ip(pod))
        if seen is None or "deletionTimestamp" in pod["metadata"]:
            continue
        name, uid = pod["metadata"]["name"], pod["metadata"].get("uid", "")
        marked = ANNOTATION_DRAIN_STARTED in annotations_of(pod)
        if marked and not seen.draining:
            yield StartDrain(name, uid, _ip(pod), health_ports(pod), "drain goes on")
        elif seen.draining and not marked:
            yield CancelDrain(name, uid, _ip(pod), health_ports(pod))


def routes_notices(pipeline: str, observed: Observed) -> Iterator[Annotate]:
    """Yield what makes gateway pods read the routes that are there now.

    A pod reads those that are there when it starts, so one that is not older than the newest
    revision needs no telling.
    """
    live = observed.objects.get(ObjectId("ConfigMap", routes_name(pipeline)))
    revisions = read_routes(live)
    if not revisions:
        return
    notes = {ANNOTATION_ROUTES: short_hash(canonical([one.shapes for one in revisions]))}
    newest = max(one.created for one in revisions)
    for pod in gateway_pods(observed):
        metadata, known = pod["metadata"], annotations_of(pod).get(ANNOTATION_ROUTES)
        is_fresh = known is None and newest <= created_of(pod) + CREATION_SECONDS
        if "deletionTimestamp" in metadata or is_fresh or known == notes[ANNOTATION_ROUTES]:
            continue
        yield Annotate(metadata["name"], metadata.get("uid", ""), notes)


def identity(one: Manifest) -> ObjectId:
    """Return the identity of an object of the pipeline's namespace."""
    return ObjectId(one["kind"], one["metadata"]["name"])


def health_ports(pod: Manifest) -> tuple[int, ...]:
    """Return the health port of each container of a stage pod."""
    count = len(pod.get("spec", {}).get("containers") or [{}])
    return tuple(HEALTH_PORT + index for index in range(count))


def _drain_marks(now: float) -> Mapping[str, str]:
    return {ANNOTATION_DRAIN_STARTED: f"{now:.3f}", ANNOTATION_DELETION_COST: COST_DRAINING}


def _ip(pod: Manifest) -> str:
    address: str = pod.get("status", {}).get("podIP", "")
    return address


def _in_use(observed: Observed) -> Iterator[ObjectId]:
    """Yield what Deployments of any revision mount or claim."""
    for one in stage_deployments(observed):
        notes = annotations_of(one)
        yield ObjectId("ConfigMap", notes.get(ANNOTATION_CONFIG_MAP, ""))
        for kind in ("ResourceClaim", "ResourceClaimTemplate"):
            yield ObjectId(kind, notes.get(ANNOTATION_CLAIM, ""))


def _is_owned(live: Manifest, owner: str) -> bool:
    references = live["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == owner for one in references)
