"""The formats of tool calls that SGLang has parsers for, by its names. Pure.

Importing SGLang only to read its list would cost the decode stage seconds at every start; a test
compares this list with it.
"""

from __future__ import annotations

from omni_config.errors import OmniError
from omni_config.suggestions import nearest

FORMATS = (
    "apertus2509",
    "beam",
    "cohere_command4",
    "deepseekv3",
    "deepseekv31",
    "deepseekv32",
    "deepseekv4",
    "deepseekv41",
    "dots",
    "gemma4",
    "gigachat3",
    "gigachat35",
    "glm",
    "glm45",
    "glm47",
    "gpt-oss",
    "hermes",
    "hunyuan",
    "inkling",
    "interns1",
    "iquest_q1",
    "k2_horizon",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "ling3",
    "llama3",
    "mimo",
    "minicpm5",
    "minimax-m2",
    "minimax-m3",
    "mistral",
    "muse",
    "nanbeige",
    "poolside_v1",
    "pythonic",
    "qwen",
    "qwen25",
    "qwen3_coder",
    "spark25",
    "step3",
    "step3p5",
    "trinity",
)


class UnknownToolFormat(OmniError):
    """A configuration names a format of tool calls that nothing can read."""

    def __init__(self, name: str) -> None:
        near = nearest(name, FORMATS)
        hint = f"; did you mean {near[0]}" if near else f"; known: {', '.join(FORMATS)}"
        super().__init__(
            f"stages.decode.factory.tool_call_parser: SGLang has no parser '{name}'{hint}"
        )


def checked_format(name: str | None) -> str | None:
    """Return the name of a format, or null where tools are not served.

    Raises:
        UnknownToolFormat: SGLang has no such parser.
    """
    if name is not None and name not in FORMATS:
        raise UnknownToolFormat(name)
    return name
