"""Loading an engine's model once for several processes.

SGLang asks one function for whatever loads a model. While an engine starts, that function answers
with a loader of ours around SGLang's own: the leader's lets SGLang load, post-processing of weights
included, and publishes what came of it; a follower's builds the model without memory and lays it
over the leader's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner_components import load_model_utils
from sglang.srt.model_loader import loader as loaders
from sglang.srt.model_loader.utils import set_default_torch_dtype
from torch import nn

from omni_runtime.weight_share.errors import CannotShare
from omni_runtime.weight_share.modules import Constructed, attach, device_fact, publish
from omni_runtime.weight_share.offer import StageShare


@contextmanager
def shared_loading(share: StageShare | None, facts: Mapping[str, str]) -> Iterator[None]:
    """Load the model of the engine that starts in the block through a share; None loads it alone.

    Args:
        facts: what a follower must have alike, beside what the model itself says.
    """
    if share is None:
        yield
        return
    choose = load_model_utils.get_model_loader

    def choose_shared(load_config: LoadConfig, model_config: ModelConfig) -> SharedLoader:
        inner = choose(load_config=load_config, model_config=model_config)
        return SharedLoader(inner, share, facts)

    load_model_utils.get_model_loader = choose_shared
    try:
        yield
    finally:
        load_model_utils.get_model_loader = choose


class SharedLoader(loaders.BaseModelLoader):
    """A leader's or a follower's loader.

    Args:
        inner: SGLang's own, with which the leader loads.
    """

    def __init__(
        self, inner: loaders.BaseModelLoader, share: StageShare, facts: Mapping[str, str]
    ) -> None:
        super().__init__(inner.load_config)
        self._inner, self._share, self._facts = inner, share, facts

    def download_model(self, model_config: ModelConfig) -> None:
        """Download what the inner loader needs."""
        self._inner.download_model(model_config)

    def load_model(self, *, model_config: ModelConfig, device_config: DeviceConfig) -> nn.Module:
        """Return the model, loaded or attached.

        Raises:
            WeightShareError: the weights cannot be shared, or not with this leader.
        """
        if model_config.quantization is not None:
            raise CannotShare(
                f"the checkpoint's weights are quantized ({model_config.quantization}), and what "
                "post-processing leaves beside tensors was not audited; use weight_share=off"
            )
        device = _device(device_config)
        if not self._share.leads:
            model = self._without_memory(model_config)
            return attach(self._share, model, self._all_facts(model, model_config, device), device)
        with _constructed() as found:
            model = self._inner.load_model(model_config=model_config, device_config=device_config)
        facts = self._all_facts(model, model_config, device)
        publish(self._share, model, found[0], facts)
        return model

    def _without_memory(self, model_config: ModelConfig) -> nn.Module:
        quantization = loaders._get_quantization_config(model_config, self.load_config)
        with set_default_torch_dtype(model_config.dtype), torch.device("meta"):
            model: nn.Module = loaders._initialize_model(
                model_config, self.load_config, quantization
            )
        return model

    def _all_facts(
        self, model: nn.Module, model_config: ModelConfig, device: torch.device
    ) -> dict[str, str]:
        kind = type(model)
        return {
            **self._facts,
            "model": f"{kind.__module__}.{kind.__qualname__}",
            "dtype": str(model_config.dtype),
            "device": device_fact(device),
        }


@contextmanager
def _constructed() -> Iterator[list[Constructed]]:
    """Note what the model is when its constructor is done and nothing is loaded."""
    initialize = loaders._initialize_model
    found: list[Constructed] = []

    def initialize_noted(*arguments: object, **more: object) -> nn.Module:
        model: nn.Module = initialize(*arguments, **more)
        found.append(Constructed(model))
        return model

    loaders._initialize_model = initialize_noted
    try:
        yield found
    finally:
        loaders._initialize_model = initialize


def _device(device_config: DeviceConfig) -> torch.device:
    kind: str = device_config.device_type
    return torch.device(kind, device_config.gpu_id) if kind == "cuda" else torch.device(kind)
