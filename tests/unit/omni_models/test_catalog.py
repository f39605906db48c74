"""The catalogue of shipped pipelines, and what a broken model package does to it."""

import pytest

from omni_config.errors import ConfigError
from omni_models import catalog


def test_every_shipped_pipeline_is_listed() -> None:
    assert set(catalog.registry().names) == {
        "Qwen3OmniPipelineConfig",
        "Qwen3OmniSpeechPipelineConfig",
        "Qwen3OmniSpeechColocatedPipelineConfig",
        "Qwen3TTSPipelineConfig",
    }
    assert catalog.registry().broken == {}


def test_a_broken_package_is_named_with_its_cause_and_spares_the_others() -> None:
    registry = catalog.load_registry(
        ("omni_models.qwen9.topology", "omni_models.qwen3_tts.topology")
    )
    assert registry.names == ("Qwen3TTSPipelineConfig",)
    with pytest.raises(ConfigError) as refusal:
        registry.by_name("Qwen9PipelineConfig")
    assert "omni_models.qwen9.topology could not be imported" in str(refusal.value)
    assert "ModuleNotFoundError: No module named 'omni_models.qwen9'" in str(refusal.value)
