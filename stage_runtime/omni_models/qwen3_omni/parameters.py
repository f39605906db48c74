"""What a client may set per request, and nothing else. Pure: preprocessing refuses with it, before
any stage has worked, and each stage reads its own part with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from omni_models.structured.wishes import PARAMS as STRUCTURE_PARAMS
from omni_runtime.sglang_bridge.sampling import Sampling
from omni_wire.errors import InvalidRequest

T = TypeVar("T")
Params = Mapping[str, object]

DEFAULT_SPEAKER = "ethan"
DEFAULT_MAX_TOKENS = 2048
DEFAULT_MAX_FRAMES = 4096
MAX_STOPS = 32
MAX_BIAS = 100.0
MAX_BIASED = 1024
MAX_TOP_LOGPROBS = 20

THINKER_PARAMS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "seed",
    "logit_bias",
    "logprobs",
    "top_logprobs",
)
TALKER_PARAMS = (
    "speaker",
    "talker_temperature",
    "talker_top_p",
    "talker_top_k",
    "talker_repetition_penalty",
    "talker_max_tokens",
)
CODE2WAV_PARAMS = ("initial_codec_chunk_frames", "audio_dtype")
OTHER_PARAMS = (*CODE2WAV_PARAMS, "stream", "return_codes")


@dataclass(frozen=True, slots=True)
class TalkerSampling:
    """How speech is drawn.

    Attributes:
        code: of the first code of a frame; its `max_tokens` counts frames.
        residual_top_k, residual_top_p: of the other codes, as transformers fixes them.
    """

    code: Sampling
    residual_top_k: int = 50
    residual_top_p: float = 0.8


def refuse_unknown(params: Params) -> None:
    """Refuse names that nobody reads.

    Raises:
        InvalidRequest: with the accepted names.
    """
    accepted = (*THINKER_PARAMS, *STRUCTURE_PARAMS, *TALKER_PARAMS, *OTHER_PARAMS)
    unknown = sorted(set(params) - set(accepted))
    if unknown:
        raise InvalidRequest(
            f"unknown parameters {', '.join(unknown)}; accepted are {', '.join(accepted)}"
        )


def thinker_sampling(params: Params) -> Sampling:
    """Return how the text is drawn.

    Raises:
        InvalidRequest: a value is out of its range, which is named.
    """
    max_tokens = _whole(params, "max_tokens", DEFAULT_MAX_TOKENS, 1)
    min_tokens = _whole(params, "min_tokens", 0, 0)
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens {min_tokens} is above max_tokens {max_tokens}")
    return Sampling(
        max_tokens=max_tokens,
        temperature=_number(params, "temperature", 0.0, 0.0, 2.0),
        top_k=_top_k(params, "top_k", None),
        top_p=_number(params, "top_p", 1.0, 0.0, 1.0, open_low=True),
        min_p=_number(params, "min_p", 0.0, 0.0, 1.0),
        repetition_penalty=_number(params, "repetition_penalty", 1.0, 0.0, 2.0, open_low=True),
        frequency_penalty=_number(params, "frequency_penalty", 0.0, -2.0, 2.0),
        presence_penalty=_number(params, "presence_penalty", 0.0, -2.0, 2.0),
        min_tokens=min_tokens,
        stop=_texts(params, "stop"),
        stop_token_ids=frozenset(_token_ids(params, "stop_token_ids")),
        ignore_eos=_flag(params, "ignore_eos"),
        seed=_seed(params),
        logit_bias=_biases(params),
        top_logprobs=_top_logprobs(params),
    )


def talker_sampling(params: Params) -> TalkerSampling:
    """Return how speech is drawn; its defaults are transformers'.

    Raises:
        InvalidRequest: a value is out of its range, which is named.
    """
    return TalkerSampling(
        Sampling(
            max_tokens=_whole(params, "talker_max_tokens", DEFAULT_MAX_FRAMES, 1),
            temperature=_number(params, "talker_temperature", 0.9, 0.0, 2.0),
            top_k=_top_k(params, "talker_top_k", 50),
            top_p=_number(params, "talker_top_p", 1.0, 0.0, 1.0, open_low=True),
            repetition_penalty=_number(
                params, "talker_repetition_penalty", 1.05, 0.0, 2.0, open_low=True
            ),
            seed=_seed(params),
        )
    )


def speaker_of(params: Params, speakers: Mapping[str, int]) -> int:
    """Return the codec token of the wanted speaker; names do not depend on case.

    Raises:
        InvalidRequest: nobody is called so; the accepted names are listed.
    """
    name = params.get("speaker")
    if name is None:
        name = DEFAULT_SPEAKER if DEFAULT_SPEAKER in speakers else next(iter(speakers))
    known = {speaker.lower(): token for speaker, token in speakers.items()}
    if not isinstance(name, str) or name.lower() not in known:
        raise InvalidRequest(
            f"unknown speaker {name!r}; accepted are {', '.join(sorted(known))}",
            details={"field": "speaker"},
        )
    return known[name.lower()]


def _value(params: Params, name: str, default: T, read: Callable[[object], T], rule: str) -> T:
    value = params.get(name)
    if value is None:
        return default
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{name} must be {rule}, got {value!r}", details={"field": name}
        ) from error


def _number(
    params: Params, name: str, default: float, low: float, high: float, open_low: bool = False
) -> float:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        number = float(value)
        if not math.isfinite(number) or not low <= number <= high or (open_low and number == low):
            raise ValueError
        return number

    bracket = "(" if open_low else "["
    return _value(params, name, default, read, f"a number in {bracket}{low:g}, {high:g}]")


def _whole(params: Params, name: str, default: int, low: int) -> int:
    return _value(params, name, default, lambda v: _integer(v, low), f"a whole number from {low}")


def _top_k(params: Params, name: str, default: int | None) -> int | None:
    def read(value: object) -> int | None:
        number = _integer(value, -1)
        if number == 0:
            raise ValueError
        return None if number == -1 else number

    return _value(params, name, default, read, "a whole number from 1, or -1 for all")


def _seed(params: Params) -> int | None:
    def read(value: object) -> int | None:
        number = _integer(value, -(2**63))
        if number >= 2**63:
            raise ValueError
        return number

    return _value(params, "seed", None, read, "a whole number of 64 bits")


def _biases(params: Params) -> tuple[tuple[int, float], ...]:
    def read(value: object) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, Mapping):
            raise TypeError
        if len(value) > MAX_BIASED:
            raise ValueError
        return tuple(sorted((_token(key), _bias(bias)) for key, bias in value.items()))

    rule = f"up to {MAX_BIASED} numbers from {-MAX_BIAS:g} to {MAX_BIAS:g} by token id"
    return _value(params, "logit_bias", (), read, rule)


def _token(key: object) -> int:
    return _integer(int(key) if isinstance(key, str) and key.isdecimal() else key, 0)


def _bias(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not -MAX_BIAS <= value <= MAX_BIAS:
        raise ValueError
    return float(value)


def _top_logprobs(params: Params) -> int | None:
    def read(value: object) -> int:
        number = _integer(value, 0)
        if number > MAX_TOP_LOGPROBS:
            raise ValueError
        return number

    rule = f"a whole number from 0 to {MAX_TOP_LOGPROBS}"
    top = _value(params, "top_logprobs", 0, read, rule)
    if _flag(params, "logprobs"):
        return top
    if top:
        raise InvalidRequest(
            "top_logprobs needs logprobs to be true", details={"field": "top_logprobs"}
        )
    return None


def _flag(params: Params, name: str) -> bool:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError
        return value

    return _value(params, name, False, read, "true or false")


def _texts(params: Params, name: str) -> tuple[str, ...]:
    def read(value: object) -> tuple[str, ...]:
        texts = [value] if isinstance(value, str) else list(_sequence(value))
        if len(texts) > MAX_STOPS or not all(isinstance(t, str) and t for t in texts):
            raise ValueError
        return tuple(str(text) for text in texts)

    return _value(params, name, (), read, f"a text or up to {MAX_STOPS} texts, none empty")


def _token_ids(params: Params, name: str) -> tuple[int, ...]:
    def read(value: object) -> tuple[int, ...]:
        return tuple(_integer(token, 0) for token in _sequence(value))

    return _value(params, name, (), read, "a list of token ids")


def _integer(value: object, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    if value < low:
        raise ValueError
    return value


def _sequence(value: object) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return value
