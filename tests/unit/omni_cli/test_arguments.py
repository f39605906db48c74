"""Which words of a command line are options, which are settings, and whose value a word is."""

from __future__ import annotations

import pytest

from omni_cli.arguments import OptionNames, Setting, separate

OPTIONS = OptionNames(frozenset({"--config", "-f", "--model-path", "-o"}), frozenset({"--help"}))


@pytest.mark.parametrize(
    ("words", "own", "settings"),
    [
        pytest.param(
            ["--a.b", "1", "--config", "f", "--c.d=2"],
            ["--config", "f"],
            [Setting("--a.b", "1"), Setting("--c.d", "2", joined=True)],
            id="options and settings in any order",
        ),
        pytest.param(
            ["a.b", "1", "c.d=2", "-e.f", "3"],
            [],
            [
                Setting("--a.b", "1", joined=True),
                Setting("--c.d", "2", joined=True),
                Setting("--e.f", "3"),
            ],
            id="dashes are optional",
        ),
        pytest.param(
            ["--a.b", "--c.d", "1"],
            [],
            [Setting("--a.b", None), Setting("--c.d", "1")],
            id="a flag is never a value",
        ),
        pytest.param(
            ["--a.b", "-o", "json"],
            ["-o", "json"],
            [Setting("--a.b", None)],
            id="nor is a short option",
        ),
        pytest.param(["--a.b", "-1"], [], [Setting("--a.b", "-1")], id="a negative number is"),
        pytest.param(
            ["--model_path", "m", "-ff"],
            ["--model-path", "m", "-ff"],
            [],
            id="underscores and attached values",
        ),
        pytest.param(
            ["--a.b=--c"], [], [Setting("--a.b", "--c", joined=True)], id="a value with dashes"
        ),
        pytest.param(["--", "--a.b", "1"], ["--", "--a.b", "1"], [], id="nothing after two dashes"),
    ],
)
def test_words_are_told_apart(words: list[str], own: list[str], settings: list[Setting]) -> None:
    found = separate(words, OPTIONS, arguments=0)
    assert found.own == own
    assert found.settings == settings
    assert not found.problems


@pytest.mark.parametrize(
    "words",
    [
        ["a.b", "--c.d", "1", "--config", "f"],
        ["--c.d", "1", "--config", "f", "a.b"],
        ["--config", "f", "a.b", "--c.d", "1"],
        ["--c.d", "1", "a.b", "--config", "f"],
    ],
)
def test_an_argument_stands_anywhere(words: list[str]) -> None:
    found = separate(words, OPTIONS, arguments=1)
    assert sorted(found.own) == ["--config", "a.b", "f"]
    assert found.settings == [Setting("--c.d", "1")]


def test_an_option_without_its_value_is_reported_with_the_way_out() -> None:
    found = separate(["--config", "--a.b", "1"], OPTIONS, arguments=0)
    assert [problem.message for problem in found.problems] == [
        "Missing value for argument: --config; a value that begins with a dash is written "
        "--config=--a.b"
    ]


def test_words_of_a_setting_keep_every_pair_together() -> None:
    words = ["a.b", "1", "--c.d", "-2", "--e.f", "--g.h=--i"]
    pairs = [word for setting in separate(words, OPTIONS, 0).settings for word in setting.words]
    assert pairs == ["--a.b=1", "--c.d", "-2", "--e.f", "--g.h=--i"]
