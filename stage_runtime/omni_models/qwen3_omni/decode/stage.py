"""Building the decode stage."""

from __future__ import annotations

from pathlib import Path

from omni_models.qwen3_omni.decode.program import Answer, DecodeProgram
from omni_models.qwen3_omni.decode.vocabulary import Vocabulary
from omni_models.qwen3_omni.snapshot import checkpoint_path
from omni_runtime.streaming_scheduler import StreamingScheduler

MAX_ROWS = 256


def build_decode(model_path: str) -> StreamingScheduler[Answer]:
    """Read the vocabulary and return the stage's scheduler.

    Raises:
        UnreadableTokenizer: the checkpoint's tokenizer is missing or of another kind.
    """
    folder: Path = checkpoint_path(model_path)
    return StreamingScheduler(DecodeProgram(Vocabulary.read(folder)), max_rows=MAX_ROWS)
