"""How many frames are decoded at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from omni_wire.errors import InvalidRequest
from omni_wire.messages import Tree

AudioDtype = Literal["float32", "int16"]
AUDIO_DTYPES: tuple[AudioDtype, ...] = ("float32", "int16")
"""How samples may be sent, the default first."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """Windows that double: the first sound comes soon, later windows are cheaper per frame.

    Attributes:
        first: frames of a stream's first window.
        steady: frames of a window once the ramp has reached it.
    """

    first: int
    steady: int

    def __post_init__(self) -> None:
        if min(self.first, self.steady) < 1:
            raise ValueError(f"windows have at least one frame, got {self}")

    def size(self, window: int) -> int:
        """Frames of window number `window`, from 0."""
        # Doubling more often than this passes any steady size there is.
        return min(self.first << min(window, 16), self.steady)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one request wants its sound.

    Attributes:
        ramp: its windows.
        dtype: float32 in [-1, 1], or int16.
        keeps_codes: whether the frames themselves are returned as well.
    """

    ramp: Ramp
    dtype: AudioDtype = "float32"
    keeps_codes: bool = False

    @classmethod
    def parse(cls, params: Mapping[str, Tree], default: Ramp) -> Delivery:
        """Return what `params` ask for, by `initial_codec_chunk_frames`, `audio_dtype` and
        `return_codes`.

        Raises:
            InvalidRequest: a value is not among those accepted.
        """
        first = params.get("initial_codec_chunk_frames")
        if first is None:
            ramp = default
        elif isinstance(first, bool) or not isinstance(first, int) or first < 1:
            raise InvalidRequest(
                f"initial_codec_chunk_frames must be a whole number from 1 on, got {first!r}; "
                f"above {default.steady} it counts as {default.steady}",
                details={"field": "initial_codec_chunk_frames"},
            )
        else:
            ramp = Ramp(first, default.steady)
        keeps_codes = params.get("return_codes") or False
        if not isinstance(keeps_codes, bool):
            raise InvalidRequest(
                f"return_codes must be true or false, got {keeps_codes!r}",
                details={"field": "return_codes"},
            )
        match params.get("audio_dtype"):
            case None | "float32":
                return cls(ramp, "float32", keeps_codes)
            case "int16":
                return cls(ramp, "int16", keeps_codes)
            case other:
                raise InvalidRequest(
                    f"audio_dtype must be one of float32, int16, got {other!r}",
                    details={"field": "audio_dtype"},
                )
