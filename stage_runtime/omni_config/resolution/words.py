"""Dotted flags: the words of a command line, as patches.

A word is `--path VALUE`, `--path=VALUE` or `path=VALUE`. A flag is never taken for the value of the
flag before it: a forgotten value is reported where it is missing, not where the words run out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omni_config.errors import ConfigError, Problem
from omni_config.resolution.grammar import Address, Grammar, Group, Keyed
from omni_config.resolution.scalars import ScalarError
from omni_config.resolution.sources import Layer, Patch, Source, Specificity

DOTTED = Source("cli dotted", "command line")


def split_words(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Pair the words of a command line as (path, value text)."""
    pairs: list[tuple[str, str]] = []
    problems: list[Problem] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        path, equals, value = word.lstrip("-").partition("=")
        if not path:
            problems.append(Problem("", f"'{word}' is not a setting; write --<path> <value>"))
        elif equals:
            pairs.append((path, value))
        elif rest and not rest[0].startswith("--"):
            pairs.append((path, rest.pop(0)))
        else:
            hint = f"; a value that begins with -- is written --{path}={rest[0]}" if rest else ""
            problems.append(Problem(path, f"Missing value for argument: {word}{hint}"))
    return pairs, problems


def word_patches(words: Sequence[str], grammar: Grammar) -> tuple[list[Patch], list[Problem]]:
    """Return every write of the dotted flags and every flag that means nothing."""
    pairs, problems = split_words(words)
    patches: list[Patch] = []
    for path, text in pairs:
        try:
            patches.append(word_patch(path, text, grammar))
        except ConfigError as error:
            problems += error.problems
    return patches, problems


def word_patch(path: str, text: str, grammar: Grammar, source: Source = DOTTED) -> Patch:
    """Return the write of one dotted flag.

    Raises:
        ConfigError: the path means nothing to a flag, or the text does not fit its type.
    """
    if path.split(".")[0] == "stages":
        short = path.partition(".")[2] or "<stage>.<field>"
        raise _refused(path, f"--{path} carries the file's 'stages.'; as a flag write --{short}")
    address = _leaf(path, grammar)
    assert not isinstance(address.node, (Group, Keyed))
    try:
        read = address.node.type.read_text(text)
    except ScalarError as error:
        raise _refused(str(address), f"{address} {error}") from None
    return Patch(address, _as_written(text, read), read, source, Layer.CLI)


def value_patch(path: str, value: object, grammar: Grammar, source: Source) -> Patch:
    """Return the write of one override whose value is already typed, as `spec.overrides` has it.

    Raises:
        ConfigError: the path means nothing, or the value does not fit its type.
    """
    address = _leaf(path.removeprefix("stages."), grammar)
    assert not isinstance(address.node, (Group, Keyed))
    try:
        read = address.node.type.read_value(value, None)
    except ScalarError as error:
        raise _refused(str(address), f"{address} {error}") from None
    return Patch(address, value, read, source, Layer.CLI)


def flag_patch(path: str, value: object, flag: str, grammar: Grammar) -> Patch:
    """Return the write of a flag with a name of its own, such as `--model-path`."""
    address = grammar.compile_cli(path)
    return Patch(address, value, value, Source("cli flag", flag), Layer.CLI)


def broadcast_patches(path: str, value: object, flag: str, grammar: Grammar) -> Iterator[Patch]:
    """Write one engine setting on every engine stage, weaker than any dotted flag.

    Raises:
        ConfigError: the pipeline has no engine stage.
    """
    engines = [name for name, group in grammar.stages.items() if "engine" in group.children]
    if not engines:
        raise _refused(
            path, f"{flag} sets engine.{path} on engine stages, and this pipeline has none"
        )
    for name in engines:
        address = grammar.compile(("stages", name, "engine", path))
        yield Patch(
            address, value, value, Source("cli flag", flag), Layer.CLI, Specificity.BROADCAST
        )


def _leaf(path: str, grammar: Grammar) -> Address:
    if "." not in path and path.replace("-", "_") in grammar.stages:
        name = path.replace("-", "_")
        raise _refused(
            path, f"'{name}' names a whole stage; write one field below it, e.g. --{name}.tp_size"
        )
    address = grammar.compile_cli(path)
    if isinstance(address.node, (Group, Keyed)):
        raise _refused(
            str(address),
            f"--{path} addresses a settings group, not a single value; write one field below it, "
            f"e.g. --{path}.<field> <value>",
        )
    return address


def _as_written(text: str, read: object) -> object:
    """Return what provenance shows: the value, or the text where its spelling is not the
    value's."""
    return text if isinstance(read, list) and not text.startswith("[") else read


def _refused(path: str, message: str) -> ConfigError:
    return ConfigError([Problem(path, message)])
