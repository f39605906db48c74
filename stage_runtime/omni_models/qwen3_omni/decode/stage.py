"""Building the decode stage."""

from __future__ import annotations

from pathlib import Path

from omni_models.qwen3_omni.decode.program import Answer, DecodeProgram
from omni_models.qwen3_omni.decode.vocabulary import Vocabulary
from omni_models.qwen3_omni.snapshot import checkpoint_path
from omni_models.structured.formats import checked_format
from omni_models.structured.tool_calls import ToolParsers
from omni_runtime.streaming_scheduler import StreamingScheduler

MAX_ROWS = 256


def build_decode(
    model_path: str, tool_call_parser: str | None = None
) -> StreamingScheduler[Answer]:
    """Read the vocabulary and return the stage's scheduler.

    Args:
        tool_call_parser: the model's format of calls, as SGLang knows it; None finds no calls.

    Raises:
        UnknownToolFormat: SGLang cannot read that format.
        UnreadableTokenizer: the checkpoint's tokenizer is missing or of another kind.
    """
    folder: Path = checkpoint_path(model_path)
    name = checked_format(tool_call_parser)
    parsers = None if name is None else ToolParsers(name)
    program = DecodeProgram(Vocabulary.read(folder), parsers)
    scheduler = StreamingScheduler(program, max_rows=MAX_ROWS)
    if parsers is not None:
        parsers.when_loaded = scheduler.inbox.wake
    return scheduler
