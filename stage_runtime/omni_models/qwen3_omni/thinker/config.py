"""The checkpoint's own folder, seen as the thinker's language model."""

from __future__ import annotations

from pathlib import Path

from sglang.srt.configs.model_config_parser_registry import (
    ModelConfigParserBase,
    register_model_config_parser,
)
from transformers import PretrainedConfig

from omni_models.qwen3_omni.language_model import language_model_config

ARCHITECTURE = "OmniThinker"
PARSER = "omnipipe_qwen3_omni_thinker"


@register_model_config_parser(PARSER)
class ThinkerConfigParser(ModelConfigParserBase):
    """Gives SGLang the text model, with the whole configuration hung on it.

    To SGLang it is a text model: it must neither build towers nor load a processor, because media
    come encoded.
    """

    def parse(
        self,
        model: str | Path,
        trust_remote_code: bool,
        revision: str | None = None,
        **kwargs: object,
    ) -> PretrainedConfig:
        """Return the text configuration of the thinker."""
        return language_model_config(model, "thinker_config", ARCHITECTURE, revision)
