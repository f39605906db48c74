"""From the plan of a process group to the schedulers it hosts.

Factories run on a worker thread, one after the other in the order of the plan, under the lock of
the GPU if the group has one. They must not install signal handlers or touch the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from omni_config.errors import OmniError
from omni_runtime.construction_lock import construction_lock
from omni_runtime.engine_budget import kv_cache_bytes
from omni_runtime.logging import EventLogger
from omni_runtime.scheduler import Scheduler
from omni_runtime.simple_scheduler import Compute, SimpleScheduler
from omni_runtime.stage_wiring import load_hook
from omni_runtime.weight_share.offer import offered_weights
from omni_runtime.weight_share.share import WeightShare

logger = EventLogger(__name__)


class StageFactory(Protocol):
    """What `factory_path` names.

    It is called with the stage's `factory.*` settings and what placement adds for parameters it
    declares (`gpu_id`, `tp_rank`, `model_path`, …), and returns a scheduler, or a plain function
    from payload to payload, which then runs in a `SimpleScheduler`, one request at a time.
    """

    def __call__(self, **kwargs: object) -> Scheduler | Compute:
        """Build the stage; may take minutes."""
        ...


class FactoryFailed(OmniError):
    """A stage could not be built, so its group cannot start; the cause is chained."""


@dataclass(frozen=True, slots=True)
class StageBuild:
    """One stage to build.

    Attributes:
        instance: name of the instance.
        factory_path: import path of its factory.
        kwargs: the factory's arguments.
        kv_cache_bytes: budget of the one engine it builds, None where none was set.
    """

    instance: str
    factory_path: str
    kwargs: dict[str, object]
    kv_cache_bytes: int | None = None


def build_schedulers(
    builds: Iterable[StageBuild], lock_file: Path | None, share: WeightShare | None = None
) -> dict[str, Scheduler]:
    """Return the scheduler of every stage by instance name.

    Args:
        lock_file: lock held while stages are built; None when none of them uses a GPU.
        share: with which other copies of this process weights are shared; None for none.

    Raises:
        FactoryFailed: a factory raised or returned something else.
        HookNotFound: a factory cannot be imported.
        CannotShare: weights are to be shared, and no stage loads any that way.
    """
    with construction_lock(lock_file):
        schedulers = {build.instance: _built(build, share) for build in builds}
    if share is not None:
        share.require_used()
    return schedulers


def scheduler_of(made: object) -> Scheduler:
    """Return what a factory made as a scheduler.

    Raises:
        TypeError: it is neither a scheduler nor a function.
    """
    if hasattr(made, "inbox") and hasattr(made, "run"):
        return cast("Scheduler", made)
    if callable(made):
        return SimpleScheduler(cast("Callable[..., object]", made))  # type: ignore[arg-type]
    raise TypeError(f"a factory must return a scheduler or a function, not {type(made).__name__}")


def _built(build: StageBuild, share: WeightShare | None) -> Scheduler:
    logger.info("building stage", stage=build.instance, factory=build.factory_path)
    factory = cast("StageFactory", load_hook(build.factory_path))
    try:
        with (
            kv_cache_bytes(build.instance, build.kv_cache_bytes),
            offered_weights(build.instance, share),
        ):
            return scheduler_of(factory(**build.kwargs))
    except Exception as error:  # the author's code
        raise FactoryFailed(f"{build.instance}: {build.factory_path} failed: {error}") from error
