"""What the talker makes of its engine: text and hidden rows in, frames of codes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from omni_models.qwen3_omni.media_blocks import Media
from omni_models.qwen3_omni.parameters import speaker_of, talker_sampling
from omni_models.qwen3_omni.talker.frame_maker import FrameMaker
from omni_models.qwen3_omni.talker.incoming import Incoming
from omni_models.qwen3_omni.talker.prompt_rows import TalkerFacts, talker_prompt
from omni_models.qwen3_omni.talker.row_source import TalkerRows
from omni_models.qwen3_omni.talker.speech import Speech
from omni_runtime.scheduler import (
    Admitted,
    Chunks,
    NewRequest,
    RequestError,
    Result,
    StepOutput,
    Taken,
)
from omni_runtime.sglang_bridge.engine_scheduler import EngineScheduler, NewTokens
from omni_runtime.sglang_bridge.generation import Generation, seed_of
from omni_runtime.sglang_bridge.row_sampler import BatchRow
from omni_runtime.simple_scheduler import failure_of
from omni_wire.identity import RequestKey
from omni_wire.messages import Payload, StreamDone, Tree
from omni_wire.torch_end import array_to_torch
from omni_wire.trees import to_numpy

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import GenerationBatchResult


@dataclass(frozen=True, slots=True)
class Pacing:
    """When speech starts and when its frames leave.

    Attributes:
        start_tokens: tokens of text before speech starts; None waits for all of them.
        first_frames: frames in the first message, at least 1.
        early_frames: frames from the beginning that leave one by one.
        frames: frames per message after that.
    """

    start_tokens: int | None = 1
    first_frames: int = 1
    early_frames: int = 10
    frames: int = 10

    def due(self, sent: int, unsent: int) -> bool:
        """Return whether frames that have not left should leave now."""
        if sent == 0:
            return unsent >= max(self.first_frames, 1)
        return unsent >= (1 if sent < self.early_frames else self.frames)


@dataclass(slots=True)
class TalkerProgram:
    """Implements `EngineProgram` and `row_sampler.LogitsEditor`.

    Attributes:
        facts: of the checkpoint.
        pacing: when things leave.
        speeches: by the engine's id of the request; the model reads them.
    """

    facts: TalkerFacts
    pacing: Pacing
    speeches: dict[str, Speech] = field(default_factory=dict)
    _incoming: dict[RequestKey, Incoming] = field(default_factory=dict)
    _by_key: dict[RequestKey, Speech] = field(default_factory=dict)
    _engine: EngineScheduler = field(init=False)
    _rows: TalkerRows = field(init=False)
    _maker: FrameMaker = field(init=False)

    def bind(self, engine: EngineScheduler) -> None:
        """Keep the engine."""
        self._engine = engine

    def attach(self, rows: TalkerRows, maker: FrameMaker) -> None:
        """Use a loaded model."""
        self._rows, self._maker = rows, maker

    def __call__(self, logits: torch.Tensor, rows: Sequence[BatchRow]) -> torch.Tensor:
        """Edit the logits of code 0."""
        return self._maker.edit(logits, rows, [self.speeches[row.request_id] for row in rows])

    # What comes

    def take(self, message: NewRequest | Chunks | StreamDone) -> None:
        """Take a prompt, text or hidden rows, or the end of the text."""
        match message:
            case NewRequest(payload):
                self._open(payload)
            case Chunks(source, frame, indices):
                keys = [frame.rows[index].key for index in indices]
                self._take_rows(keys, frame.columns, indices)
                self._engine.put(Taken(source, tuple(keys)))
            case StreamDone(key):
                if self._engine.knows(key):
                    self._of(key).done = True
                    self._guarded(key, self._advance)

    def _open(self, payload: Payload) -> None:
        key = payload.key
        data = cast("Mapping[str, Any]", to_numpy(payload.data))
        params = payload.request.params if payload.request is not None else {}
        speaker = speaker_of(params, self.facts.speakers)
        sampling = talker_sampling(params)
        ids = np.asarray(data["prompt"]["input_ids"], np.int64)
        media = Media.of(data.get("media") or {})
        prompt = talker_prompt(ids, media, self.facts, speaker, self._rows)
        incoming = self._of(key)
        incoming.media_positions = prompt.media
        seed = sampling.code.seed
        speech = Speech(
            prompt=prompt.rows,
            known=int(prompt.media[0]) if len(prompt.media) else len(prompt.rows) - 1,
            positions=prompt.positions,
            pad=self._special_rows()[0],
            sampling=sampling,
            min_tokens=self.pacing.start_tokens or 1 << 30,
            seed=seed_of(key) if seed is None else seed,
        )
        self._by_key[key] = speech
        self._engine.put(Admitted(key))
        self._advance(key)

    def _take_rows(
        self, keys: Sequence[RequestKey], columns: Mapping[str, Any], indices: Sequence[int]
    ) -> None:
        live = [(k, i) for k, i in zip(keys, indices, strict=True) if self._engine.knows(k)]
        if "media_hidden" in columns:
            hidden = array_to_torch(columns["media_hidden"])
            for key, index in live:
                self._of(key).hidden.append(hidden[index])
        elif live:
            tokens = np.asarray(to_numpy(columns["token_id"]))[[index for _, index in live]]
            for (key, _), row in zip(live, self._rows.text(tokens), strict=True):
                self._of(key).text.append(row)
        for key, _ in live:
            self._guarded(key, self._advance)

    def _of(self, key: RequestKey) -> Incoming:
        return self._incoming.setdefault(key, Incoming())

    def _guarded(self, key: RequestKey, act: Callable[[RequestKey], None]) -> None:
        try:
            act(key)
        except Exception as error:  # one malformed request must not end the stage
            self._engine.end(key, RequestError(key, failure_of(error)))

    # From what came to what can run

    def _advance(self, key: RequestKey) -> None:
        """Move what came into the speech, and hand it to the engine once its prompt is ready."""
        speech, incoming = self._by_key.get(key), self._of(key)
        if speech is None:
            return
        incoming.fill_media(speech, self._rows)
        if incoming.fill_text(speech, self._special_rows()[1]):
            # The last row of the prompt is the first token of the answer.
            speech.known = speech.length
        speech.open_gate()
        if incoming.done and not speech.tokens:
            self._engine.end(key, Result(key, _said(speech, "no_text")))
        elif speech.request_id is None and speech.known >= speech.length - 1:
            self._submit(key, speech)

    def _submit(self, key: RequestKey, speech: Speech) -> None:
        """Start with every row that is known; a last row that is not is fed as a decode step."""
        whole = speech.ready(speech.length - 1)
        length = speech.length if whole else speech.length - 1
        code = speech.sampling.code
        extra = 0 if whole else 1  # the filler that a prompt without its last row draws
        sampling = replace(
            code, max_tokens=code.max_tokens + extra, repetition_penalty=1.0, seed=speech.seed
        )
        prompt = [self.facts.filler] * length
        speech.request_id = self._engine.submit(key, Generation(prompt, sampling))
        self.speeches[speech.request_id] = speech

    def _special_rows(self) -> torch.Tensor:
        """Return the rows of no text and of the end of text, [2, hidden]."""
        return self._rows.text(np.array([self.facts.tts_pad, self.facts.tts_eos]))

    # What a step does

    def may_run(self, req: Req) -> bool:
        """Return whether the input of the request's next position has come."""
        return self.speeches[req.rid].ready(req.seqlen - 1)

    def launched(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Complete the frames of the rows that speak, and keep what they feed back."""
        lengths = _lengths(batch)
        chosen = [
            index
            for index, req in enumerate(batch.reqs)
            # An aborted row runs once more, on any input; nobody hears it.
            if req.to_finish is None and self.speeches[req.rid].speaks(lengths[index])
        ]
        if not chosen:
            return
        speeches = [self.speeches[batch.reqs[index].rid] for index in chosen]
        codes = result.next_token_ids[chosen].long()
        hidden = result.logits_output.hidden_states[chosen]
        frames = self._maker.make(codes, hidden, speeches)
        on_host = frames.codes.to(torch.int16).cpu()
        for row, (speech, said) in enumerate(zip(speeches, on_host.tolist(), strict=True)):
            if said[0] != self.facts.eos:
                speech.say(said, on_host[row], frames.feedback[row])

    def failed(self, batch: ScheduleBatch) -> None:
        """Nothing to do: what was said in the step is said to nobody."""

    def settling(self, batch: ScheduleBatch) -> None:
        """Nothing to do."""

    def produced(self, rows: Sequence[NewTokens]) -> Iterable[StepOutput]:
        """Send the frames that are due, those of all rows together."""
        leaving: list[tuple[RequestKey, list[torch.Tensor]]] = []
        for row in rows:
            speech = self.speeches[row.request_id]
            failed = row.finish is not None and row.finish.error is not None
            ended = row.finish is not None
            if failed or not speech.unsent():
                continue
            if ended or self.pacing.due(speech.sent, speech.unsent()):
                leaving.append((row.key, speech.leave()))
        if leaving:
            yield self._frames(leaving)

    def result(self, row: NewTokens) -> Result:
        """Say how the speech ended."""
        assert row.finish is not None
        return Result(row.key, _said(self.speeches[row.request_id], row.finish.reason))

    def drop(self, key: RequestKey) -> None:
        """Forget a request."""
        self._incoming.pop(key, None)
        speech = self._by_key.pop(key, None)
        if speech is not None and speech.request_id is not None:
            self.speeches.pop(speech.request_id, None)

    def _frames(self, leaving: Sequence[tuple[RequestKey, list[torch.Tensor]]]) -> StepOutput:
        most = max(len(frames) for _, frames in leaving)
        codes = torch.zeros((len(leaving), most, self.facts.groups), dtype=torch.int16)
        for index, (_, frames) in enumerate(leaving):
            codes[index, : len(frames)] = torch.stack(frames)
        counts = np.array([len(frames) for _, frames in leaving], np.int32)
        columns = {"codes": codes, "frames": counts}
        keys = tuple(key for key, _ in leaving)
        return StepOutput(self._engine.step, keys, columns, target="code2wav")


def _said(speech: Speech, reason: str) -> dict[str, Tree]:
    return {
        "frames": speech.sent,
        "finish_reason": reason,
        "start_tokens": speech.start_tokens,
    }


def _lengths(batch: ScheduleBatch) -> list[int]:
    if batch.forward_mode.is_extend():
        return [req.extend_end for req in batch.reqs]
    lengths: list[int] = batch.seq_lens_cpu.tolist()
    return lengths
