"""A tiny random checkpoint in the published layout: the real thing's every file, in a few seconds.

It serves tests, benchmarks and the demonstration, wherever the real checkpoint is too large. Its
answers are meaningless, but they vary, so that comparing them with another implementation proves
something.
"""

from omni_models.qwen3_omni.tiny.checkpoint import write_tiny_checkpoint

__all__ = ["write_tiny_checkpoint"]
