"""Start-up check of every seam of SGLang that the bridge stands on.

The bridge derives from SGLang's scheduler and calls a few of its parts. A new release can rename or
reshape any of them. Without this check that would show as a hang or a wrong token; with it the
stage refuses to start and names each symbol and what changed about it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from omni_config.errors import OmniError


class SeamBroken(OmniError):
    """This SGLang lacks, or has changed, something the bridge relies on."""

    def __init__(self, version: str, changes: Sequence[str]) -> None:
        super().__init__(f"SGLang {version} does not fit the bridge: {'; '.join(changes)}")
        self.changes = tuple(changes)


@dataclass(frozen=True, slots=True)
class Seam:
    """One symbol relied on.

    Attributes:
        module: where it is imported from.
        name: dotted path inside the module.
        parameters: parameters it must accept, by name.
        fields: dataclass, struct or annotated fields it must have.
    """

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_MANAGERS = "sglang.srt.managers"
_SCHEDULER = f"{_MANAGERS}.scheduler"
_BATCH = f"{_MANAGERS}.schedule_batch"
_PARTS = f"{_MANAGERS}.scheduler_components"
_RUNNER = "sglang.srt.model_executor.model_runner"
_LOADER = "sglang.srt.model_loader.loader"


def _methods(module: str, owner: str, *methods: str | tuple[str, ...]) -> Iterator[Seam]:
    for method in methods:
        name, *parameters = (method,) if isinstance(method, str) else method
        yield Seam(module, f"{owner}.{name}", tuple(parameters))


SEAMS: tuple[Seam, ...] = (
    *_methods(
        _SCHEDULER,
        "Scheduler",
        ("__init__", "server_args", "port_args"),
        "init_model_config",
        ("init_ipc_channels", "port_args"),
        "init_tokenizer",
        "init_target_memory_pool",
        "init_model_worker",
        "init_grammar_manager",
        "init_request_dispatcher",
        "init_request_receiver",
        "init_output_streamer",
        "get_output_streamer_class",
        "run_event_loop",
        ("is_disable_overlap_for_batch", "batch", "last_batch"),
        "ingest_requests",
        ("handle_generate_request", "recv_req"),
        ("send_abort_output", "abort_req", "req"),
        ("abort_request", "recv_req"),
        ("_add_request_to_queue", "req", "is_retracted"),
        ("get_new_batch_prefill", "running_batch"),
        ("update_running_batch", "batch"),
        ("run_batch", "batch", "pp_proxy_tensors"),
        ("process_batch_result", "batch", "result"),
        "is_fully_idle",
        "on_idle",
    ),
    *_methods(
        _BATCH,
        "ScheduleBatch",
        ("filter_batch", "keep_indices"),
        ("merge_batch", "other"),
        "check_decode_mem",
        ("release_req", "idx", "remaing_req_count"),
        ("_get_decode_retraction_order", "reqs"),
        "is_empty",
    ),
    Seam(_BATCH, "ScheduleBatch", fields=("reqs", "sampling_info", "forward_mode", "input_ids")),
    Seam(_BATCH, "ScheduleBatch", fields=("seq_lens_cpu", "extend_lens", "multimodal_inputs")),
    Seam(_BATCH, "NextBatchPlan", ("batch_to_run", "running_batch")),
    Seam(_BATCH, "Modality.IMAGE"),
    Seam(_BATCH, "Modality.VIDEO"),
    Seam(_BATCH, "Modality.AUDIO"),
    Seam(_BATCH, "Req.finished"),
    Seam(_BATCH, "Req.seqlen"),
    Seam(_BATCH, "FINISH_ABORT", ("message", "err_type")),
    Seam(_BATCH, "FINISH_MATCHED_STR"),
    Seam(_BATCH, "FINISH_MATCHED_TOKEN"),
    Seam(
        _BATCH,
        "MultimodalDataItem",
        fields=("modality", "offsets", "precomputed_embeddings"),
    ),
    Seam(_BATCH, "MultimodalDataItem.set_identity", ("identity",)),
    Seam(_BATCH, "MultimodalDataItem.padding_sequence", ("length",)),
    Seam(
        _BATCH,
        "MultimodalInputs",
        fields=("mm_items", "padded_input_ids", "mrope_positions", "mrope_position_delta"),
    ),
    Seam(f"{_MANAGERS}.io_struct", "AbortReq", fields=("rid", "finished_reason")),
    Seam(f"{_MANAGERS}.io_struct", "ShutdownReq"),
    Seam(f"{_MANAGERS}.utils", "GenerationBatchResult", fields=("logits_output", "next_token_ids")),
    Seam(f"{_MANAGERS}.tp_worker", "TpModelWorker.forward_batch_generation", ("batch",)),
    Seam(
        f"{_MANAGERS}.io_struct",
        "TokenizedGenerateReqInput",
        fields=("rid", "input_ids", "mm_inputs", "sampling_params", "stream"),
    ),
    Seam(
        f"{_PARTS}.ipc_channels",
        "SchedulerIpcChannels",
        fields=(
            "recv_from_tokenizer",
            "recv_from_rpc",
            "send_to_tokenizer",
            "send_to_detokenizer",
            "send_metrics_from_scheduler",
        ),
    ),
    Seam(f"{_PARTS}.request_receiver", "SchedulerRequestReceiver._pull_raw_reqs"),
    Seam(
        f"{_PARTS}.request_receiver",
        "SchedulerRequestReceiver._broadcast_reqs_across_ranks",
        ("recv_reqs", "local_reqs"),
    ),
    Seam(
        f"{_PARTS}.output_streamer",
        "SchedulerOutputStreamer.stream_output",
        ("reqs", "return_logprob", "skip_req"),
    ),
    Seam("sglang.srt.layers.sampler", "Sampler.forward", ("logits_output", "positions")),
    Seam("sglang.srt.layers.logits_processor", "LogitsProcessor.forward"),
    Seam(
        "sglang.srt.layers.logits_processor",
        "LogitsProcessorOutput",
        fields=("next_token_logits", "hidden_states"),
    ),
    Seam(_RUNNER, "ModelRunner.sample", ("logits_output", "forward_batch")),
    Seam(
        "sglang.srt.mem_cache.kv_cache_configurator",
        "KVCacheConfigurator._profile_available_bytes",
        ("pre_model_load_memory",),
    ),
    Seam(
        "sglang.srt.model_executor.model_runner_components.load_model_utils",
        "get_model_loader",
        ("load_config", "model_config"),
    ),
    Seam(_LOADER, "BaseModelLoader.load_model", ("model_config", "device_config")),
    Seam(_LOADER, "_initialize_model", ("model_config", "load_config", "quant_config")),
    Seam(_LOADER, "_get_quantization_config", ("model_config", "load_config")),
    Seam("sglang.srt.model_loader.utils", "set_default_torch_dtype", ("dtype",)),
    Seam("sglang.srt.runtime_context", "publish", ("server_args", "role", "ranks")),
    Seam("sglang.srt.runtime_context", "SpawnRanks", fields=("world_rank", "gpu_id")),
    Seam("sglang.srt.server_args", "PortArgs.init_new", ("server_args",)),
    Seam("sglang.srt.server_args", "ServerArgs.resolve_once"),
    Seam(
        "sglang.srt.configs.model_config_parser_registry",
        "register_model_config_parser",
        ("name",),
    ),
    Seam("sglang.srt.plugins", "load_plugins"),
    Seam("sglang.srt.platforms.cpu", "CpuDeviceMixin"),
    Seam("sglang.srt.platforms.interface", "PlatformEnum.OOT"),
    Seam("sglang.srt.platforms.interface", "SRTPlatform.is_out_of_tree"),
    Seam("sglang.srt.platforms.interface", "SRTPlatform.get_default_attention_backend"),
    Seam("sglang.srt.platforms.interface", "SRTPlatform.get_dispatch_key_name"),
    Seam("sglang.srt.sampling.sampling_params", "SamplingParams.normalize", ("tokenizer",)),
    Seam(
        "sglang.srt.sampling.sampling_params",
        "SamplingParams",
        fields=("json_schema", "structural_tag"),
    ),
    *_methods("sglang.srt.constrained.grammar_manager", "GrammarManager", "has_waiting_grammars"),
    *_methods(
        "sglang.srt.constrained.xgrammar_backend",
        "XGrammarGrammarBackend",
        ("__init__", "tokenizer", "vocab_size", "max_whitespace_cnt"),
        ("set_cache", "key", "value"),
        ("dispatch_structural_tag", "key_string"),
    ),
    Seam("sglang.srt.sampling.sampling_batch_info", "SamplingBatchInfo"),
    Seam("sglang.srt.constrained.base_grammar_backend", "BaseGrammarObject"),
    Seam("sglang.srt.constrained.xgrammar_backend", "XGrammarGrammarBackend"),
    Seam("sglang.srt.configs.device_config", "DeviceConfig"),
    Seam("sglang.srt.configs.load_config", "LoadConfig"),
    Seam("sglang.srt.configs.model_config", "ModelConfig"),
    Seam(_SCHEDULER, "GenerationBatchResult"),
    Seam("sglang.utils", "TypeBasedDispatcher"),
)


def check_seams(seams: Iterable[Seam] = SEAMS) -> None:
    """Look at every seam.

    Raises:
        SeamBroken: one or more are missing or changed; all of them are named.
    """
    changes = [change for seam in seams for change in _changes(seam)]
    if changes:
        raise SeamBroken(_version(), changes)


def _changes(seam: Seam) -> Iterator[str]:
    try:
        symbol: object = importlib.import_module(seam.module)
    except ImportError as error:
        yield f"{seam.module} cannot be imported ({error})"
        return
    for part in seam.name.split("."):
        if not hasattr(symbol, part):
            yield f"{seam} is gone"
            return
        symbol = getattr(symbol, part)
    if seam.parameters:
        yield from _parameter_changes(seam, symbol)
    known = _fields(symbol) if seam.fields else frozenset()
    yield from (f"{seam} has no field '{name}'" for name in seam.fields if name not in known)


def _parameter_changes(seam: Seam, symbol: object) -> Iterator[str]:
    if not callable(symbol):
        yield f"{seam} is no longer callable"
        return
    signature = inspect.signature(symbol).parameters
    kinds = {parameter.kind for parameter in signature.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    for name in seam.parameters:
        if name not in signature:
            yield f"{seam} takes no '{name}' any more (it takes {', '.join(signature)})"


def _fields(symbol: object) -> frozenset[str]:
    names = {
        name
        for owner in getattr(symbol, "__mro__", ())
        for name in getattr(owner, "__annotations__", {})
    }
    return frozenset(names | set(getattr(symbol, "__struct_fields__", ())))


def _version() -> str:
    from importlib.metadata import version

    return version("sglang")
