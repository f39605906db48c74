"""What the parrot says: pure text, so that tests know it beforehand.

Most conversations are repeated. `count N` counts, and `(fail)` fails when its turn comes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from omni_models.media.download import Downloader
from omni_models.media.limits import Deadline, FetchPolicy, MediaLimits
from omni_models.media.sources import Remote
from omni_models.qwen3_omni.parameters import (
    DEFAULT_SPEAKER,
    refuse_unknown,
    speaker_of,
    talker_sampling,
    thinker_sampling,
)
from omni_models.qwen3_omni.preprocessing.conversation import Conversation, ConversationReader
from omni_wire.errors import StageFailed
from omni_wire.messages import RequestView

SPEAKERS = {"ethan": 220, "chelsie": 330, "aiden": 262}
"""Pitch of each voice, in hertz."""
FAILING = "(fail)"
LIMITS = MediaLimits(max_bytes=64 << 20, timeout_seconds=5.0)
POLICY = FetchPolicy()

_COUNT = re.compile(r"count (\d+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to one request.

    Attributes:
        words: each is one token; joined they are the text.
        reason: `stop`, or `length` when the request allows no more words.
        prompt_tokens: words of the question.
    """

    words: tuple[str, ...]
    reason: str
    prompt_tokens: int


def plan_of(request: RequestView) -> Plan:
    """Return the answer to a request.

    Raises:
        ServiceError: the request makes no sense, or media may not be fetched.
    """
    refuse_unknown(request.params)
    sampling = thinker_sampling(request.params)
    talker_sampling(request.params)
    speaker_of(request.params, SPEAKERS)
    conversation = ConversationReader(LIMITS, POLICY).read(request.inputs)
    _fetch(conversation)
    text = answer_to(conversation)
    for stop in sampling.stop:
        text = text.partition(stop)[0]
    words = tuple(re.findall(r"\S+\s*", text))
    asked = sum(len(one.split()) for one in conversation.texts)
    reason = "length" if len(words) > sampling.max_tokens else "stop"
    return Plan(words[: sampling.max_tokens], reason, asked)


def answer_to(conversation: Conversation) -> str:
    """Return the answer to a conversation."""
    last = conversation.texts[-1] if conversation.texts else ""
    counting = _COUNT.fullmatch(last.strip())
    if counting:
        return " ".join(str(number) for number in range(1, int(counting.group(1)) + 1))
    kinds = Counter(item.kind for item in conversation.items)
    seen = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"You said: {last}" + (f" (with {seen})" if seen else "")


def refuse_failing(word: str) -> None:
    """Fail where the parrot was asked to.

    Raises:
        StageFailed: always for `FAILING`.
    """
    if word.strip() == FAILING:
        raise StageFailed("the parrot fails as it was asked to")


def pitch_of(request: RequestView | None) -> int:
    """Return the pitch of the voice that a request asks for, in hertz."""
    params = request.params if request is not None else {}
    name = str(params.get("speaker") or DEFAULT_SPEAKER).lower()
    return SPEAKERS[name]


def _fetch(conversation: Conversation) -> None:
    deadline = Deadline(LIMITS.timeout_seconds)
    downloader = Downloader(LIMITS, POLICY)
    for item in conversation.items:
        if isinstance(item.source, Remote):
            downloader.fetch(item.source.url, item.where, deadline)
