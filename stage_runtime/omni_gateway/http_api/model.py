"""What request models have in common: every field is acted on, or refused by its name.

A refused field may still be sent with a value that asks for nothing, as some clients always do.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

_REFUSED = "x-refused"


class ApiModel(BaseModel):
    """A part of a request; unknown fields and wrong types are refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True
    )


def served(
    description: str,
    default: Any = None,  # noqa: ANN401  # of the field's own type
    **limits: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Declare a field that is acted on, with pydantic's limits such as `ge`."""
    return Field(default, description=description, **limits)


def refused(reason: str, *harmless: object) -> Any:  # noqa: ANN401
    """Declare a field that is refused unless it is null or one of `harmless`."""
    allowed = [None, *harmless]

    def refuse(value: object) -> object:
        if any(value is one or (value == one and type(value) is type(one)) for one in allowed):
            return value
        raise PydanticCustomError("not_served", "is not served by this gateway; leave it out")

    extra: dict[str, Any] = {_REFUSED: allowed}
    declared: Any = Field(None, description=f"Not served: {reason}", json_schema_extra=extra)
    declared.metadata.append(BeforeValidator(refuse))
    return declared


def harmless_values(model: type[BaseModel], name: str) -> list[Any] | None:
    """Return the values a refused field may have; null for a field that is served."""
    extra = model.model_fields[name].json_schema_extra
    return extra.get(_REFUSED) if isinstance(extra, dict) else None  # type: ignore[return-value]
