"""Tells a command's own options from the settings among its words.

A setting is `--path VALUE`, `--path=VALUE`, `path=VALUE` or `path VALUE`. The words are told apart
before the option parser sees them, because a parser that only skips what it does not know cannot
say which word belonged to which flag: a forgotten value would swallow the next flag, and the value
of a setting could be taken for an argument of the command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from omni_config.errors import Problem


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The spellings of a command's own options.

    Attributes:
        valued: those that take a value, such as `--config` and `-f`.
        flags: those that take none, such as `--help`.
    """

    valued: frozenset[str]
    flags: frozenset[str]

    @property
    def long(self) -> tuple[str, ...]:
        """The long spellings, which messages suggest."""
        return tuple(sorted(name for name in self.valued | self.flags if name.startswith("--")))

    def known(self, name: str) -> str | None:
        """Return the option that a word names, dashes and underscores alike; null when none."""
        for spelling in (name, f"--{name[2:].replace('_', '-')}"):
            if name.startswith("-") and spelling in self.valued | self.flags:
                return spelling
        return None

    def attached(self, word: str) -> bool:
        """Return whether a word is a short option with its value attached, such as `-ojson`."""
        return not word.startswith("--") and word[:2] in self.valued


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it was typed.

    Attributes:
        flag: its path as a long flag, `--vocoder.gpu`.
        value: the text, null when it was forgotten.
        joined: written as one word with `=`.
    """

    flag: str
    value: str | None
    joined: bool = False

    @property
    def head(self) -> str:
        """The first segment of the path."""
        return self.flag[2:].partition(".")[0]

    @property
    def dotless(self) -> bool:
        """Whether the path is a single segment, as an option's name is."""
        return "." not in self.flag

    @property
    def words(self) -> tuple[str, ...]:
        """The setting as words that always begin with a long flag."""
        if self.value is None:
            return (self.flag,)
        return (f"{self.flag}={self.value}",) if self.joined else (self.flag, self.value)


@dataclass(slots=True)
class Arguments:
    """The words of one command, told apart.

    Attributes:
        own: options and arguments of the command itself.
        settings: the dotted settings, in order.
        problems: own options whose value was forgotten.
    """

    own: list[str] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def separate(words: Sequence[str], options: OptionNames, arguments: int) -> Arguments:
    """Tell the words of a command apart.

    Args:
        arguments: how many words of their own, such as the PATH of `explain`, the command takes;
            the first ones that are neither a flag nor a flag's value.
    """
    found = Arguments()
    rest = deque(words)
    while rest:
        word = rest.popleft()
        name, equals, value = word.partition("=")
        option = options.known(name)
        if word == "--":
            found.own += [word, *rest]
            return found
        if option is not None:
            _take_option(found, rest, option, value if equals else None, options)
        elif options.attached(word):
            found.own.append(word)
        elif arguments and not equals and not word.startswith("-"):
            arguments -= 1
            found.own.append(word)
        else:
            flag = f"--{name.lstrip('-')}"
            text = value if equals else _following(rest, options)
            found.settings.append(Setting(flag, text, joined=bool(equals) or word[:1] != "-"))
    return found


def _take_option(
    found: Arguments, rest: deque[str], option: str, value: str | None, options: OptionNames
) -> None:
    if value is not None:
        found.own.append(f"{option}={value}")
        return
    found.own.append(option)
    if option in options.flags:
        return
    value = _following(rest, options)
    if value is not None:
        found.own.append(value)
        return
    hint = f"; a value that begins with a dash is written {option}={rest[0]}" if rest else ""
    found.problems.append(Problem("", f"Missing value for argument: {option}{hint}"))


def _following(rest: deque[str], options: OptionNames) -> str | None:
    """Take the next word as a value, unless it is a flag."""
    if not rest or rest[0].startswith("--") or options.known(rest[0]) is not None:
        return None
    return rest.popleft()
