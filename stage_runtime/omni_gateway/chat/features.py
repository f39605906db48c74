"""What a pipeline's author declares that its stages act on; the rest is refused by name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from omni_config.schema import ChatFeature
from omni_gateway.chat.request import refused
from omni_wire.messages import Tree

PARAMS: Mapping[ChatFeature, tuple[str, ...]] = {
    "tools": ("tools", "tool_choice", "parallel_tool_calls"),
    "response_format": ("response_format",),
    "logprobs": ("logprobs", "top_logprobs"),
    "logit_bias": ("logit_bias",),
}
"""The parameters of a request that need each feature."""


def refuse_undeclared(params: Mapping[str, Tree], declared: Collection[ChatFeature]) -> None:
    """Refuse what nobody would act on.

    Raises:
        InvalidRequest: a parameter needs a feature that is not declared.
    """
    for feature, names in PARAMS.items():
        for name in names:
            if params.get(name) and feature not in declared:
                raise refused(name, "is not served by this pipeline; leave it out")
