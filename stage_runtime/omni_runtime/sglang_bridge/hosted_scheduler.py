"""SGLang's scheduler, whole, driven by the stage that hosts it.

Every override below is a short detour around a method of SGLang's, never a copy of one. They do
four things: requests come from and results go to the host, rows may sit out of decode steps, the
host sees each step between its forward pass and its results, and a loop without work sleeps.
`contract` lists what they rely on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import NextBatchPlan, Req, ScheduleBatch
from sglang.srt.managers.scheduler import GenerationBatchResult, Scheduler
from sglang.srt.managers.scheduler_components.request_receiver import SchedulerRequestReceiver
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.utils import TypeBasedDispatcher
from torch import nn

from omni_runtime.sglang_bridge.batch_rows import batch_rows, split_rows
from omni_runtime.sglang_bridge.channels import HostStreamer, host_receiver, no_channels
from omni_runtime.sglang_bridge.generation import Cancel, Gate, Stop, Submit
from omni_runtime.sglang_bridge.grammars import grammars_of
from omni_runtime.sglang_bridge.kv_budget import KvBudget, kv_budget
from omni_runtime.sglang_bridge.prefill_gathering import PrefillGathering
from omni_runtime.sglang_bridge.request import generate_request
from omni_runtime.sglang_bridge.row_sampler import LogitsEditor, RowSampler
from omni_runtime.sglang_bridge.step_guard import FailedStep, StepGuard
from omni_runtime.sglang_bridge.stop_texts import StopTexts

# A loop that is neither idle nor able to run looks again after this long.
RETRY_SECONDS = 0.02


class Host(Protocol):
    """What the scheduler asks of the stage that hosts it; always on the scheduler's thread."""

    def pull(self) -> list[object]:
        """Return messages since the last call."""
        ...

    def wait(self, timeout_seconds: float | None) -> None:
        """Sleep until there is a message, or until the timeout."""
        ...

    def may_run(self, req: Req) -> bool:
        """Return whether the input of the request's next step has come."""
        ...

    def launching(self, batch: ScheduleBatch) -> None:
        """A step starts."""
        ...

    def launched(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """The forward pass and the draw of a step are under way or done."""
        ...

    def failed(self, batch: ScheduleBatch) -> None:
        """A step raised; its requests end, and its results are not settled."""
        ...

    def settling(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """The results of a step are about to be processed."""
        ...

    def settled(self) -> None:
        """They have been."""
        ...

    def streamed(self, reqs: Sequence[Req]) -> None:
        """Requests got tokens or ended; those that ended hold nothing any more."""
        ...

    def aborted(self, request_id: str, reason: Mapping[str, object] | None) -> None:
        """A request ended before or between its steps; it holds nothing any more."""
        ...


class HostedScheduler(Scheduler):
    """SGLang's scheduler with a host.

    Args:
        host: the stage.
        model_stops: tokens that end every answer.
        tokenizer: checks stop texts; None where no request can have any.
        budget: what the KV pool may take; None leaves it to SGLang's arguments.
        editor: the model's own change of logits.
        gathering: when prefills wait for company; None where they never do.
        overlap_min_batch: rows from which a decode step is prepared while the last one runs.
    """

    request_receiver: SchedulerRequestReceiver
    running_batch: ScheduleBatch
    waiting_queue: list[Req]
    row_sampler: RowSampler
    guard: StepGuard

    def __init__(
        self,
        server_args: ServerArgs,
        port_args: PortArgs,
        host: Host,
        *,
        model_stops: frozenset[int],
        tokenizer: StopTexts | None = None,
        budget: KvBudget | None = None,
        editor: LogitsEditor | None = None,
        gathering: PrefillGathering | None = None,
        overlap_min_batch: int = 1,
    ) -> None:
        self.host = host
        self.held: ScheduleBatch | None = None
        self.closed_rows: set[str] = set()
        self._model_stops, self._stop_tokenizer = model_stops, tokenizer
        self._budget, self._editor, self._gathering = budget, editor, gathering
        self._overlap_min_batch = overlap_min_batch
        self._arrived: dict[str, float] = {}
        super().__init__(server_args, port_args)

    # Construction

    def init_model_config(self) -> None:
        super().init_model_config()
        # Stop tokens travel with each request; a checkpoint's generation config may list others.
        self.model_config.hf_eos_token_id = None

    def init_ipc_channels(self, port_args: PortArgs) -> None:
        self.ipc_channels = no_channels()
        self.load_snapshot_writer = None
        self.recv_from_tokenizer = None

    def init_tokenizer(self) -> None:
        super().init_tokenizer()
        self.tokenizer = self._stop_tokenizer

    def init_target_memory_pool(self) -> None:
        with kv_budget(self._budget):
            super().init_target_memory_pool()

    def init_model_worker(self) -> None:
        super().init_model_worker()
        runner = self.tp_worker.model_runner
        self.guard = StepGuard(torch.device(runner.device), self.server_args.tp_size)
        guarded = self.guard.guarded(self.tp_worker.forward_batch_generation)
        self.tp_worker.forward_batch_generation = guarded
        self.row_sampler = runner.sampler = RowSampler(runner.sampler, self._editor)

    def init_grammar_manager(self) -> None:
        super().init_grammar_manager()
        if self._stop_tokenizer is not None and self._stop_tokenizer.pieces:
            size = self.model_config.vocab_size
            self.grammar_manager.grammar_backend = grammars_of(
                self.server_args, self._stop_tokenizer.pieces[:size], self._model_stops
            )

    def init_request_dispatcher(self) -> None:
        super().init_request_dispatcher()
        self._request_dispatcher += TypeBasedDispatcher(
            [
                (Submit, self._submit),
                (Gate, self._gate),
                (Cancel, lambda cancel: self.abort_request(AbortReq(rid=cancel.request_id))),
                (Stop, self.handle_shutdown),
            ]
        )

    def init_request_receiver(self) -> None:
        super().init_request_receiver()
        self.request_receiver = host_receiver(self.request_receiver, self.host.pull)

    def get_output_streamer_class(self) -> type[HostStreamer]:
        return HostStreamer

    def init_output_streamer(self) -> None:
        super().init_output_streamer()
        self.output_streamer.sink = self._streamed

    @property
    def model(self) -> nn.Module:
        """The model whose forward pass the steps run."""
        return self.tp_worker.model_runner.model

    # Requests in and out

    def _submit(self, submit: Submit) -> None:
        generation = submit.generation
        stops = self._model_stops | generation.sampling.stop_token_ids
        self.row_sampler.open(
            submit.request_id,
            generation.sampling,
            submit.fallback_seed,
            stops,
            generation.prompt_ids,
        )
        self._arrived[submit.request_id] = time.monotonic()
        request = generate_request(submit, self._model_stops, self._stop_tokenizer)
        self.handle_generate_request(request)

    def _gate(self, gate: Gate) -> None:
        if gate.open:
            self.closed_rows.discard(gate.request_id)
        else:
            self.closed_rows.add(gate.request_id)

    def _forget(self, request_id: str) -> None:
        self.row_sampler.close(request_id)
        self.closed_rows.discard(request_id)
        self._arrived.pop(request_id, None)

    def _streamed(self, reqs: Sequence[Req]) -> None:
        ended = [req for req in reqs if req.finished()]
        for req in ended:
            req.finished_output = True
        self.host.streamed(reqs)
        for req in ended:
            self._forget(req.rid)

    def send_abort_output(self, abort_req: Req, req: Req) -> None:
        self._forget(req.rid)
        self.host.aborted(req.rid, abort_req.finished_reason)

    # The gate in front of a decode step

    def may_run(self, req: Req) -> bool:
        """Whether a row may be part of the next step; one that ends may, to be cleaned up."""
        if req.finished() or req.to_finish is not None:
            return True
        return req.rid not in self.closed_rows and self.host.may_run(req)

    def ingest_requests(self, *args: object, **kwargs: object) -> list[object]:
        # Back before aborts are looked up, so that a held row is found where running rows are.
        held, self.held = self.held, None
        if held is not None:
            if self.running_batch.is_empty():
                self.running_batch = held
            else:
                self.running_batch.merge_batch(held)
        requests: list[object] = super().ingest_requests(*args, **kwargs)
        return requests

    def update_running_batch(self, batch: ScheduleBatch) -> ScheduleBatch | None:
        waiting = [index for index, req in enumerate(batch.reqs) if not self.may_run(req)]
        if waiting:
            held = self.held = split_rows(batch, waiting)
            if batch.is_empty():
                return None
            self._make_room(batch, held)
        return super().update_running_batch(batch)

    def get_new_batch_prefill(self, running_batch: ScheduleBatch) -> NextBatchPlan:
        # A retracted row is in the queue again and may lack the input of its last position.
        parked = [req for req in self.waiting_queue if not self.may_run(req)]
        if self._gathers(running_batch):
            return NextBatchPlan(batch_to_run=None, running_batch=running_batch)
        if not parked:
            return super().get_new_batch_prefill(running_batch)
        self.waiting_queue = [req for req in self.waiting_queue if req not in parked]
        plan = super().get_new_batch_prefill(running_batch)
        self.waiting_queue = parked + self.waiting_queue
        return plan

    def _gathers(self, running_batch: ScheduleBatch) -> bool:
        if self._gathering is None or not self.waiting_queue or self.chunked_req is not None:
            return False
        oldest = min(self._arrived[req.rid] for req in self.waiting_queue)
        waited = time.monotonic() - oldest
        decoding = not running_batch.is_empty()
        return self._gathering.waits(len(self.waiting_queue), waited, decoding)

    def _make_room(self, batch: ScheduleBatch, held: ScheduleBatch) -> None:
        """Let held rows give up their memory before running ones do: they cannot use it now."""
        while not held.is_empty() and not batch.check_decode_mem():
            order = ScheduleBatch._get_decode_retraction_order(held.reqs)
            req = held.reqs[order[-1]]
            held.release_req(order[-1], len(batch.reqs))
            held.filter_batch(keep_indices=sorted(order[:-1]))
            self._add_request_to_queue(req, is_retracted=True)
        if held.is_empty():
            self.held = None

    # One step

    def is_disable_overlap_for_batch(
        self, batch: ScheduleBatch | None, last_batch: ScheduleBatch | None
    ) -> bool:
        small = (
            batch is not None
            and batch.forward_mode.is_decode()
            and len(batch.reqs) < self._overlap_min_batch
        )
        return small or bool(super().is_disable_overlap_for_batch(batch, last_batch))

    def run_batch(
        self, batch: ScheduleBatch, pp_proxy_tensors: object = None
    ) -> GenerationBatchResult:
        self.host.launching(batch)
        self.row_sampler.begin(batch, batch_rows(batch))
        result = super().run_batch(batch, pp_proxy_tensors)
        if not isinstance(result, FailedStep):
            try:
                self.host.launched(batch, result)
            except Exception as error:
                result = self.guard.failed(batch, error)
        if isinstance(result, FailedStep):
            self.host.failed(batch)
        return result

    def process_batch_result(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        if not isinstance(result, FailedStep):
            self.host.settling(batch, result)
        if result.copy_done is not None:
            result.copy_done.synchronize()
        self.row_sampler.logprobs.settle()
        super().process_batch_result(batch, result)
        self.host.settled()

    # Nothing to do

    def is_fully_idle(self, *args: object, **kwargs: object) -> bool:
        return self.held is None and super().is_fully_idle(*args, **kwargs)

    def on_idle(self) -> None:
        super().on_idle()
        if self.gracefully_exit:
            return
        compiling = self.grammar_manager.has_waiting_grammars()
        stuck = self.chunked_req is not None or any(map(self.may_run, self.waiting_queue))
        self.host.wait(RETRY_SECONDS if stuck or compiling else None)
