"""The configuration cases: what a file, flags and words resolve to, or why they are refused."""

from __future__ import annotations

import json
import re

import pytest

from omni_config.errors import ConfigError
from omni_config.resolution.grammar import Leaf, grammar_of
from omni_config.resolution.inspection import diff_lines, provenance_json
from omni_config.resolution.paths import split_path
from omni_config.resolution.provenance import value_at
from omni_config.resolution.resolve import Resolution
from omni_config.resolution.scalars import ScalarError
from omni_config.settings import EngineArgs
from omni_config.units import parse_bytes
from tests.support.config import BASES, CASES, Case, cases, deviations, registry, resolve_case

DEVIATIONS = deviations("resolve")
OUT_OF_SCOPE = json.loads((CASES / "out_of_scope.json").read_text())
SELECTION = (
    "refuse-nothing-given",
    "refuse-variant-with-config",
    "accept-text-only-with-config",
    "refuse-text-only-other-variant",
)
"""Cases about choosing the class by flags; they run where the command line is tested."""


def _resolve_cases() -> list[Case]:
    skipped = {*OUT_OF_SCOPE["cases"], *SELECTION}
    return [case for case in cases("resolve") if case["id"] not in skipped]


@pytest.mark.parametrize("case", _resolve_cases(), ids=lambda case: case["id"])
def test_sources_resolve_as_the_case_says(case: Case) -> None:
    expected = DEVIATIONS.get(case["id"], {}).get("expected") or case["expected"]
    if not expected["ok"]:
        with pytest.raises(ConfigError) as refused:
            resolve_case(case["input"])
        _assert_says(str(refused.value), expected)
        return
    resolution = resolve_case(case["input"])
    assert diff_lines(resolution) == expected["diff"]
    assert _rows(resolution) == expected.get(
        "provenance", case["expected"].get("provenance", _rows(resolution))
    )
    assert list(resolution.warnings) == expected.get("warnings", [])
    for path, read in expected.get("values", {}).items():
        value = value_at(resolution.config, split_path(path))
        assert value == read["value"]
        assert type(value).__name__ == read["type"]


def test_every_deviation_belongs_to_a_case_and_gives_its_reason() -> None:
    known = {case["id"] for case in cases("resolve")}
    assert set(DEVIATIONS) <= known
    assert all(deviation["why"] for deviation in DEVIATIONS.values())


@pytest.mark.parametrize("case", cases("scalar"), ids=lambda case: case["id"])
def test_one_value_at_one_path_is_read_by_its_type(case: Case) -> None:
    grammar = grammar_of(registry().by_name(BASES[case["input"]["base"]]))
    for row in case["expected"]["rows"]:
        address = grammar.compile(split_path(row["path"]))
        assert isinstance(address.node, Leaf)
        if "error" in row:
            with pytest.raises(ScalarError) as refused:
                _read(address.node, row["text"])
            assert f"{address} {refused.value}" == row["error"]
            continue
        value = _read(address.node, row["text"])
        assert (f"<{value}>" if value == float("inf") else value) == row["value"]
        assert type(value).__name__ == row["type"]


def _read(leaf: Leaf, written: object) -> object:
    if isinstance(written, str):
        return leaf.type.read_text(written)
    return leaf.type.read_value(written, None)


@pytest.mark.parametrize("case", cases("bytes"), ids=lambda case: case["id"])
def test_byte_counts_are_spelt_exactly(case: Case) -> None:
    for row in case["expected"]["rows"]:
        if "error" in row:
            with pytest.raises(ValueError, match=r"must be") as refused:
                parse_bytes(row["value"])
            assert f"engine.kv_cache_bytes {refused.value}" == row["error"]
        elif row["value"] is None:
            assert EngineArgs(kv_cache_bytes=None).kv_cache_bytes is None
        else:
            assert parse_bytes(row["value"]) == row["bytes"]


ADDED = ("mps_quota", "stages.*.comm.", "stages.*.input_timeout_seconds")
"""Settings of ours that the cases do not know."""


@pytest.mark.parametrize("case", cases("paths"), ids=lambda case: case["id"])
def test_public_paths_are_those_of_the_case_without_what_is_out_of_scope(case: Case) -> None:
    grammar = grammar_of(registry().by_name(BASES[case["input"]["base"]]))
    under = case["input"].get("under", "")
    ours = {re.sub(r"^stages\.[^.]+", "stages.*", path) for path, _ in grammar.public_paths()}
    ours = {path for path in ours if path.startswith(under)}
    wanted = {path for path in case["expected"]["paths"] if not _left_out(path)}
    added = {path for path in ours - wanted if not path.startswith(ADDED)}
    assert wanted <= ours
    assert added == set()


def _left_out(path: str) -> bool:
    names = (*OUT_OF_SCOPE["top"], *OUT_OF_SCOPE["stage"], *OUT_OF_SCOPE["code_only"])
    below = path.removeprefix("stages.*.")
    return any(below == name or below.startswith(f"{name}.") for name in names)


def _rows(resolution: Resolution) -> list[dict[str, object]]:
    return [
        {
            "path": row["path"],
            "resolved": row["value"],
            "baseline": row["baseline"],
            "chain": [
                {"value": w["value"], "source": w["source"], "state": w["state"]}
                for w in row["writes"]
            ],
        }
        for row in provenance_json(resolution)
    ]


def _assert_says(message: str, expected: Case) -> None:
    """Every word of the case's refusal must be in ours; ours may say more."""
    says = expected.get("says") or expected["error"].get("says")
    wanted = [says] if says else [problem["says"] for problem in expected["error"]["problems"]]
    for text in wanted:
        assert text in message
