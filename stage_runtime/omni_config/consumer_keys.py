"""Keys under `engine` and `factory` that their consumer does not know.

The consumer has the last word, at construction. Where its vocabulary can be read beforehand, a
misspelt key is found before anything starts: `resolve` warns about it, `plan` and whatever starts
something refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omni_config.errors import Problem
from omni_config.rules import LAUNCH_FACTORY_KEYS, PLACEMENT_ENGINE_KEYS, PLACEMENT_FACTORY_KEYS
from omni_config.schema import PipelineConfig, StageConfig, engine_of
from omni_config.suggestions import nearest
from omni_config.vocabulary import (
    FactorySignature,
    engine_keys,
    factory_signature,
    server_args_version,
)


def unknown_keys(config: PipelineConfig) -> list[Problem]:
    """Return a problem for each written key that its consumer is known not to understand."""
    return [
        problem
        for stage in config.stages
        for problem in (
            *unknown_engine_keys(stage),
            *_unknown_keys_of_known_factory(stage, config.refused_factory_keys),
        )
    ]


def unknown_engine_keys(stage: StageConfig) -> Iterator[Problem]:
    """Yield a problem for each written key of `engine` that the pinned SGLang does not know."""
    known = engine_keys()
    for key in engine_of(stage).free_keys():
        if key not in known and key not in PLACEMENT_ENGINE_KEYS:
            path = f"stages.{stage.name}.engine.{key}"
            yield Problem(
                path,
                f"{path}: SGLang {server_args_version()} has no server argument '{key}'",
                suggestions=_spoken(stage, "engine", nearest(key, known)),
            )


def unknown_factory_keys(
    stage: StageConfig, signature: FactorySignature, reasons: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield a problem for each written key of `factory` that the factory does not declare.

    Args:
        reasons: why the pipeline refuses settings that others know, by `stage.key`.
    """
    if signature.accepts_any:
        return
    owned = (*PLACEMENT_FACTORY_KEYS, *LAUNCH_FACTORY_KEYS)
    for key in stage.factory.written():
        if key in signature.parameters or key in owned:
            continue
        path = f"stages.{stage.name}.factory.{key}"
        reason = reasons.get(f"{stage.name}.{key}")
        if reason is not None:
            yield Problem(path, f"Stage '{stage.name}' sets factory.{key}, but {reason}")
            continue
        settable = signature.settable
        offered = "" if settable else "; it takes no setting at all"
        yield Problem(
            path,
            f"Stage '{stage.name}' sets factory.{key} but factory {stage.factory_path} does not "
            f"accept a '{key}' parameter{offered}",
            suggestions=_spoken(stage, "factory", nearest(key, settable)),
        )


def _unknown_keys_of_known_factory(
    stage: StageConfig, reasons: Mapping[str, str]
) -> Iterator[Problem]:
    signature = factory_signature(stage.factory_path)
    return iter(()) if signature is None else unknown_factory_keys(stage, signature, reasons)


def _spoken(stage: StageConfig, group: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{stage.name}.{group}.{name}" for name in names)
