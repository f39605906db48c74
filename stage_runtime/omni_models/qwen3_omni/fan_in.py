"""How the awaited payloads of a request become one. Bodies come with the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from omni_models.plan_only import refuse
from omni_models.qwen3_omni.routing import Payload


def merge_thinker_inputs(payloads: Mapping[str, Payload]) -> NoReturn:
    """Hook `merge_fn` of mm_aggregate and thinker: prompt and embeddings of media, by source."""
    refuse("Qwen3-Omni")


def merge_talker_inputs(payloads: Mapping[str, Payload]) -> NoReturn:
    """Hook `merge_fn` of the talker: prompt and embeddings of media, by source."""
    refuse("Qwen3-Omni")
