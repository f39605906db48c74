"""A folder with the configuration file that most commands here are about."""

from __future__ import annotations

from pathlib import Path

import pytest

TTS = """\
config_cls: Qwen3TTSPipelineConfig
model_path: Qwen/Qwen3-TTS-12Hz-0.6B-Base
stages:
  tts_engine:
    engine:
      mem_fraction_static: 0.6
  vocoder:
    factory:
      max_batch_size: 16
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which holds `tts.yaml`."""
    (tmp_path / "tts.yaml").write_text(TTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path
