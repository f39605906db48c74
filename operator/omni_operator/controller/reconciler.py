"""One turn for one pipeline: observe, decide, act, report.

A turn looks at the whole state and never at what has just happened, so it does not matter how many
changes it stands for, or where an earlier one was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_config.errors import ConfigError
from omni_operator.api.pipeline import OmniPipeline, read_pipeline
from omni_operator.api.status import OmniPipelineStatus
from omni_operator.controller.certificates import Period, TlsFiles, issue, tls_secret
from omni_operator.controller.client import ApiError
from omni_operator.controller.events import EventRecorder
from omni_operator.controller.executor import Executor
from omni_operator.controller.gateways import GatewayAddress, Traffic
from omni_operator.controller.metrics import Metrics
from omni_operator.controller.pod_words import DOWNLOAD_SECONDS, ask_pods, is_downloading
from omni_operator.controller.profiles import ProfileReader
from omni_operator.controller.resources import GROUPS, PODS
from omni_operator.controller.status_writer import StatusWriter
from omni_operator.controller.store import Store
from omni_operator.controller.watched import PipelineKey
from omni_operator.names import APP_COMPONENT, KIND, tls_server_name
from omni_operator.plan.decision import decide
from omni_operator.plan.world import (
    Apply,
    Decision,
    Delete,
    GatewaysSeen,
    ObjectId,
    Observed,
    StartDrain,
    World,
)
from omni_operator.render.manifest import Manifest
from omni_operator.status.refusals import with_refusals

PROFILE_SECONDS = 30.0
"""Profiles carry no label of ours and are not watched; they are read this often."""

MISSED_SECRET_SECONDS = 10.0
"""How often the Secret of certificates is looked after while a pod waits for its volumes."""

Decide = Callable[[Mapping[str, Any], Observed, World], Decision]


@dataclass(slots=True)
class Reconciler:
    """Turns for pipelines.

    Attributes:
        world: gives what is the same for all pipelines, at the present time.
        secret: what certificates derive from.
        check_secret_seconds: how long a Secret that was found right is trusted.
        profile_seconds: how often profiles are read again.
    """

    executor: Executor
    status: StatusWriter
    events: EventRecorder
    profiles: ProfileReader
    traffic: Traffic
    metrics: Metrics
    world: Callable[[], World]
    secret: bytes
    check_secret_seconds: float = 600.0
    profile_seconds: float = PROFILE_SECONDS
    decide: Decide = decide
    _secrets: dict[PipelineKey, tuple[str, float]] = field(default_factory=dict)

    async def reconcile(self, key: PipelineKey, store: Store) -> float | None:
        """Do what is to be done about one pipeline now.

        Returns:
            Seconds after which to look again although nothing was reported; None for never.

        Raises:
            ApiError: the API server refused or was not reached; the turn is to be repeated.
            PodUnreachable: a pod could not be told to drain or to resume.
        """
        manifest = store.pipeline(key)
        if manifest is None or manifest["metadata"].get("deletionTimestamp"):
            # Kubernetes removes what it owned; there is nothing to do.
            return None
        pipeline = _readable(manifest)
        observed = await self._observe(manifest, pipeline, store)
        decision = self.decide(manifest, observed, self.world())
        if pipeline is not None:
            await self._certificates(key, pipeline, observed)
        refused = await self._carry_out(key, decision, store)
        if refused:
            texts = [f"{one.kind} {one.name}: {error}" for one, error in refused.items()]
            before = OmniPipelineStatus.model_validate(manifest.get("status") or {})
            decision = with_refusals(decision, texts, before, self.world().now)
        pause = await self._report(key, manifest, decision, store)
        if refused:
            raise next(iter(refused.values()))
        waits = (pause, decision.requeue_seconds, *self._own_waits(pipeline, observed))
        return min((wait for wait in waits if wait), default=None)

    async def _carry_out(
        self, key: PipelineKey, decision: Decision, store: Store
    ) -> dict[ObjectId, ApiError]:
        """Carry out a decision; return the objects that the API server will never take as they are.

        Once one is refused, nothing that runs is taken away any more: it may be what was to be
        replaced.
        """
        refused: dict[ObjectId, ApiError] = {}
        for action in decision.actions:
            if refused and isinstance(action, Delete | StartDrain):
                continue
            try:
                await self.executor.execute(key, action, store)
            except ApiError as error:
                if not (isinstance(action, Apply) and error.is_refusal):
                    raise
                refused[action.id] = error
        return refused

    async def _observe(
        self, manifest: Manifest, pipeline: OmniPipeline | None, store: Store
    ) -> Observed:
        metadata = manifest["metadata"]
        key = metadata["namespace"], metadata["name"]
        pods = tuple(store.of_pipeline(key, PODS))
        return Observed(
            objects={
                ObjectId(one["kind"], one["metadata"]["name"]): one
                for one in store.owned(key)
                if not _is_left_over(one, metadata["uid"])
            },
            pods=pods,
            profiles=await self.profiles.read(manifest),
            gateways=await self._ask_gateways(pipeline, pods),
            told=await ask_pods(self.traffic, pods),
        )

    async def _ask_gateways(
        self, pipeline: OmniPipeline | None, pods: tuple[Manifest, ...]
    ) -> GatewaysSeen | None:
        ips = tuple(sorted(_gateway_ips(pods)))
        if not ips or pipeline is None:
            return None
        server_name = tls_server_name(pipeline.name, pipeline.namespace)
        tls = self._own_certificate(pipeline, server_name)
        return await self.traffic.seen(GatewayAddress(ips, server_name, tls))

    def _own_certificate(self, pipeline: OmniPipeline, server_name: str) -> TlsFiles | None:
        if pipeline.spec.certificates.mode != "Operator":
            return None
        period = Period.at(self.world().now, pipeline.uid)
        return issue(self.secret, pipeline.uid, server_name, period, "operator")

    async def _certificates(
        self, key: PipelineKey, pipeline: OmniPipeline, observed: Observed
    ) -> None:
        """Make the pipeline's certificate Secret true, unless it was found true lately.

        Secrets are not watched: the operator may not read them. A pod that does not get to its
        containers may want for one that somebody deleted.
        """
        if pipeline.spec.certificates.mode != "Operator":
            return
        wanted = tls_secret(pipeline, self.secret, self.world().now)
        version, now = wanted["data"]["tls.crt"], time.monotonic()
        waits = any(map(_waits_for_volumes, observed.pods))
        trusted = MISSED_SECRET_SECONDS if waits else self.check_secret_seconds
        known = self._secrets.get(key)
        if known is not None and known[0] == version and now < known[1] + trusted:
            return
        await self.executor.apply_secret(wanted)
        self._secrets[key] = version, now

    async def _report(
        self, key: PipelineKey, manifest: Manifest, decision: Decision, store: Store
    ) -> float:
        """Write status and Events; returns the seconds after which it is to be tried again."""
        pause = self.status.pause(manifest, decision.status)
        if pause:
            return pause
        groups = {one["metadata"]["name"]: one for one in store.of_pipeline(key, GROUPS)}
        reports = [
            (groups[name], status)
            for name, status in decision.group_status.items()
            if name in groups
        ]
        try:
            for seen, status in (*reports, (manifest, decision.status)):
                written = await self.status.write(seen, status)
                if written is not None:
                    self.metrics.writes.labels("status", written["kind"]).inc()
                    store.written(written)
        except ApiError as error:
            if not error.is_missing:
                raise
        await self.events.record(manifest, decision.events)
        return 0.0

    def _own_waits(self, pipeline: OmniPipeline | None, observed: Observed) -> Iterator[float]:
        """Yield when to look again for what is not watched."""
        if pipeline is None:
            return
        if any(is_downloading(pod) for pod in observed.pods):
            yield DOWNLOAD_SECONDS
        if pipeline.spec.profile_refs:
            yield self.profile_seconds
        if pipeline.spec.certificates.mode == "Operator":
            now = self.world().now
            yield Period.at(now, pipeline.uid).seconds_left(now, pipeline.uid) + 1.0
            if any(map(_waits_for_volumes, observed.pods)):
                yield MISSED_SECRET_SECONDS

    def forget(self, key: PipelineKey) -> None:
        """Drop what is remembered of a pipeline that is gone."""
        self._secrets.pop(key, None)


def _readable(manifest: Manifest) -> OmniPipeline | None:
    """Return the object, None when its shape is wrong, which `decide` tells the user."""
    try:
        return read_pipeline(manifest)
    except ConfigError:
        return None


def _is_left_over(manifest: Manifest, uid: str) -> bool:
    """Whether an object belongs to an earlier pipeline of the same name and is about to go."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return any(one["kind"] == KIND and one["uid"] != uid for one in owners)


def _waits_for_volumes(pod: Manifest) -> bool:
    """Whether kubelet has the pod and no address for it yet: its volumes are mounted before."""
    status = pod.get("status") or {}
    bound = pod["spec"].get("nodeName") and status.get("phase") == "Pending"
    return bool(bound) and not status.get("podIP")


def _gateway_ips(pods: tuple[Manifest, ...]) -> Iterator[str]:
    """Yield the addresses of gateway pods that run."""
    for pod in pods:
        labels, status = pod["metadata"].get("labels") or {}, pod["status"]
        runs = status.get("phase") == "Running" and status.get("podIP")
        if labels.get(APP_COMPONENT) == "gateway" and runs:
            yield str(status["podIP"])
