"""Which pods a pipeline needs: one pod shape per group that has its pods to itself, or per set of
cards whose groups share a pod.

What belongs to a pod but is written per group (replicas, nodes, rollout) must agree among the
groups of one pod; where it does not, the problem names both fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from omni_config.errors import ConfigError, Problem
from omni_config.suggestions import nearest
from omni_operator.api.groups import Group
from omni_operator.api.spec import DEFAULT_GROUP, OmniPipelineSpec
from omni_operator.names import dns_name
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.sharing import PodMode, Refusal, Sharing, choose_sharing
from omni_operator.plan.units import CardSet, Unit, card_sets, sharing_copies, units_of
from omni_operator.resolution import ResolvedPipeline

IN_CONTAINER_NAME = "groups"
"""Container that holds all groups of a card, or copies on the CPU that share weights."""
RESERVED_NAMES = ("gateway", "gateway-control", "routes", "config", "tls", "pods")
"""Names of owned objects that a group's Service would take."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod and the units whose processes run in it."""

    name: str
    units: tuple[Unit, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of its processes."""
        return tuple(group for unit in self.units for group in unit.groups)

    @property
    def gpu_ids(self) -> tuple[int, ...]:
        """Cards of the plan that it sees, sorted."""
        return tuple(sorted({gpu for unit in self.units for gpu in unit.gpu_ids}))


@dataclass(frozen=True, slots=True)
class PodShape:
    """One kind of pod.

    Attributes:
        name: DNS label, unique in the pipeline.
        mode: how it gets its GPUs.
        containers: in the order of the plan.
        card_set: name of the cards when a claim stands for them, else empty.
        gpu_ids: cards of the plan that the pod uses, sorted.
        mps: whether an MPS daemon runs in the pod.
        settings: what was written for its groups, merged.
        replicas: pods wanted unless an autoscaler decides.
    """

    name: str
    mode: PodMode
    containers: tuple[Container, ...]
    card_set: str
    gpu_ids: tuple[int, ...]
    mps: bool
    settings: Group
    replicas: int

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units in the pod."""
        return tuple(unit for container in self.containers for unit in container.units)

    @property
    def processes(self) -> tuple[str, ...]:
        """Logical process groups in the pod."""
        return tuple(dict.fromkeys(unit.process for unit in self.units))

    @property
    def gpus(self) -> int:
        """Whole GPUs that one pod takes; in mode DevicePlugin, shares of one."""
        return len(self.gpu_ids)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Every pod shape of a pipeline, and how each set of cards is shared."""

    shapes: tuple[PodShape, ...]
    sharing: Mapping[str, Sharing]
    refusals: tuple[Refusal, ...] = ()

    def shape(self, name: str) -> PodShape | None:
        """Return a shape by its name."""
        return next((one for one in self.shapes if one.name == name), None)

    def shapes_of(self, process: str) -> tuple[PodShape, ...]:
        """Return the shapes that hold a process group."""
        return tuple(one for one in self.shapes if process in one.processes)


def plan_pods(resolved: ResolvedPipeline, cluster: Capabilities) -> PodPlan:
    """Return the pods of a pipeline. With refusals the plan has no shapes.

    Raises:
        ConfigError: what was written per group cannot hold for the pods it ends up in.
    """
    spec, runtime = resolved.pipeline.spec, resolved.runtime
    units = units_of(runtime)
    _require(_group_name_problems(spec, units))
    cards = card_sets(runtime, units)
    choices = {one.name: choose_sharing(one, spec.gpu_sharing, cluster) for one in cards}
    found = (choice for choice in choices.values() if isinstance(choice, Refusal))
    refusals = tuple(dict.fromkeys(found))
    if refusals:
        return PodPlan((), {}, refusals)
    sharing = {name: one for name, one in choices.items() if isinstance(one, Sharing)}
    drafts = list(_cpu_drafts(units, sharing_copies(runtime, units)))
    for one in cards:
        drafts += _card_drafts(one, sharing[one.name].mode)
    order = {unit.name: index for index, unit in enumerate(units)}
    drafts.sort(key=lambda draft: order[draft.units[0].name])
    _require(_draft_problems(drafts, spec))
    return PodPlan(tuple(_shape(draft, spec) for draft in drafts), sharing)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A pod before the settings of its groups are merged."""

    name: str
    mode: PodMode
    units: tuple[Unit, ...]
    cards: CardSet | None


def _cpu_drafts(units: tuple[Unit, ...], sharing: tuple[tuple[Unit, ...], ...]) -> Iterator[_Draft]:
    """Yield a pod per unit without a card; copies that share weights are in one."""
    together = {unit.name for copies in sharing for unit in copies}
    for copies in sharing:
        yield _Draft(copies[0].process, PodMode.CPU, copies, None)
    for unit in units:
        if not unit.gpu_ids and unit.name not in together:
            yield _Draft(unit.name, PodMode.CPU, (unit,), None)


def _card_drafts(cards: CardSet, mode: PodMode) -> Iterator[_Draft]:
    if mode in (PodMode.SIDECAR, PodMode.IN_CONTAINER):
        yield _Draft(cards.name, mode, cards.units, cards)
        return
    for unit in cards.units:
        yield _Draft(unit.name, mode, (unit,), cards)


def _shape(draft: _Draft, spec: OmniPipelineSpec) -> PodShape:
    processes = list(dict.fromkeys(unit.process for unit in draft.units))
    settings = _merged([spec.group(process) for process in processes])
    replicas = settings.scaling.replicas
    if spec.scale is not None and spec.scale.group in processes:
        replicas = spec.scale.replicas
    claims = draft.mode.uses_claims and draft.cards is not None
    return PodShape(
        name=dns_name(draft.name),
        mode=draft.mode,
        containers=_containers(draft),
        card_set=draft.cards.name if claims and draft.cards else "",
        gpu_ids=tuple(sorted({gpu for unit in draft.units for gpu in unit.gpu_ids})),
        mps=draft.cards is not None and draft.cards.mps and len(draft.units) > 1,
        settings=settings,
        replicas=replicas,
    )


def _containers(draft: _Draft) -> tuple[Container, ...]:
    shares_weights = draft.mode is PodMode.CPU and len(draft.units) > 1
    if draft.mode is PodMode.IN_CONTAINER or shares_weights:
        return (Container(IN_CONTAINER_NAME, draft.units),)
    return tuple(Container(dns_name(unit.name), (unit,)) for unit in draft.units)


_POD_FIELDS: tuple[tuple[str, Callable[[Group], object]], ...] = (
    ("scaling", lambda group: group.scaling),
    ("rollout", lambda group: group.rollout),
    ("drain", lambda group: group.drain),
    ("nodeSelector", lambda group: group.node_selector),
    ("tolerations", lambda group: group.tolerations),
    ("sharedMemory", lambda group: group.shared_memory),
    ("podTemplate", lambda group: group.pod_template),
)
"""Fields of a group that belong to the pod as a whole."""


def _merged(groups: list[Group]) -> Group:
    """Return the settings of a pod: of each field the one that was written, if any.

    `resources` belong to containers and are read per group where each has its own.
    """
    default = DEFAULT_GROUP
    written: dict[str, object] = {}
    for group in groups:
        for name in Group.model_fields:
            value = getattr(group, name)
            if name != "resources" and value != getattr(default, name):
                written.setdefault(name, value)
    return default.model_copy(update=written)


def _draft_problems(drafts: list[_Draft], spec: OmniPipelineSpec) -> Iterator[Problem]:
    for draft in drafts:
        processes = list(dict.fromkeys(unit.process for unit in draft.units))
        yield from _disagreements(draft, processes, spec)
        yield from _scaling_problems(draft, processes, spec)
    yield from _name_problems(drafts)


def _disagreements(
    draft: _Draft, processes: list[str], spec: OmniPipelineSpec
) -> Iterator[Problem]:
    default = DEFAULT_GROUP
    fields = list(_POD_FIELDS)
    if draft.mode is PodMode.IN_CONTAINER:
        fields.append(("resources", lambda group: group.resources))
    for field, read in fields:
        written = [
            (process, read(spec.group(process)))
            for process in processes
            if read(spec.group(process)) != read(default)
        ]
        for process, value in written[1:]:
            first, other = written[0]
            if value != other:
                at = f"spec.groups.{process}.{field}"
                yield Problem(
                    at,
                    f"groups '{first}' and '{process}' share a pod ({draft.mode} on "
                    f"{draft.name}), so {at} and spec.groups.{first}.{field} must be equal; "
                    "write it for one of them",
                    at,
                )


def _scaling_problems(
    draft: _Draft, processes: list[str], spec: OmniPipelineSpec
) -> Iterator[Problem]:
    for process in processes:
        scaling = spec.group(process).scaling
        stands = spec.scale is not None and spec.scale.group == process
        count = spec.scale.replicas if spec.scale and stands else scaling.replicas
        at = "spec.scale" if stands else f"spec.groups.{process}.scaling"
        several = count > 1 or scaling.is_dynamic
        if stands and scaling.is_dynamic:
            yield Problem(
                at,
                f"spec.scale and spec.groups.{process}.scaling both say who scales '{process}'; "
                "an autoscaler may aim at this object's scale subresource, or at the OmniGroup",
                at,
            )
        elif several and draft.mode is PodMode.SHARED_CLAIM:
            yield Problem(
                at,
                f"'{process}' shares {draft.cards.name if draft.cards else 'a GPU'} by one claim, "
                "so more pods of it would fill the same GPU; use gpuSharing.mode InContainer or "
                "Sidecar, which copy the whole GPU's groups, or a GPU of its own",
                at,
            )
        elif several and "@r" in draft.units[0].name and len(draft.units) == 1:
            yield Problem(
                at,
                f"spec.config.processes.{process}.num_replicas already makes copies of "
                f"'{process}', each with its own place in the plan; use one or the other",
                at,
            )


def _group_name_problems(spec: OmniPipelineSpec, units: tuple[Unit, ...]) -> Iterator[Problem]:
    known = list(dict.fromkeys(unit.process for unit in units))
    written = [(f"spec.groups.{name}", name) for name in spec.groups]
    if spec.scale is not None:
        written.append(("spec.scale.group", spec.scale.group))
    for at, name in written:
        if name not in known:
            message = f"no process group is called '{name}'; this pipeline has: {', '.join(known)}"
            yield Problem(at, message, at, nearest(name, known))


def _name_problems(drafts: list[_Draft]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for draft in drafts:
        for raw in {draft.name, *(unit.process for unit in draft.units)}:
            name = dns_name(raw)
            if name in RESERVED_NAMES:
                message = f"process group '{raw}' takes the name of the pipeline's own '{name}'"
                yield Problem(f"spec.config.stages ({raw})", f"{message}; rename the process")
            elif seen.setdefault(name, raw) != raw:
                yield Problem(
                    f"spec.config.stages ({raw})",
                    f"process groups '{seen[name]}' and '{raw}' are both '{name}' as names of "
                    "Kubernetes objects; rename one process",
                )


def _require(problems: Iterator[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise ConfigError(found)
