"""The command line cases: a command in, exit status and printed text out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run_words
from tests.support.config import Case, cases, deviations

DEVIATIONS = deviations("cli")
SELECTION = (
    "refuse-nothing-given",
    "refuse-variant-with-config",
    "accept-text-only-with-config",
    "refuse-text-only-other-variant",
)
HEADS = ("cli-export-default-name", "cli-model-path-underscore")
"""Cases whose whole output is long; its first lines are compared."""
FLAGS = {"variant": "--variant", "model_path": "--model-path"}


def _cases() -> list[Case]:
    seeds = [case for case in cases("seed") if case["input"]["seed"] == "cli"]
    selection = [case for case in cases("resolve") if case["id"] in SELECTION]
    return [*seeds, *cases("cli"), *selection]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_a_command_prints_what_the_case_says(case: Case) -> None:
    _write_files(case["input"])
    expected = DEVIATIONS.get(case["id"], {}).get("expected") or case["expected"]
    outcome = run_words(_words(case["input"]))
    if "error" in expected:
        assert outcome.status == 2
        assert _says(expected) in outcome.stderr
        assert outcome.stdout == ""
        return
    shown = outcome.stdout
    if case["input"].get("stdout") == "head" or case["id"] in HEADS:
        shown = "".join(shown.splitlines(keepends=True)[: expected["stdout"].count("\n")])
    assert (outcome.status, shown, outcome.stderr) == (expected["exit"], expected["stdout"], "")
    for name in expected.get("files", []):
        assert Path(name).is_file()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("columns", ["20", "80", "500"])
def test_the_width_of_a_terminal_changes_no_result(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for case in cases("seed")[:4]:
        outcome = run_words(_words(case["input"]))
        assert case["expected"].get("stdout", "") == outcome.stdout
        assert case["expected"].get("says", "") in outcome.stderr


def test_every_deviation_belongs_to_a_case_and_gives_its_reason() -> None:
    assert set(DEVIATIONS) <= {case["id"] for case in _cases()}
    assert all(deviation["why"] for deviation in DEVIATIONS.values())


def _words(given: dict[str, Any]) -> list[str]:
    if "args" in given:
        return list(given["args"])
    flags = given.get("flags", {})
    words = ["config", "resolve", "--show", "diff"]
    words += ["--config", given["file"]] if "file" in given else []
    words += ["--text-only"] if flags.get("text_only") else []
    words += ["--model-path", given["checkpoint"]["dir"]] if "checkpoint" in given else []
    for name, flag in FLAGS.items():
        words += [flag, flags[name]] if name in flags else []
    return words


def _write_files(given: dict[str, Any]) -> None:
    if "file" in given:
        Path(given["file"]).write_text(given["yaml"])
    if "checkpoint" in given:
        checkpoint = Path(given["checkpoint"]["dir"])
        checkpoint.mkdir()
        config = {key: value for key, value in given["checkpoint"].items() if key != "dir"}
        (checkpoint / "config.json").write_text(json.dumps(config))


def _says(expected: dict[str, Any]) -> str:
    refusal = expected["error"] if isinstance(expected["error"], dict) else expected
    says: str = refusal["says"]
    return says
