"""A generation in SGLang's own form of a request."""

from __future__ import annotations

import array

import torch
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem, MultimodalInputs
from sglang.srt.sampling.sampling_params import SamplingParams

from omni_runtime.sglang_bridge.generation import Generation, Submit
from omni_runtime.sglang_bridge.stop_texts import StopTexts

_MODALITY = {"image": Modality.IMAGE, "video": Modality.VIDEO, "audio": Modality.AUDIO}


def generate_request(
    submit: Submit, model_stops: frozenset[int], tokenizer: StopTexts | None
) -> TokenizedGenerateReqInput:
    """Return SGLang's own form of a request.

    Args:
        model_stops: tokens that end every answer of the model.
        tokenizer: needed for stop texts only, else None.
    """
    generation = submit.generation
    return TokenizedGenerateReqInput(
        rid=submit.request_id,
        input_text=None,
        input_ids=array.array("q", generation.prompt_ids),
        input_embeds=None,
        mm_inputs=_media_inputs(generation),
        token_type_ids=None,
        sampling_params=_sampling_params(generation, model_stops, tokenizer),
        # `RowSampler` keeps them.
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=True,
    )


def _sampling_params(
    generation: Generation, model_stops: frozenset[int], tokenizer: StopTexts | None
) -> SamplingParams:
    """Leave penalties, biases and the seed out: `RowSampler` keeps them."""
    sampling, grammar = generation.sampling, generation.grammar
    params = SamplingParams(
        max_new_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=-1 if sampling.top_k is None else sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        stop=list(sampling.stop) or None,
        stop_token_ids=set(sampling.stop_token_ids | model_stops),
        ignore_eos=sampling.ignore_eos,
        **({} if grammar is None else {grammar.kind: grammar.text}),
    )
    params.normalize(tokenizer)
    return params


def _media_inputs(generation: Generation) -> MultimodalInputs | None:
    if not generation.media:
        return None
    items, padded = [], array.array("q", generation.prompt_ids)
    for media in generation.media:
        item = MultimodalDataItem(
            modality=_MODALITY[media.kind],
            offsets=[tuple(span) for span in media.spans],
            precomputed_embeddings=media.embeddings,
        )
        item.set_identity(media.identity)
        for first, last in media.spans:
            padded[first : last + 1] = array.array("q", item.padding_sequence(last + 1 - first))
        items.append(item)
    return MultimodalInputs(
        mm_items=items,
        padded_input_ids=padded,
        mrope_positions=generation.positions,
        mrope_position_delta=torch.tensor([[generation.position_delta]]),
    )
