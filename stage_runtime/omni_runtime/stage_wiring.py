"""A stage's place in its pipeline, with every import path already turned into what it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from omni_config.errors import OmniError
from omni_config.schema import StageConfig
from omni_runtime.fan_in import FanInRule
from omni_runtime.routing import Routes


class HookNotFound(OmniError):
    """An import path of the pipeline names nothing callable; the model's author must mend it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class StageWiring:
    """What the shell of one stage instance needs to know.

    Attributes:
        stage: logical name.
        instance: `stage` or `stage@rN`.
        fan_in: which payloads it waits for.
        routes: where its output goes.
        early_chunks: a chunk may come before the payload.
        input_timeout_seconds: how long a request may wait for input that an upstream stage has
            not finished sending.
    """

    stage: str
    instance: str
    fan_in: FanInRule = field(default_factory=FanInRule)
    routes: Routes = field(default_factory=Routes)
    early_chunks: bool = False
    input_timeout_seconds: float = 600.0


def wire_stage(config: StageConfig, instance: str) -> StageWiring:
    """Return the wiring of one instance of a declared stage.

    Raises:
        HookNotFound: a hook cannot be imported.
    """
    return StageWiring(
        stage=config.name,
        instance=instance,
        fan_in=FanInRule(
            wait_for=config.wait_for,
            wait_for_fn=_hook(config.wait_for_fn),
            merge_fn=_hook(config.merge_fn),
        ),
        routes=Routes(
            next=config.next,
            route_fn=_hook(config.route_fn),
            project_payload={
                target: load_hook(path) for target, path in config.project_payload.items()
            },
            stream_to=config.stream_to,
            stream_done_to_fn=_hook(config.stream_done_to_fn),
        ),
        early_chunks=config.can_accept_stream_before_payload,
        input_timeout_seconds=config.input_timeout_seconds,
    )


def load_hook(path: str) -> Callable[..., Any]:
    """Return the callable at `package.module.name`.

    Raises:
        HookNotFound: the module cannot be imported, or holds no such callable.
    """
    module_name, _, name = path.rpartition(".")
    try:
        hook = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise HookNotFound(path, str(error)) from error
    if not callable(hook):
        raise HookNotFound(path, "is not callable")
    loaded: Callable[..., Any] = hook
    return loaded


def _hook(path: str | None) -> Callable[..., Any] | None:
    return None if path is None else load_hook(path)
