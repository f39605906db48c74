"""What the thinker makes of its engine: prompts with media in, tokens out, one frame per step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from omni_models.qwen3_omni.media_blocks import (
    Block,
    Media,
    MediaLayout,
    media_blocks,
    media_spans,
    rope_positions,
)
from omni_models.qwen3_omni.parameters import Params, thinker_sampling
from omni_models.qwen3_omni.routing import should_generate_audio_output
from omni_models.qwen3_omni.segments import Ints, Roles
from omni_models.qwen3_omni.thinker.media_rows import MediaRows, MediaRowStore, RowsOfRequest
from omni_models.qwen3_omni.token_logprobs import logprob_columns
from omni_runtime.scheduler import Admitted, Chunks, NewRequest, Result, StepOutput
from omni_runtime.sglang_bridge.engine_scheduler import EngineScheduler, NewTokens
from omni_runtime.sglang_bridge.generation import Generation, MediaItem
from omni_runtime.sglang_bridge.sampling import Grammar, Sampling
from omni_wire.errors import InvalidRequest
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, StreamDone, Tree
from omni_wire.torch_end import to_torch
from omni_wire.trees import to_numpy

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import GenerationBatchResult


@dataclass(frozen=True, slots=True)
class ThinkerFacts:
    """What the thinker must know of its checkpoint.

    Attributes:
        vocabulary: number of text tokens.
    """

    layout: MediaLayout
    roles: Roles
    vocabulary: int


@dataclass(slots=True)
class _Answer:
    """One request: who listens to it besides the text."""

    speaks: bool
    request_id: str = ""


@dataclass(slots=True)
class ThinkerProgram:
    """Implements `EngineProgram`.

    Attributes:
        facts: of the checkpoint.
        speech_enabled: whether a talker is there to listen.
        media_rows: captures hidden rows for the talker; None sends none, and the talker takes
            zeros.
        store: keeps captured rows; set once the engine has sized its pool.
    """

    facts: ThinkerFacts
    speech_enabled: bool
    media_rows: MediaRows | None
    store: MediaRowStore | None = None
    _answers: dict[RequestKey, _Answer] = field(default_factory=dict)
    _engine: EngineScheduler = field(init=False)

    def bind(self, engine: EngineScheduler) -> None:
        """Keep the engine."""
        self._engine = engine

    def take(self, message: NewRequest | Chunks | StreamDone) -> None:
        """Hand a new request to the engine.

        Raises:
            InvalidRequest: its parameters or media make no sense.
        """
        if not isinstance(message, NewRequest):
            return
        payload = message.payload
        prompt = self._prompt(payload)
        answer = _Answer(self.speech_enabled and _speaks(payload))
        self._answers[payload.key] = answer
        answer.request_id = self._engine.submit(payload.key, prompt.generation)
        if answer.speaks and len(prompt.heard) and self.media_rows is None:
            self._engine.put(self._media_frame(payload.key, torch.zeros((0, 1))))
        if self.media_rows is not None and len(prompt.placeholders):
            self.media_rows.requests[answer.request_id] = RowsOfRequest(
                prompt.placeholders, prompt.heard if answer.speaks else prompt.heard[:0]
            )
        self._engine.put(Admitted(payload.key))

    def may_run(self, req: Req) -> bool:
        """Every row of the thinker has its input: its own last token."""
        return True

    def launched(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Expect what a prefill captured."""
        if self.media_rows is not None and batch.forward_mode.is_extend():
            self.media_rows.launched()

    def failed(self, batch: ScheduleBatch) -> None:
        """Forget what a prefill captured before it raised."""
        if self.media_rows is not None:
            self.media_rows.failed()

    def settling(self, batch: ScheduleBatch) -> None:
        """Send hidden rows of media ahead of the tokens that follow them."""
        if self.media_rows is None or not batch.forward_mode.is_extend():
            return
        assert self.store is not None
        keys = {answer.request_id: key for key, answer in self._answers.items()}
        for request_id, rows in self.media_rows.settle(batch, self.store).items():
            self._engine.put(self._media_frame(keys[request_id], rows))

    def produced(self, rows: Sequence[NewTokens]) -> Iterable[StepOutput]:
        """Send the step's tokens to the text and, where it is wanted, to the talker."""
        for nth in range(max((len(row.tokens) for row in rows), default=0)):
            having = [row for row in rows if len(row.tokens) > nth]
            yield from self._token_frames(having, nth)

    def result(self, row: NewTokens) -> Result:
        """Say how the answer ended."""
        finish = row.finish
        assert finish is not None
        return Result(
            row.key,
            {
                "token_ids": np.asarray(finish.token_ids, np.int64),
                "finish_reason": finish.reason,
                "stop_token_id": finish.stop_token_id,
                "stop_string": finish.stop_string,
                "usage": {
                    "prompt_tokens": finish.prompt_tokens,
                    "completion_tokens": len(finish.token_ids),
                    "cached_tokens": finish.cached_tokens,
                },
            },
        )

    def drop(self, key: RequestKey) -> None:
        """Forget a request."""
        answer = self._answers.pop(key, None)
        if answer is not None and self.media_rows is not None:
            self.media_rows.requests.pop(answer.request_id, None)

    def _token_frames(self, rows: Sequence[NewTokens], nth: int) -> Iterator[StepOutput]:
        for target in ("talker_ar", "decode"):
            chosen = [row for row in rows if target == "decode" or self._answers[row.key].speaks]
            if chosen:
                yield self._frame(chosen, nth, target)

    def _frame(self, rows: Sequence[NewTokens], nth: int, target: str) -> StepOutput:
        tokens = np.array([row.tokens[nth] for row in rows], np.int64)
        columns = {"token_id": tokens}
        if target == "decode":
            columns |= logprob_columns([row.logprobs[nth : nth + 1] for row in rows])
        return StepOutput(self._engine.step, tuple(row.key for row in rows), columns, target=target)

    def _media_frame(self, key: RequestKey, rows: torch.Tensor) -> StepOutput:
        columns = {"media_hidden": rows[None]}
        return StepOutput(self._engine.step, (key,), columns, target="talker_ar")

    def _prompt(self, payload: Payload) -> _Prompt:
        data = cast("Mapping[str, Any]", payload.data)
        params = payload.request.params if payload.request is not None else {}
        prompt = data["prompt"]
        ids = np.asarray(to_numpy(prompt["input_ids"]), np.int64)
        if not len(ids) or ids.min() < 0 or ids.max() >= self.facts.vocabulary:
            raise InvalidRequest("the prompt is empty or holds tokens outside the vocabulary")
        sampling = self._sampling(params)
        grammar = Grammar(**prompt["grammar"]) if prompt.get("grammar") else None
        media_tree = data.get("media") or {}
        if not media_tree:
            return _Prompt(Generation(ids.tolist(), sampling, grammar=grammar), ids[:0], ids[:0])
        media, layout = Media.of(cast("Mapping[str, Any]", to_numpy(media_tree))), self.facts.layout
        blocks = list(media_blocks(ids, media, layout))
        positions, delta = rope_positions(ids, media, layout, blocks)
        items = _items(ids, blocks, media, layout, data["embeddings"])
        placeholders = np.flatnonzero(np.isin(ids, list(layout.tokens.values())))
        return _Prompt(
            Generation(ids.tolist(), sampling, items, torch.from_numpy(positions), delta, grammar),
            placeholders,
            placeholders[self.facts.roles.user_mask(ids)[placeholders]],
        )

    def _sampling(self, params: Params) -> Sampling:
        sampling = thinker_sampling(params)
        beyond = [token for token, _ in sampling.logit_bias if token >= self.facts.vocabulary]
        if beyond:
            raise InvalidRequest(
                f"logit_bias names token {beyond[0]}; the vocabulary has {self.facts.vocabulary}",
                details={"field": "logit_bias"},
            )
        return sampling


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A parsed request.

    Attributes:
        placeholders: positions of media.
        heard: those in turns of the user, which the talker wants.
    """

    generation: Generation
    placeholders: Ints
    heard: Ints


def _speaks(payload: Payload) -> bool:
    metadata = payload.request.metadata if payload.request is not None else {}
    return should_generate_audio_output(cast("Any", metadata.get("output_modalities")))


def _items(
    ids: Ints,
    blocks: Sequence[Block],
    media: Media,
    layout: MediaLayout,
    embeddings: Mapping[str, Tree],
) -> tuple[MediaItem, ...]:
    """Cut each kind's embeddings into its items, in the order of the prompt."""
    spans, rows = media_spans(ids, blocks, layout), media.rows(layout)
    tensors = {
        kind: cast("torch.Tensor", to_torch(rows_of)) for kind, rows_of in embeddings.items()
    }
    items = []
    for kind, index in sorted(spans, key=lambda item: spans[item]):
        ends = np.cumsum(rows[kind])
        count = int(rows[kind][index])
        if kind not in tensors or len(tensors[kind]) != ends[-1]:
            raise InvalidRequest(f"{ends[-1]} rows of {kind} were expected, others came")
        first = int(ends[index]) - count
        found = sum(last - start + 1 for start, last in spans[kind, index])
        if found != count:
            raise InvalidRequest(f"a {kind} has {count} rows and {found} places in the prompt")
        items.append(
            MediaItem(
                kind,
                _identity(kind, media.hashes[kind][index]),
                spans[kind, index],
                tensors[kind][first : first + count],
            )
        )
    return tuple(items)


def _identity(kind: str, digits: str) -> bytes:
    """Return 32 bytes that tell items apart, by kind too."""
    return hashlib.sha256(f"{kind}:{digits}".encode()).digest()
