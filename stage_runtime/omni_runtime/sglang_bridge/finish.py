"""How a request ended, read from SGLang's finish reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from omni_runtime.sglang_bridge.sampling import Grammar
from omni_runtime.sglang_bridge.xgrammar_words import problem_of
from omni_wire.errors import InvalidRequest, QueueFull, ServiceError, StageFailed, StepFailed

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req

_NOT_COMPILED = ("Failed to compile", "Grammar preprocessing timed out")


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of one answer.

    Attributes:
        reason: `stop` or `length`; meaningless with an error.
        token_ids: everything generated, a stop token included.
        shown: how many of them are the answer: all but a stop token.
        stop_token_id: the stop token, if one ended the answer.
        stop_string: the stop text, if one did.
        prompt_tokens, cached_tokens: length of the prompt, and how much of it was in the cache.
        error: why there is no answer.
    """

    reason: Literal["stop", "length"]
    token_ids: tuple[int, ...]
    shown: int
    stop_token_id: int | None = None
    stop_string: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: ServiceError | None = None

    @classmethod
    def of(cls, req: Req, grammar: Grammar | None = None) -> Finish:
        """Read a finished request of SGLang's, which answered by a grammar if there is one."""
        reason = req.finished_reason.to_json()
        length = len(req.output_ids) if req.finished_len is None else req.finished_len
        tokens = tuple(req.output_ids[:length])
        matched = reason.get("matched")
        stop_token_id = matched if isinstance(matched, int) else None
        stop_string = matched if isinstance(matched, str) else None
        return cls(
            reason="length" if reason["type"] == "length" else "stop",
            token_ids=tokens,
            shown=length - (stop_token_id is not None),
            stop_token_id=stop_token_id,
            stop_string=stop_string,
            prompt_tokens=len(req.origin_input_ids),
            cached_tokens=req.cached_tokens,
            error=refusal_of(reason, grammar) if reason["type"] == "abort" else None,
        )


def refusal_of(reason: Mapping[str, object] | None, grammar: Grammar | None = None) -> ServiceError:
    """Return the error that SGLang's word for an abort stands for.

    Args:
        reason: `message` and `status_code` by name; None when SGLang gave none.
        grammar: what the answer had to look like.
    """
    message = str((reason or {}).get("message") or "the engine dropped the request")
    if (reason or {}).get("err_type") == StepFailed.reason:
        return StepFailed(message)
    if grammar is not None and message.startswith(_NOT_COMPILED):
        problem = problem_of(message.partition("grammar: ")[2] or "it takes too long to compile")
        return InvalidRequest(f"{grammar.field}: {problem}", details={"field": grammar.field})
    match (reason or {}).get("status_code"):
        case HTTPStatus.BAD_REQUEST | 400:
            return InvalidRequest(message)
        case HTTPStatus.SERVICE_UNAVAILABLE | 503:
            return QueueFull(message)
        case _:
            return StageFailed(message)
