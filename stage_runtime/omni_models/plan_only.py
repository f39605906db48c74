"""Why some pipelines cannot be started yet, in one place so that it is deleted once."""

from __future__ import annotations

from typing import NoReturn

from omni_config.errors import PlanOnlyError

STAGES_NOT_BUILT = "its stages are not built yet"


def refuse(pipeline: str) -> NoReturn:
    """Refuse to construct a stage that is not built.

    Raises:
        PlanOnlyError: always.
    """
    raise PlanOnlyError(pipeline, STAGES_NOT_BUILT)
