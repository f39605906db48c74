"""Sampling with seeds, biases and penalties kept per request, beside SGLang's own sampler.

SGLang ignores seeds on this path, and its penalties live in the batch: they are lost when a row is
retracted and wrong when a row is held back. Here everything a draw depends on is kept by request
id. A batch in which nobody asks for any of it goes to SGLang's sampler untouched. Grammars are
SGLang's: what they forbid is -inf in the logits that come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from omni_runtime.sglang_bridge.logprobs import LogprobLedger
from omni_runtime.sglang_bridge.sampling import Sampling
from omni_runtime.sglang_bridge.seeded_draw import DrawOptions, draw

if TYPE_CHECKING:
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of the batch about to be sampled.

    Attributes:
        request_id: SGLang's id of the request.
        prompt_length: tokens of its prompt.
        output_ids: tokens generated and known on the host, which may lag by one.
        length: tokens whose keys and values this step completes.
        last_token: index into the batch's input ids of the row's last input token.
    """

    request_id: str
    prompt_length: int
    output_ids: Sequence[int]
    length: int
    last_token: int

    @property
    def generated(self) -> int:
        """Tokens generated before the one about to be sampled."""
        return self.length - self.prompt_length


class LogitsEditor(Protocol):
    """A model's own change of the logits before anything is drawn."""

    def __call__(self, logits: torch.Tensor, rows: Sequence[BatchRow]) -> torch.Tensor:
        """Return the logits to sample from, float32 [rows, vocabulary]."""
        ...


@dataclass(slots=True)
class _Row:
    """What draws of one request depend on."""

    sampling: Sampling
    seed: int
    stop_token_ids: tuple[int, ...]
    prompt_ids: Sequence[int]
    counted: int = 0
    counts: torch.Tensor | None = None
    in_prompt: torch.Tensor | None = field(default=None, repr=False)
    bias: torch.Tensor | None = field(default=None, repr=False)


_GONE = _Row(Sampling(max_tokens=1), 0, (), ())
"""A row that has ended: where a step waits for the one before, to see what its grammar allows, it
is drawn only after that one has ended requests. What it draws is thrown away.
"""


