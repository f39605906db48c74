"""The checkpoint's own folder, seen as the talker's language model."""

from __future__ import annotations

from pathlib import Path

from sglang.srt.configs.model_config_parser_registry import (
    ModelConfigParserBase,
    register_model_config_parser,
)
from transformers import PretrainedConfig

from omni_models.qwen3_omni.language_model import language_model_config

ARCHITECTURE = "OmniTalker"
PARSER = "omnipipe_qwen3_omni_talker"


@register_model_config_parser(PARSER)
class TalkerConfigParser(ModelConfigParserBase):
    """Gives SGLang the talker's text model, with the whole configuration hung on it."""

    def parse(
        self,
        model: str | Path,
        trust_remote_code: bool,
        revision: str | None = None,
        **kwargs: object,
    ) -> PretrainedConfig:
        """Return the text configuration of the talker."""
        return language_model_config(model, "talker_config", ARCHITECTURE, revision)
