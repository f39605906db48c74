"""What renderers read: an object with its plan, and the few facts of the operator's own release."""

from __future__ import annotations

from dataclasses import dataclass

from omni_config.schema import PipelineConfig
from omni_operator.api.pipeline import OmniPipeline
from omni_operator.api.spec import OmniPipelineSpec
from omni_operator.names import RENDER_VERSION, config_map_name, short_hash
from omni_operator.plan.capabilities import Capabilities
from omni_operator.plan.shapes import PodPlan
from omni_operator.resolution import ResolvedPipeline


@dataclass(frozen=True, slots=True)
class Release:
    """The running operator.

    Attributes:
        stage_image: image of stages where an object names none.
        gateway_image: image of gateways where an object names none.
        render_version: rendering it uses for new revisions.
    """

    stage_image: str
    gateway_image: str
    render_version: str = RENDER_VERSION


@dataclass(frozen=True, slots=True)
class Pins:
    """What a revision keeps although the operator or an unrelated setting moved on.

    Attributes:
        image: image of the containers.
        config_map: ConfigMap its pods were started with.
        default_image: whether the image is the release's, because the object named none.
    """

    render_version: str
    image: str
    config_map: str
    default_image: bool = False


@dataclass(frozen=True, slots=True)
class PipelineView:
    """One pipeline as renderers see it."""

    resolved: ResolvedPipeline
    pods: PodPlan
    cluster: Capabilities
    release: Release

    @property
    def pipeline(self) -> OmniPipeline:
        """The object."""
        return self.resolved.pipeline

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.resolved.pipeline.name

    @property
    def namespace(self) -> str:
        """Namespace of the object and of everything it owns."""
        return self.resolved.pipeline.namespace

    @property
    def spec(self) -> OmniPipelineSpec:
        """What the user wrote."""
        return self.resolved.pipeline.spec

    @property
    def config(self) -> PipelineConfig:
        """The resolved configuration."""
        return self.resolved.resolution.config

    @property
    def config_map(self) -> str:
        """Name of the ConfigMap of this configuration: its content decides it."""
        content = self.resolved.config_yaml + self.resolved.provenance
        return config_map_name(self.name, short_hash(content))

    @property
    def stage_pins(self) -> Pins:
        """What a new revision of a pod shape is pinned to."""
        return self._pins(self.spec.images.stage, self.release.stage_image)

    @property
    def gateway_pins(self) -> Pins:
        """What a new revision of the gateway is pinned to."""
        return self._pins(self.spec.images.gateway, self.release.gateway_image)

    def _pins(self, written: str | None, default: str) -> Pins:
        version = self.release.render_version
        return Pins(version, written or default, self.config_map, default_image=written is None)


def image_fits(written: str | None, pins: Pins) -> bool:
    """Whether a running revision has the image that the object asks for.

    Where it asks for none, any release's image will do, but not one that it asked for before.
    """
    return pins.default_image if written is None else pins.image == written