class RowSampler:
    """Stands where SGLang's sampler stood and hands plain batches to it.

    Args:
        stock: SGLang's sampler.
        editor: the model's own change of logits; None changes nothing.

    Attributes:
        logprobs: of the tokens drawn for requests that want to know.
    """

    def __init__(self, stock: Sampler, editor: LogitsEditor | None = None) -> None:
        self.stock = stock
        self.logprobs = LogprobLedger()
        self._editor = editor
        self._rows: dict[str, _Row] = {}
        self._batch: Sequence[BatchRow] = ()
        self._schedule_batch: ScheduleBatch = None

    def __len__(self) -> int:
        return len(self._rows)

    def open(
        self,
        request_id: str,
        sampling: Sampling,
        fallback_seed: int,
        stop_token_ids: frozenset[int],
        prompt_ids: Sequence[int],
    ) -> None:
        """Register a request before its first batch.

        Args:
            fallback_seed: seed of a request that named none, for batches with seeded neighbours;
                the same on every rank.
        """
        seed = fallback_seed if sampling.seed is None else sampling.seed
        stops = tuple(sorted(stop_token_ids))
        self._rows[request_id] = _Row(sampling, seed, stops, prompt_ids)
        if sampling.top_logprobs is not None:
            self.logprobs.open(request_id, sampling.top_logprobs)

    def close(self, request_id: str) -> None:
        """Forget a request; unknown ones are fine."""
        self._rows.pop(request_id, None)
        self.logprobs.close(request_id)

    def begin(self, batch: ScheduleBatch, rows: Sequence[BatchRow]) -> None:
        """Tell which rows the next call samples; `batch.input_ids` is read then."""
        self._schedule_batch, self._batch = batch, rows
        self.logprobs.begin()

    def compute_logprobs_only(self, *args: object, **kwargs: object) -> None:
        """Log-probabilities without sampling are SGLang's business."""
        self.stock.compute_logprobs_only(*args, **kwargs)

    def __call__(
        self,
        logits_output: LogitsProcessorOutput,
        sampling_info: SamplingBatchInfo,
        return_logprob: bool,
        top_logprobs_nums: object,
        token_ids_logprobs: object,
        positions: torch.Tensor,
        **more: object,
    ) -> torch.Tensor:
        """Return the next token of every row, int64 [rows]."""
        rows = [self._rows.get(row.request_id, _GONE) for row in self._batch]
        logits = logits_output.next_token_logits
        if not (len(rows) == len(logits) and self._changes(rows)):
            stock: torch.Tensor = self.stock(
                logits_output,
                sampling_info,
                return_logprob,
                top_logprobs_nums,
                token_ids_logprobs,
                positions,
                **more,
            )
            return stock
        edited = logits.float()
        if self._editor is not None:
            edited = self._editor(edited, self._batch)
        edited = self._penalised(edited, rows)
        counters = torch.tensor([row.length for row in self._batch], device=edited.device)
        tokens = draw(edited, _options(rows, edited), counters)
        self.logprobs.note([(row.request_id, row.generated) for row in self._batch], edited, tokens)
        return tokens

    def _changes(self, rows: Sequence[_Row]) -> bool:
        """Whether SGLang's own sampler would draw other tokens than is asked for."""
        if self._editor is not None:
            return all(row is not _GONE for row in rows)
        return not all(row.sampling.plain for row in rows)

    def _penalised(self, logits: torch.Tensor, rows: Sequence[_Row]) -> torch.Tensor:
        changed = logits
        for index, (seen, row) in enumerate(zip(self._batch, rows, strict=True)):
            sampling = row.sampling
            early = seen.generated < sampling.min_tokens
            if not (sampling.penalised or sampling.logit_bias or early):
                continue
            if changed is logits:
                changed = logits.clone()
            if sampling.logit_bias:
                changed[index] += _bias(row, changed)
            if sampling.penalised:
                self._count(row, seen, changed)
                changed[index] = _penalty(changed[index], row)
            if early:
                changed[index, list(row.stop_token_ids)] = -torch.inf
        return changed

    def _count(self, row: _Row, seen: BatchRow, logits: torch.Tensor) -> None:
        """Bring the row's counts up to the tokens before this step's."""
        if row.counts is None:
            row.counts = torch.zeros(logits.shape[-1], dtype=torch.int32, device=logits.device)
            row.in_prompt = torch.zeros_like(row.counts, dtype=torch.bool)
            prompt = torch.as_tensor(list(set(row.prompt_ids)), device=logits.device)
            row.in_prompt[prompt[prompt < logits.shape[-1]]] = True
        fresh = list(seen.output_ids[row.counted : seen.generated])
        if fresh:
            tokens = torch.as_tensor(fresh, device=logits.device)
            row.counts.scatter_add_(0, tokens, torch.ones_like(tokens, dtype=torch.int32))
            row.counted += len(fresh)
        if row.counted < seen.generated:
            # With the overlapped schedule the newest token is on the device only: it is this
            # step's input.
            token = self._schedule_batch.input_ids[seen.last_token].long().reshape(1)
            row.counts.scatter_add_(0, token, torch.ones_like(token, dtype=torch.int32))
            row.counted += 1


def _bias(row: _Row, logits: torch.Tensor) -> torch.Tensor:
    if row.bias is None:
        tokens, values = zip(*row.sampling.logit_bias, strict=True)
        row.bias = torch.zeros(logits.shape[-1], device=logits.device)
        row.bias[list(tokens)] = torch.tensor(values, device=logits.device)
    return row.bias


def _penalty(logits: torch.Tensor, row: _Row) -> torch.Tensor:
    assert row.counts is not None
    assert row.in_prompt is not None
    sampling, generated = row.sampling, row.counts > 0
    factor = sampling.repetition_penalty
    repeated = torch.where(logits < 0, logits * factor, logits / factor)
    logits = torch.where(generated | row.in_prompt, repeated, logits)
    return (
        logits
        - sampling.frequency_penalty * row.counts
        - sampling.presence_penalty * generated.float()
    )


def _options(requests: Sequence[_Row], logits: torch.Tensor) -> DrawOptions:
    device, vocabulary = logits.device, logits.shape[-1]
    rows = [request.sampling for request in requests]
    top_k = [vocabulary if row.top_k is None else min(row.top_k, vocabulary) for row in rows]
    temperature = [1.0 if row.greedy else row.temperature for row in rows]
    drawn_top_k = [k for k, row in zip(top_k, rows, strict=True) if not row.greedy]
    return DrawOptions(
        temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
        top_k=torch.tensor(top_k, device=device),
        top_p=torch.tensor([row.top_p for row in rows], dtype=torch.float32, device=device),
        min_p=torch.tensor([row.min_p for row in rows], dtype=torch.float32, device=device),
        greedy=torch.tensor([row.greedy for row in rows], device=device),
        seed=torch.tensor([request.seed for request in requests], device=device),
        most_top_k=max(drawn_top_k, default=1),
    )
