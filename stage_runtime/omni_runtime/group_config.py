"""What a group process is started with, and the part of the plan that it carries out."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omni_config.errors import ConfigError, OmniError, Problem
from omni_config.planning.devices import NO_DEVICES
from omni_config.planning.environment import Host
from omni_config.planning.instances import StageInstance
from omni_config.planning.launch import group_launch, launch_kwargs
from omni_config.planning.plan import PipelineRuntime, prepare_pipeline_runtime
from omni_config.planning.processes import GroupKind, ProcessGroup
from omni_config.resolution.document import read_document
from omni_config.resolution.inspection import config_hash
from omni_config.resolution.resolve import Sources, file_body, pipeline_of, resolve
from omni_config.suggestions import nearest
from omni_config.vocabulary import FactorySignature, factory_signature
from omni_models.catalog import registry
from omni_runtime.group_stages import StageBuild
from omni_runtime.logging import LogFormat
from omni_runtime.weight_share.role import WeightShareRole, role_of
from omni_wire.credentials import Credentials, MutualTls, Plaintext

DRAIN_SECONDS = 30.0
STUCK_SECONDS = 600.0

CONSTRUCTION_LOCK_VARIABLE = "OMNI_CONSTRUCTION_LOCK"
ONE_CARD_VARIABLE = "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS"


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The command line of `python -m omni_runtime.group`.

    Attributes:
        config: exported configuration, resolved.
        group: name of the process in the plan.
        listen: gRPC target where this group is reached, `unix:/path` or `host:port`.
        advertise: target that others dial; `listen` when it is the same.
        gateways: gRPC targets to register with; a `dns:///` name stands for every gateway behind
            it.
        pipelines: topology modules beside the installed ones.
        run_id: names the run directory, so that every process plans the same paths.
        revision: revision of the pods, empty outside a cluster.
        labels: facts for people, `NAME=VALUE` each.
        drain_seconds: how long bound requests may go on once the process is told to stop.
        stuck_seconds: how long a step may take before liveness fails.
        metrics_port: port of the Prometheus page on all addresses; None for no page.
        construction_lock: file locked while stages are built; None without a GPU.
        one_card: this process sees one GPU, whatever its number in the plan.
        weight_share: its part among copies that share weights; None when it shares none.
    """

    config: Path
    group: str
    listen: str
    advertise: str
    gateways: tuple[str, ...]
    credentials: Credentials
    pipelines: tuple[str, ...] = ()
    run_id: str | None = None
    revision: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    drain_seconds: float = DRAIN_SECONDS
    stuck_seconds: float = STUCK_SECONDS
    metrics_port: int | None = None
    construction_lock: Path | None = None
    one_card: bool = False
    weight_share: WeightShareRole | None = None
    log_format: LogFormat = "text"
    log_level: str = "INFO"


class UnsafeAddress(OmniError):
    """An address beyond this machine without certificates; give them, or say --insecure."""


class PlannedGroup:
    """One process group of a planned pipeline.

    Attributes:
        hash: hash of the resolved configuration; every process of a pipeline must have the same.
    """

    def __init__(self, runtime: PipelineRuntime, group: ProcessGroup) -> None:
        self.runtime = runtime
        self.group = group
        self.hash = config_hash(runtime.config)

    @property
    def instances(self) -> tuple[StageInstance, ...]:
        """The stage instances it hosts, in construction order."""
        return tuple(self.runtime.instance_by_name[name] for name in self.group.stage_names)

    @property
    def name(self) -> str:
        """The process group as gateways know it: ranks of a stage are one group."""
        group = self.group
        return (
            group.process if group.replica_count == 1 else f"{group.process}@r{group.replica_index}"
        )

    @property
    def is_follower(self) -> bool:
        """Whether this process is a rank other than 0."""
        return self.group.kind is GroupKind.TP_FOLLOWER

    @property
    def follower_addresses(self) -> tuple[str, ...]:
        """Where the other ranks of this group listen, rank 1 first; empty unless it is rank 0."""
        if self.group.kind is not GroupKind.TP_LEADER:
            return ()
        names = self.runtime.process_plan.tp_processes[self.group.stage_names[0]]
        return tuple(self.runtime.endpoints.addresses[name] for name in names[1:])

    def builds(self, one_card: bool, nccl_port: int | None = None) -> list[StageBuild]:
        """Return what to build, in order.

        Args:
            one_card: as in `GroupOptions`.
            nccl_port: where the ranks of the stage meet, if there are any.
        """
        # Devices are what the launcher made visible; the plan of this machine ends there.
        launch = group_launch(self.runtime, self.group, Host(), NO_DEVICES)
        stages = launch.stages
        if one_card:
            stages = tuple(s if s.gpu_id is None else replace(s, gpu_id=0) for s in stages)
        return [
            StageBuild(
                stage.name,
                stage.factory_path,
                launch_kwargs(
                    self.runtime, self.group, stage, _signature(stage.factory_path), nccl_port
                ),
                stage.kv_cache_bytes,
            )
            for stage in stages
        ]


