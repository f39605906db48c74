"""Which pipeline class serves a configuration or a checkpoint.

The registry holds classes that it is given, so that configuration never imports a model. Pipelines
that share an architecture are variants of one model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omni_config.errors import ConfigError, Problem
from omni_config.schema import PipelineConfig
from omni_config.suggestions import nearest

PipelineClass = type[PipelineConfig]


@dataclass(frozen=True, slots=True)
class Model:
    """One model and the pipelines that serve it.

    Attributes:
        architectures: values of `architectures` in its checkpoints.
        model_types: values of `model_type` in its checkpoints.
        pipelines: its pipeline classes, the default one first, then by variant.
    """

    architectures: tuple[str, ...]
    model_types: tuple[str, ...]
    pipelines: tuple[PipelineClass, ...]

    @property
    def default(self) -> PipelineClass:
        """The pipeline used when no variant is named."""
        return self.pipelines[0]


class Registry:
    """The pipelines one can choose from.

    Args:
        classes: pipeline classes.
        broken: model modules that could not be imported, each with the cause; a pipeline that is
            not found may be in one of them, so they are named then.

    Raises:
        ValueError: two classes of one name, or a model without exactly one default pipeline.
    """

    def __init__(
        self, classes: Iterable[PipelineClass], broken: Mapping[str, str] | None = None
    ) -> None:
        self._by_name: dict[str, PipelineClass] = {}
        for cls in classes:
            if self._by_name.setdefault(cls.__name__, cls) is not cls:
                raise ValueError(f"two pipeline classes are called {cls.__name__}")
        self.broken = dict(broken or {})
        self.models = _models(self._by_name.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all pipeline classes."""
        return tuple(self._by_name)

    def by_name(self, config_cls: str) -> PipelineClass:
        """Return the class that `config_cls` in a file names.

        Raises:
            ConfigError: there is none of that name.
        """
        found = self._by_name.get(config_cls)
        if found is None:
            raise self._not_found(
                "config_cls",
                f"Config class {config_cls} not found in the pipeline config registry",
                nearest(config_cls, self._by_name),
            )
        return found

    def for_checkpoint(
        self, config_json: Mapping[str, object], variant: str | None, source: str
    ) -> PipelineClass:
        """Return the class that serves a checkpoint.

        Args:
            config_json: content of the checkpoint's config.json.
            variant: variant named by the user, null for the model's default.
            source: where the checkpoint is, for messages.

        Raises:
            ConfigError: no registered model fits, or the model has no such variant.
        """
        model = self._model_of(config_json, source)
        return model.default if variant is None else self._variant(model, variant)

    def by_variant(self, variant: str) -> PipelineClass:
        """Return the only class of that variant, for a checkpoint that cannot be read here.

        Raises:
            ConfigError: no model, or more than one, has it.
        """
        found = [cls for cls in self._by_name.values() if cls.variant == variant]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(cls.__name__ for cls in found)
            problem = f"Variant '{variant}' is ambiguous; name one with config_cls: {names}"
            raise ConfigError([Problem("variant", problem)])
        known = sorted({cls.variant for cls in self._by_name.values() if cls.variant})
        raise self._not_found(
            "variant",
            f"Unknown variant '{variant}'. Available variants: {', '.join(known) or 'none'}",
            nearest(variant, known),
        )

    def variants_of(self, cls: PipelineClass) -> dict[str, PipelineClass]:
        """Return the variants of the model that a class serves, sorted; empty when it has none."""
        for model in self.models:
            if cls in model.pipelines:
                return _variants(model)
        return {}

    def _model_of(self, config_json: Mapping[str, object], source: str) -> Model:
        names = _architectures(config_json)
        for name in names:
            for model in self.models:
                if name in model.architectures:
                    return model
        if names:
            known = [name for model in self.models for name in model.architectures]
            raise self._not_found(
                "model_path",
                f"Config for {names[0]} not found in the pipeline config registry; "
                f"'{source}' is none of the supported architectures: {', '.join(known)}",
                nearest(names[0], known),
            )
        return self._model_of_type(config_json.get("model_type"), source)

    def _model_of_type(self, model_type: object, source: str) -> Model:
        for model in self.models:
            if model_type in model.model_types:
                return model
        known = [name for model in self.models for name in model.model_types]
        found = (
            f"its model_type '{model_type}' is none of: {', '.join(known)}"
            if isinstance(model_type, str)
            else "its config.json has neither architectures nor model_type"
        )
        raise self._not_found(
            "model_path",
            f"Could not resolve model architecture for '{source}': {found}; name the pipeline with "
            "config_cls in a file",
            nearest(model_type, known) if isinstance(model_type, str) else (),
        )

    def _variant(self, model: Model, variant: str) -> PipelineClass:
        known = _variants(model)
        if variant in known:
            return known[variant]
        raise ConfigError(
            [
                Problem(
                    "variant",
                    f"Unknown variant '{variant}' for {model.default.__name__}. "
                    f"Available variants: {', '.join(known) or 'none'}",
                    suggestions=nearest(variant, known),
                )
            ]
        )

    def _not_found(self, path: str, message: str, suggestions: tuple[str, ...]) -> ConfigError:
        problems = [Problem(path, message, suggestions=suggestions)]
        problems += [
            Problem(path, f"{module} could not be imported, so its pipelines are missing: {cause}")
            for module, cause in self.broken.items()
        ]
        return ConfigError(problems)


def _architectures(config_json: Mapping[str, object]) -> list[str]:
    value = config_json.get("architectures") or config_json.get("architecture")
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        return []
    return [name for name in values if isinstance(name, str) and name]


def _models(classes: Iterable[PipelineClass]) -> tuple[Model, ...]:
    """Group classes by model, in order of first appearance."""
    families: dict[tuple[str, ...], list[PipelineClass]] = {}
    for cls in classes:
        families.setdefault(cls.architectures or (cls.__name__,), []).append(cls)
    return tuple(_model(members) for members in families.values())


def _model(members: list[PipelineClass]) -> Model:
    defaults = [cls for cls in members if cls.default_variant]
    if len(defaults) != 1:
        raise ValueError(
            f"exactly one of {[cls.__name__ for cls in members]} must be the default variant"
        )
    others = sorted(set(members) - set(defaults), key=lambda cls: cls.variant or "")
    default = defaults[0]
    return Model(default.architectures, default.model_types, (default, *others))


def _variants(model: Model) -> dict[str, PipelineClass]:
    return {cls.variant: cls for cls in sorted(model.pipelines, key=_variant_name) if cls.variant}


def _variant_name(cls: PipelineClass) -> str:
    return cls.variant or ""
