"""Every owned object but the Deployments of stages, whose replicas a rollout decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omni_operator.plan.capabilities import SCALED_OBJECT
from omni_operator.plan.observed import KnownRevision
from omni_operator.plan.revisions import ShapeTarget
from omni_operator.plan.sharing import PodMode
from omni_operator.render.config_maps import config_map, routes_map
from omni_operator.render.gateway import gateway_deployment
from omni_operator.render.gpus import claim_manifest, claim_spec
from omni_operator.render.manifest import Manifest
from omni_operator.render.optional import (
    certificate,
    http_route,
    model_cache_claim,
    pod_monitor,
    scale_objects,
)
from omni_operator.render.policies import disruption_budgets, network_policies, service_account
from omni_operator.render.services import client_service, control_service, group_services
from omni_operator.render.view import PipelineView


def supporting_objects(
    view: PipelineView,
    targets: Iterable[ShapeTarget],
    revisions: Iterable[KnownRevision],
    live_gateway: Manifest | None,
    scaled: Mapping[str, int],
) -> Iterator[Manifest]:
    """Yield the objects in the order in which they are needed.

    Args:
        revisions: those that gateways may route to.
        live_gateway: the gateway's Deployment as it is.
        scaled: replicas that live OmniGroups ask for, by shape.
    """
    targets = tuple(targets)
    yield service_account(view)
    yield from _config_maps(view, targets)
    yield routes_map(view, revisions)
    yield from _one(model_cache_claim(view))
    yield from _one(certificate(view))
    yield from _claims(view, targets)
    yield from network_policies(view)
    yield control_service(view)
    yield client_service(view)
    yield from group_services(view)
    yield gateway_deployment(view, live_gateway)
    yield from disruption_budgets(view)
    yield from (
        one
        for one in scale_objects(view, scaled)
        if one["kind"] != "ScaledObject" or SCALED_OBJECT in view.cluster.kinds
    )
    yield from _one(pod_monitor(view))
    yield from _one(http_route(view))


def _config_maps(view: PipelineView, targets: tuple[ShapeTarget, ...]) -> Iterator[Manifest]:
    """Yield the ConfigMap of this configuration, and older ones that unchanged pods mount.

    What those pods read of an older one is equal in this one, or they would have changed.
    """
    names = [view.config_map, *(target.pins.config_map for target in targets)]
    for name in dict.fromkeys(names):
        yield config_map(view, name)


def _claims(view: PipelineView, targets: tuple[ShapeTarget, ...]) -> Iterator[Manifest]:
    seen: set[str] = set()
    for target in targets:
        shape = target.shape
        if not shape.mode.uses_claims or target.claim in seen:
            continue
        seen.add(target.claim)
        spec = claim_spec(view, claim_cards(view, target))
        yield claim_manifest(view.pipeline, shape.mode, target.claim, shape.card_set, spec)


def claim_cards(view: PipelineView, target: ShapeTarget) -> tuple[int, ...]:
    """Return the cards that a shape's claim stands for."""
    on_claim = [one for one in view.pods.shapes if one.card_set == target.shape.card_set]
    return tuple(sorted({gpu for one in on_claim for gpu in one.gpu_ids}))


def gpus_of(view: PipelineView, target: ShapeTarget) -> int:
    """Return the whole GPUs of one pod; of a shared claim, those of the claim."""
    if target.shape.mode is PodMode.SHARED_CLAIM:
        return len(claim_cards(view, target))
    return 0 if target.shape.mode is PodMode.DEVICE_PLUGIN else target.shape.gpus


def _one(found: Manifest | None) -> Iterator[Manifest]:
    if found is not None:
        yield found