def read_group(options: GroupOptions) -> PlannedGroup:
    """Plan the configured pipeline and return this process's group.

    Raises:
        ConfigError: the configuration does not resolve, cannot be planned or has no such group.
    """
    body = file_body(read_document(options.config))
    pipeline = pipeline_of(body, registry(options.pipelines))
    config = resolve(pipeline, Sources(body=body)).config
    runtime = prepare_pipeline_runtime(config, run_id=options.run_id)
    groups = {group.name: group for group in runtime.process_plan.all_groups}
    if options.group not in groups:
        raise ConfigError(
            [
                Problem(
                    "processes",
                    f"the pipeline has no process group '{options.group}'; it has "
                    f"{', '.join(groups)}",
                    suggestions=nearest(options.group, groups),
                )
            ]
        )
    return PlannedGroup(runtime, groups[options.group])


def parse_options(arguments: Sequence[str], environ: Mapping[str, str]) -> GroupOptions:
    """Return the options in a command line; exits with a usage message where there are none.

    What only a launcher can know, because it saw the real devices, comes in the environment.

    Raises:
        UnsafeAddress: an address beyond this machine without certificates or --insecure.
        BadRole: the part among copies that share weights cannot be read.
    """
    given = _parser().parse_args(arguments)
    return GroupOptions(
        config=given.config,
        group=given.group,
        listen=given.listen,
        advertise=given.advertise or given.listen,
        gateways=tuple(given.gateway),
        credentials=_credentials(given),
        pipelines=tuple(given.pipelines),
        run_id=given.run_id,
        revision=given.revision,
        labels=tuple(_label(text) for text in given.label),
        drain_seconds=given.drain_seconds,
        stuck_seconds=given.stuck_seconds,
        metrics_port=given.metrics_port,
        construction_lock=_lock_file(environ.get(CONSTRUCTION_LOCK_VARIABLE)),
        one_card=environ.get(ONE_CARD_VARIABLE) == "true",
        weight_share=role_of(environ),
        log_format=given.log_format,
        log_level=given.log_level,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m omni_runtime.group", description="Run one process group of a pipeline."
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, help="exported, resolved configuration")
    add("--group", required=True, help="name of the process group in the plan")
    add("--listen", required=True, help="unix:/path or host:port where this group is reached")
    add("--advertise", default="", help="what others dial, if it is not --listen")
    add("--gateway", action="extend", nargs="+", required=True, help="gateways to register with")
    add("--pipelines", action="extend", nargs="+", default=[], help="further topology modules")
    add("--run-id", help="names the run directory")
    add("--revision", default="", help="revision of the pods")
    add("--label", action="append", default=[], metavar="NAME=VALUE", help="shown to people")
    add("--drain-seconds", type=float, default=DRAIN_SECONDS, help="time to finish requests")
    add("--stuck-seconds", type=float, default=STUCK_SECONDS, help="longest healthy step")
    add("--metrics-port", type=int, help="port of the Prometheus page")
    add("--log-format", choices=("text", "json"), default="text")
    add("--log-level", default="INFO")
    add("--tls-certificate", type=Path, help="PEM chain of this process")
    add("--tls-key", type=Path, help="PEM key of this process")
    add("--tls-ca", type=Path, help="PEM authority that signs every peer")
    add("--tls-server-name", default="", help="name in the certificates of peers")
    add("--insecure", action="store_true", help="talk plaintext beyond this machine")
    return parser


def _credentials(given: argparse.Namespace) -> Credentials:
    files = (given.tls_certificate, given.tls_key, given.tls_ca)
    if all(files):
        return MutualTls(*files, server_name=given.tls_server_name)
    if any(files):
        raise UnsafeAddress("--tls-certificate, --tls-key and --tls-ca belong together")
    addresses = (given.listen, *given.gateway)
    distant = [address for address in addresses if not _on_this_machine(address)]
    if distant and not given.insecure:
        raise UnsafeAddress(
            f"{', '.join(distant)}: give --tls-certificate, --tls-key and --tls-ca, or --insecure"
        )
    return Plaintext()


def _on_this_machine(address: str) -> bool:
    host = address.removeprefix("dns:///").rpartition(":")[0]
    return address.startswith("unix:") or host in ("localhost", "127.0.0.1", "[::1]")


def _lock_file(name: str | None) -> Path | None:
    """Return the lock of a GPU: every pipeline of this machine must come to the same file."""
    return None if name is None else Path(tempfile.gettempdir()) / name


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _signature(path: str) -> FactorySignature:
    """Return what a factory accepts; one that cannot be read accepts what is written for it."""
    return factory_signature(path) or FactorySignature(path, {}, True)
