"""One language model of the checkpoint, as SGLang wants its configuration."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, PretrainedConfig


def language_model_config(
    model: str | Path, part: str, architecture: str, revision: str | None
) -> PretrainedConfig:
    """Return a text configuration with the whole one hung on it, as `omni`.

    Args:
        part: where it is, `thinker_config` or `talker_config`.
        architecture: class of ours that SGLang shall load.
    """
    whole = AutoConfig.from_pretrained(model, revision=revision)
    config: PretrainedConfig = getattr(whole, part).text_config
    config.architectures = [architecture]
    config.omni = whole
    config.dtype = whole.dtype
    config.tie_word_embeddings = False
    # transformers always interleaves the three sections; SGLang asks the configuration.
    config.rope_parameters["mrope_interleaved"] = True
    return config
