"""YAML for people and for `kubectl`, whose reader takes some strings for numbers that Python's does
not: `12e3`, as a hash may be, has to be quoted."""

from __future__ import annotations

import re

import yaml

_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts out: anchors are hard to read and to patch."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def to_yaml(*documents: object, sort_keys: bool = False) -> str:
    """Return documents as one text, fields in their own order unless they are to be sorted."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=sort_keys, width=100)
    return text
