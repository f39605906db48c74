"""What a request sets for single stages, as the parameters that those stages read. Pure.

All parameters of a request travel under one set of names, where a talker's temperature is called
otherwise than a thinker's. A pipeline's author says which names each stage reads; a client may then
name the stage, and the parameter as any stage would call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from omni_wire.errors import InvalidRequest
from omni_wire.messages import Tree

T = TypeVar("T")
StageSettings: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, Tree]]]"
"""Values by parameter, by stage, by the field of the request that holds them."""


def stage_parameters(
    settings: StageSettings, declared: Mapping[str, Mapping[str, str]]
) -> dict[str, Tree]:
    """Return the parameters under the names by which stages read them.

    Args:
        declared: name of each parameter in a request, by the stage's own word for it, by stage.

    Raises:
        InvalidRequest: a stage has no settings of its own, or not that one; says which there are.
    """
    params: dict[str, Tree] = {}
    for field, stages in settings.items():
        for stage, values in stages.items():
            names = _known(declared, stage, f"{field}.{stage}", "names no stage with settings")
            for word, value in values.items():
                where = f"{field}.{stage}.{word}"
                params[_known(names, word, where, "is nothing that this stage reads")] = value
    return params


def _known(table: Mapping[str, T], word: str, field: str, problem: str) -> T:
    if word not in table:
        known = ", ".join(table) or "none"
        raise InvalidRequest(f"{field} {problem}; known: {known}", details={"field": field})
    return table[word]
