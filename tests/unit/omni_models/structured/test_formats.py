"""The formats of calls that a configuration may name are those SGLang reads."""

from __future__ import annotations

import pytest

from omni_models.structured.formats import FORMATS, UnknownToolFormat, checked_format


def test_every_format_has_a_parser_of_sglang_s() -> None:
    pytest.importorskip("sglang")
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    # Its grammar is the checkpoint's own, and no parser can be made without it.
    known = set(FunctionCallParser.ToolCallParserEnum) - {"response_template"}
    assert set(FORMATS) == known
    for name in FORMATS:
        FunctionCallParser([], name)


def test_another_name_is_refused_with_the_nearest_one() -> None:
    assert checked_format(None) is None
    assert checked_format("hermes") == "hermes"
    with pytest.raises(UnknownToolFormat, match="no parser 'qwen26'; did you mean qwen25"):
        checked_format("qwen26")
