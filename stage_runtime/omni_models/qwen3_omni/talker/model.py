"""The talker's language model as an SGLang model: input rows come from speeches, not token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor, LogitsProcessorOutput
from sglang.srt.layers.quantization.base_config import QuantizationConfig
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.model_executor.forward_batch_info import ForwardBatch
from sglang.srt.models.qwen2_moe import Qwen2MoeSparseMoeBlock
from sglang.srt.models.qwen3_moe import Qwen3MoeDecoderLayer, Qwen3MoeModel
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig

from omni_models.qwen3_omni import moe_weights
from omni_models.qwen3_omni.talker.code_predictor import CodePredictor
from omni_models.qwen3_omni.talker.speech import Speech


class _MoeBlock(Qwen2MoeSparseMoeBlock):
    """Routed experts and a shared one; on the CPU without SGLang's Triton kernel for their sum."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        forward_batch: ForwardBatch | None = None,
        **more: object,
    ) -> torch.Tensor:
        if hidden_states.is_cuda:
            summed: torch.Tensor = super().forward(hidden_states, forward_batch, **more)
            return summed
        shared: torch.Tensor = self._forward_shared_experts(hidden_states)
        return self._forward_router_experts(hidden_states) + shared


class _DecoderLayer(Qwen3MoeDecoderLayer):
    """Qwen3's attention with Qwen2's experts, which have a shared one."""

    def __init__(self, config: PretrainedConfig, layer_id: int, **more: object) -> None:
        super().__init__(config, layer_id, **more)
        self.mlp = _MoeBlock(
            layer_id=layer_id,
            config=config,
            quant_config=more.get("quant_config"),
            prefix=f"{more.get('prefix', '')}.mlp",
            reduce_results=False,
        )


class _Projection(nn.Module):
    """From the thinker's width to the talker's."""

    def __init__(self, inputs: int, inner: int, outputs: int) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(inputs, inner)
        self.linear_fc2 = nn.Linear(inner, outputs)

    @torch.no_grad()
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear_fc2(functional.silu(self.linear_fc1(rows)))
        return out


class OmniTalker(nn.Module):
    """Talker and code predictor.

    Attributes:
        speeches: by SGLang's id of the request; kept by the stage's program.
    """

    packed_modules_mapping = moe_weights.PACKED_MODULES

    def __init__(
        self,
        config: PretrainedConfig,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__()
        self.config = config
        talker = config.omni.talker_config
        self.model = Qwen3MoeModel(
            config, quant_config, prefix="model", decoder_layer_type=_DecoderLayer
        )
        self.codec_head = ParallelLMHead(config.vocab_size, config.hidden_size, prefix="codec_head")
        self.logits_processor = LogitsProcessor(config)
        widths = talker.thinker_hidden_size, config.intermediate_size, config.hidden_size
        self.text_projection = _Projection(*widths)
        self.hidden_projection = _Projection(*widths)
        predictor = talker.code_predictor_config
        self.code_predictor = CodePredictor(predictor, _rope_theta(predictor))
        self.speeches: Mapping[str, Speech] = {}
        self._rows: torch.Tensor | None = None
        self._prompt_rows: torch.Tensor | None = None

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of code 0."""
        return self.model.embed_tokens

    def prepare_for_forward(self, batch: ForwardBatch) -> None:
        """SGLang's hook before every forward pass: gather the rows of what is about to run."""
        if batch.rids is None:
            return
        ends = batch.seq_lens_cpu.tolist()
        decodes = batch.forward_mode.is_decode()
        starts = [end - 1 for end in ends] if decodes else batch.extend_prefix_lens_cpu
        spans = [
            (self.speeches[request_id], start, end)
            for request_id, start, end in zip(batch.rids, starts, ends, strict=True)
        ]
        rows = torch.cat([speech.rows(start, end) for speech, start, end in spans])
        places = torch.cat([speech.places(start, end) for speech, start, end in spans], -1)
        batch.mrope_positions = places.to(rows.device)
        if decodes:
            self._decode_rows(len(rows), rows.device)[:] = rows
        else:
            self._prompt_rows = rows

    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        **more: object,
    ) -> LogitsProcessorOutput:
        """Return logits of code 0, and hidden rows, of the last position of every row."""
        if forward_batch.mrope_positions is not None:
            positions = forward_batch.mrope_positions
        if forward_batch.forward_mode.is_decode():
            rows = self._decode_rows(input_ids.shape[0], input_ids.device)
        else:
            rows = self._prompt_rows
            if rows is None or len(rows) != len(input_ids):  # SGLang warms up without requests
                rows = self.model.embed_tokens(input_ids)
        hidden = self.model(input_ids, positions, forward_batch, rows)
        return self.logits_processor(input_ids, hidden, self.codec_head, forward_batch)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load `talker.*`; the rest belongs to other stages."""
        return moe_weights.load(self, weights, _name_of)

    def _decode_rows(self, count: int, device: torch.device) -> torch.Tensor:
        """Return where the inputs of a decode step stand, [count, hidden].

        Always at one address, because a captured graph reads them where they were at capture:
        graphs are captured for the largest batch first, so nothing is moved after that.
        """
        if self._rows is None or len(self._rows) < count:
            dtype = self.model.embed_tokens.weight.dtype
            self._rows = torch.zeros((count, self.config.hidden_size), dtype=dtype, device=device)
        return self._rows[:count]


def _rope_theta(config: PretrainedConfig) -> float:
    rope = config.rope_parameters or {}
    return float(rope.get("rope_theta", getattr(config, "rope_theta", 1e6)))


def _name_of(name: str) -> str | None:
    if name == "talker.model.codec_embedding.weight":
        return "model.embed_tokens.weight"
    return name.removeprefix("talker.") if name.startswith("talker.") else None


EntryClass = OmniTalker
