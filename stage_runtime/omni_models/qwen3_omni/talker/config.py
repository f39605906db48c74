"""The checkpoint's own folder, seen as the talker's language model."""

from __future__ import annotations

from pathlib import Path

from sglang.srt.configs.model_config_parser_registry import (
    ModelConfigParserBase,
    register_model_config_parser,
)
from transformers import AutoConfig, PretrainedConfig

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
        whole = AutoConfig.from_pretrained(model, revision=revision)
        config = whole.talker_config.text_config
        config.architectures = [ARCHITECTURE]
        config.omni = whole
        config.dtype = whole.dtype
        config.tie_word_embeddings = False
        # transformers always interleaves the three sections; SGLang asks the configuration.
        config.rope_parameters["mrope_interleaved"] = True
        return config
