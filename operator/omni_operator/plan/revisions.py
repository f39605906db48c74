"""Which revision of each pod shape the object asks for.

A revision is a hash of everything that changes its pods: the rendered template and the settings its
stages read. What is not part of it: how rollouts go, how many pods there are, and settings of
other groups. A running revision that still fits the object keeps what it was rendered with, so
neither an operator upgrade nor an edit elsewhere restarts its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from omni_config.schema import PipelineConfig, StageConfig
from omni_operator.names import short_hash
from omni_operator.plan.policy import has_surge
from omni_operator.plan.shapes import PodShape
from omni_operator.plan.sharing import PodMode
from omni_operator.render.gpus import claim_fits, claim_spec, new_claim
from omni_operator.render.manifest import Manifest, canonical
from omni_operator.render.pod import stage_pod
from omni_operator.render.view import Pins, PipelineView, image_fits

_PLACEHOLDER = "x"


@dataclass(frozen=True, slots=True)
class LiveRevision:
    """A revision of a pod shape that exists in the cluster.

    Attributes:
        claim: ResourceClaim or template of its pods, empty when they have none.
        created: Unix seconds.
    """

    shape: str
    revision: str
    pins: Pins
    claim: str
    created: float


@dataclass(frozen=True, slots=True)
class ShapeTarget:
    """A pod shape and the revision of it that the object asks for."""

    shape: PodShape
    revision: str
    pins: Pins
    claim: str


def shape_targets(view: PipelineView, live: Iterable[LiveRevision]) -> tuple[ShapeTarget, ...]:
    """Return the wanted revision of every pod shape, in the order of the plan."""
    newest_first = sorted(live, key=lambda one: -one.created)
    found = {
        target.shape.name: target
        for shapes in _rolling_together(view)
        for target in _set_targets(view, shapes, newest_first)
    }
    return tuple(found[shape.name] for shape in view.pods.shapes)


def pipeline_revision(targets: Iterable[ShapeTarget]) -> str:
    """Return the revision of the whole pipeline."""
    return short_hash(canonical({target.shape.name: target.revision for target in targets}))


def _rolling_together(view: PipelineView) -> list[tuple[PodShape, ...]]:
    """Return the shapes that change revision together.

    Pods on one shared claim do when they may surge: new ones beside the old would fill the card,
    so all of them move to another.
    """
    sets: dict[str, list[PodShape]] = {}
    for shape in view.pods.shapes:
        shared = shape.mode is PodMode.SHARED_CLAIM and _surges(view, shape)
        sets.setdefault(f"card {shape.card_set}" if shared else shape.name, []).append(shape)
    return [tuple(shapes) for shapes in sets.values()]


def _surges(view: PipelineView, shape: PodShape) -> bool:
    cards = [one for one in view.pods.shapes if one.card_set == shape.card_set]
    return all(has_surge(view.spec.rollout, one.settings.rollout) for one in cards)


def _set_targets(
    view: PipelineView, shapes: tuple[PodShape, ...], live: Sequence[LiveRevision]
) -> tuple[ShapeTarget, ...]:
    for claim in dict.fromkeys(one.claim for one in live if one.shape == shapes[0].name):
        kept = _kept(view, shapes, [one for one in live if one.claim == claim])
        if kept:
            return kept
    bases = {shape.name: _base(view, shape, view.stage_pins) for shape in shapes}
    return tuple(
        ShapeTarget(shape, _revision(bases[shape.name], claim), view.stage_pins, claim)
        for shape in shapes
        for claim in (_claim(view, shape, bases, live),)
    )


def _kept(
    view: PipelineView, shapes: tuple[PodShape, ...], live: Sequence[LiveRevision]
) -> tuple[ShapeTarget, ...]:
    """Return the running revisions of a set when each of them still fits, else nothing."""
    targets: list[ShapeTarget] = []
    for shape in shapes:
        fitting = next((one for one in live if _fits(view, shape, one)), None)
        if fitting is None:
            return ()
        targets.append(ShapeTarget(shape, fitting.revision, fitting.pins, fitting.claim))
    return tuple(targets)


def _fits(view: PipelineView, shape: PodShape, live: LiveRevision) -> bool:
    if live.shape != shape.name or not image_fits(view.spec.images.stage, live.pins):
        return False
    return _revision(_base(view, shape, live.pins), live.claim) == live.revision


def _base(view: PipelineView, shape: PodShape, pins: Pins) -> str:
    """Return a hash of what changes pods, but for the claim they name."""
    placeholder = Pins(pins.render_version, pins.image, _PLACEHOLDER)
    claim = _PLACEHOLDER if shape.mode.uses_claims else ""
    content = [
        pins.render_version,
        stage_pod(view, shape, _PLACEHOLDER, placeholder, claim),
        shape_settings(view, shape),
        claim_spec(view, shape.gpu_ids) if claim else None,
    ]
    return short_hash(canonical(content))


def shape_settings(view: PipelineView, shape: PodShape) -> Manifest:
    """Return every setting that processes of a shape read, of their own stages and above them."""
    config, runtime = view.config, view.resolved.runtime
    instances = [runtime.instance_by_name[name] for unit in shape.units for name in unit.stages]
    groups = [group for unit in shape.units for group in unit.groups]
    return {
        "config_cls": config.config_cls,
        "model_path": config.model_path,
        "env_defaults": config.env_defaults,
        "env_floor": dict(config.env_floor),
        "base_path": config.endpoints.base_path,
        "stages": {one.name: _stage_settings(config, one.config) for one in instances},
        "weight_share": {name: runtime.weight_share.environment.get(name) for name in groups},
    }


def _stage_settings(config: PipelineConfig, stage: StageConfig) -> Mapping[str, object]:
    return {
        "settings": stage.model_dump(mode="json"),
        "author": config.stage_factory_kwargs(stage),
        "env": config.stage_env(stage),
    }


def _claim(
    view: PipelineView, shape: PodShape, bases: Mapping[str, str], live: Sequence[LiveRevision]
) -> str:
    if not shape.mode.uses_claims:
        return ""
    cards = _claim_cards(view, shape)
    spec = claim_spec(view, cards)
    if shape.mode is PodMode.SIDECAR:
        return new_claim(view.name, shape.card_set, spec, "")
    if _surges(view, shape):
        return new_claim(view.name, shape.card_set, spec, canonical(bases))
    # Without surge the new pods take the place of the old ones on the device they had.
    running = (one.claim for one in live if one.claim)
    fitting = (one for one in running if claim_fits(one, view.name, shape.card_set, spec))
    return next(fitting, new_claim(view.name, shape.card_set, spec, ""))


def _claim_cards(view: PipelineView, shape: PodShape) -> tuple[int, ...]:
    """Return all cards of the claim that a shape uses, which may be more than its own."""
    on_claim = [one for one in view.pods.shapes if one.card_set == shape.card_set]
    return tuple(sorted({gpu for one in on_claim for gpu in one.gpu_ids}))


def _revision(base: str, claim: str) -> str:
    return short_hash(f"{base} {claim}")
