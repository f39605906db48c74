"""The thinker's language model as an SGLang model: no towers, media come as embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor, LogitsProcessorOutput
from sglang.srt.layers.quantization.base_config import QuantizationConfig
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.managers.mm_utils import general_mm_embed_routine
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem
from sglang.srt.model_executor.forward_batch_info import ForwardBatch
from sglang.srt.models.qwen3_vl_moe import Qwen3MoeLLMModel
from torch import nn
from transformers import PretrainedConfig

from omni_models.qwen3_omni import moe_weights
from omni_models.qwen3_omni.segments import Ints
from omni_models.qwen3_omni.thinker.media_rows import MediaRows


class OmniThinker(nn.Module):
    """Text model with deepstack, whose media embeddings travel with each request.

    Attributes:
        media_rows: takes hidden rows of media positions; None where no talker wants them.
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
        self.model = Qwen3MoeLLMModel(config=config, quant_config=quant_config, prefix="model")
        self.lm_head = ParallelLMHead(
            config.vocab_size, config.hidden_size, quant_config=quant_config, prefix="lm_head"
        )
        self.logits_processor = LogitsProcessor(config)
        levels = config.omni.thinker_config.vision_config.deepstack_visual_indexes
        self.deepstack_visual_indexes = list(levels)
        self.model.deepstack_embed_to_decoder_layer = range(len(levels))
        self.use_deepstack = {Modality.IMAGE: True, Modality.VIDEO: True} if levels else {}
        self.media_rows: MediaRows | None = None
        self._captured_layer = config.omni.talker_config.accept_hidden_layer
        self._positions: dict[str, Ints] = {}
        self._indices: Ints | None = None

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of text tokens."""
        return self.model.embed_tokens

    def separate_deepstack_embeds(
        self, embedding: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cut [tokens, (1 + levels) * hidden] into the embedding and its deepstack levels."""
        hidden = self.config.hidden_size
        return embedding[:, :hidden], embedding[:, hidden:]

    def get_image_feature(self, items: Sequence[MultimodalDataItem]) -> torch.Tensor:
        """Never called: pictures come encoded."""
        raise RuntimeError("media of the thinker come as embeddings")

    get_video_feature = get_image_feature
    get_audio_feature = get_image_feature

    def prepare_for_forward(self, batch: ForwardBatch) -> None:
        """SGLang's hook before every forward pass: see whether hidden rows are wanted of it."""
        self._indices = None
        if self.media_rows is None or batch.rids is None or not batch.forward_mode.is_extend():
            return
        ends = batch.seq_lens_cpu.tolist()
        self._positions, self._indices = self.media_rows.plan(
            batch.rids, batch.extend_prefix_lens_cpu, ends
        )
        if not len(self._indices):
            self._indices = None
            self.media_rows.skipped()

    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        **more: object,
    ) -> LogitsProcessorOutput:
        """Return logits of the last position of every row."""
        if forward_batch.mrope_positions is not None:
            positions = forward_batch.mrope_positions
        indices, self._indices = self._indices, None
        self.model.layers_to_capture = [] if indices is None else [self._captured_layer]
        hidden = general_mm_embed_routine(
            input_ids=input_ids,
            forward_batch=forward_batch,
            language_model=self.model,
            multimodal_model=self,
            positions=positions,
            use_deepstack=self.use_deepstack,
        )
        if indices is not None and self.media_rows is not None:
            hidden, (entering,) = hidden
            rows = entering[torch.from_numpy(indices).to(entering.device)]
            self.media_rows.captured(self._positions, rows)
        return self.logits_processor(input_ids, hidden, self.lm_head, forward_batch)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load `thinker.model.*` and `thinker.lm_head.*`; the rest belongs to other stages."""
        return moe_weights.load(self, weights, _name_of)


def _name_of(name: str) -> str | None:
    own = ("thinker.model.", "thinker.lm_head.")
    return name.removeprefix("thinker.") if name.startswith(own) else None


EntryClass = OmniThinker
