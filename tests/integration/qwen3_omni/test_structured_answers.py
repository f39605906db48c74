"""JSON, calls of tools, log-probabilities and biases, from OpenAI's client to the tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import torch
from openai import OpenAI

from omni_client import JsonSchema, Message, OmniClient, Sampling, Tool
from tests.support.oracle import Oracle
from tests.support.prompts import PROMPTS
from tests.support.speech_pipeline import SpeechPipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mood": {"enum": ["sunny", "grey"]},
        "word": {"type": "string", "maxLength": 6},
        "degrees": {"type": "integer", "minimum": -9, "maximum": 30},
    },
    "required": ["mood", "word", "degrees"],
    "additionalProperties": False,
}
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Kyiv"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Tells the weather.", "parameters": CITY},
    },
    {"type": "function", "function": {"name": "rain", "parameters": CITY, "strict": True}},
]
FORM = {"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA, "strict": True}}
ASKED: list[Any] = [{"role": "user", "content": "Say a short sentence about the weather today."}]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def client(pipeline: SpeechPipeline) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{pipeline.url}/v1", api_key="none", timeout=100, max_retries=0) as made:
        yield made


def ask(client: OpenAI, **more: Any) -> Any:
    """Return the only choice of an answer."""
    return whole(client, **more).choices[0]


def whole(client: OpenAI, **more: Any) -> Any:
    model = client.models.list().data[0].id
    request = {"messages": ASKED, "temperature": 0, "max_completion_tokens": 800, **more}
    return client.chat.completions.create(model=model, **request)


def valid(text: str | None) -> dict[str, Any]:
    """Return the document of an answer that keeps to the schema."""
    document: dict[str, Any] = json.loads(text or "")
    assert list(document) == ["mood", "word", "degrees"]
    assert document["mood"] in ("sunny", "grey")
    assert len(document["word"]) <= 6
    assert -9 <= document["degrees"] <= 30
    return document


def test_an_answer_keeps_to_a_json_schema_plain_streamed_and_from_the_sdk(
    client: OpenAI, pipeline: SpeechPipeline
) -> None:
    plain = ask(client, response_format=FORM)
    assert plain.finish_reason == "stop"
    valid(plain.message.content)
    chunks = list(whole(client, response_format=FORM, stream=True))
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == plain.message.content
    )
    with OmniClient(pipeline.address, timeout_seconds=100) as sdk:
        own = sdk.chat(
            ASKED,
            modalities=["text"],
            response_format=JsonSchema(SCHEMA),
            sampling=Sampling(temperature=0, max_tokens=800),
        )
    assert (own.text, own.finish_reason) == (plain.message.content, "stop")


def test_seeds_draw_the_same_documents_again_beside_free_neighbours(client: OpenAI) -> None:
    drawn = {"response_format": FORM, "temperature": 1, "seed": 5, "n": 3}
    first, again = whole(client, **drawn), whole(client, **drawn)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) > 1
    for choice in first.choices:
        assert choice.finish_reason == "stop"
        valid(choice.message.content)


def test_any_json_object_is_one_as_soon_as_it_ends(client: OpenAI) -> None:
    found = ask(client, response_format={"type": "json_object"}, max_completion_tokens=200)
    assert (found.message.content or "").lstrip().startswith("{")
    if found.finish_reason == "stop":
        assert isinstance(json.loads(found.message.content), dict)


def calls_of(chunks: list[Any]) -> list[dict[str, str]]:
    """Join the pieces of streamed calls."""
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for piece in chunk.choices[0].delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    return [call for _, call in sorted(calls.items())]


def test_a_required_call_comes_plain_and_streamed(client: OpenAI) -> None:
    wish = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    plain = ask(client, **wish)
    assert (plain.finish_reason, plain.message.content) == ("tool_calls", None)
    (call,) = plain.message.tool_calls
    assert call.function.name in ("weather", "rain")
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Kyiv")
    chunks = list(whole(client, stream=True, **wish))
    (streamed,) = calls_of(chunks)
    assert streamed["id"].startswith("call_")
    assert (streamed["name"], streamed["arguments"]) == (
        call.function.name,
        call.function.arguments,
    )
    assert not any(chunk.choices[0].delta.content for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_named_function_is_called_and_what_it_gave_goes_on(
    client: OpenAI, pipeline: SpeechPipeline
) -> None:
    named = {"type": "function", "function": {"name": "rain"}}
    wish = {"tools": TOOLS, "tool_choice": named, "parallel_tool_calls": False}
    message = ask(client, **wish).message
    (call,) = message.tool_calls
    assert call.function.name == "rain"
    history = [
        *ASKED,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "It rains."},
    ]
    # Asked again freely, a random model writes text.
    answer = ask(client, messages=history, tools=TOOLS[:1], max_completion_tokens=8)
    assert answer.finish_reason == "length"
    assert answer.message.tool_calls is None
    with OmniClient(pipeline.address, timeout_seconds=100) as sdk:
        found = sdk.chat(
            ASKED,
            modalities=["text"],
            tools=[Tool("rain", parameters=CITY)],
            tool_choice="rain",
            parallel_tool_calls=False,
            sampling=Sampling(temperature=0, max_tokens=800),
        )
        assert (found.finish_reason, found.text) == ("tool_calls", "")
        (own,) = found.tool_calls
        assert own.name == "rain"
        assert json.loads(own.arguments)["city"] in ("Oslo", "Kyiv")
        said = [
            Message.user("Say a short sentence about the weather today."),
            Message.assistant(tool_calls=found.tool_calls),
            Message.tool(own.id, "It rains."),
        ]
        went_on = sdk.chat(said, modalities=["text"], sampling=Sampling(max_tokens=4))
    assert went_on.usage.completion_tokens == 4


def test_the_prompt_is_the_chat_template_s_own_with_tools(client: OpenAI, oracle: Oracle) -> None:
    text = oracle.processor.apply_chat_template(
        ASKED, tools=TOOLS[:1], add_generation_prompt=True, tokenize=False
    )
    tokens = len(oracle.processor.tokenizer(text)["input_ids"])
    found = whole(client, tools=TOOLS[:1], max_completion_tokens=1)
    assert found.usage.prompt_tokens == tokens
    without = whole(client, tools=TOOLS[:1], tool_choice="none", max_completion_tokens=1)
    assert without.usage.prompt_tokens == whole(client, max_completion_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize(
    ("change", "processors"),
    [
        pytest.param({}, {}, id="greedy"),
        pytest.param(
            {"extra_body": {"repetition_penalty": 1.3}}, {"repetition_penalty": 1.3}, id="penalty"
        ),
    ],
)
def test_logprobs_are_transformers(
    client: OpenAI, oracle: Oracle, change: dict[str, Any], processors: dict[str, Any]
) -> None:
    inputs = oracle.inputs(PROMPTS["text"])
    wanted = generate(oracle, **processors)
    tokens = wanted.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    wish = {"logprobs": True, "top_logprobs": 5, "max_completion_tokens": 8, **change}
    prompt = PROMPTS["text"].openai_messages()
    told = ask(client, messages=prompt, **wish).logprobs.content
    assert len(told) == len(tokens)
    tokenizer = oracle.processor.tokenizer
    for entry, token, scores in zip(told, tokens, wanted.scores, strict=True):
        logprobs = scores[0].log_softmax(-1)
        assert entry.logprob == pytest.approx(logprobs[token].item(), abs=TOLERANCE)
        values, likeliest = logprobs.topk(5)
        found = [other.logprob for other in entry.top_logprobs]
        assert found == pytest.approx(values.tolist(), abs=TOLERANCE)
        assert bytes(entry.bytes).decode("utf-8", "replace") == entry.token
        assert entry.token == tokenizer.decode([token])
        assert entry.top_logprobs[0].token == tokenizer.decode(likeliest[:1])
    chunks = list(whole(client, messages=prompt, stream=True, **wish))
    pieces = [chunk.choices[0].logprobs for chunk in chunks]
    assert [one for piece in pieces if piece for one in piece.content] == told


def generate(oracle: Oracle, **more: Any) -> Any:
    with torch.no_grad():
        return oracle.model.thinker.generate(
            **oracle.inputs(PROMPTS["text"]),
            max_new_tokens=8,
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
            eos_token_id=oracle.model.config.im_end_token_id,
            **more,
        )


def test_a_bias_moves_the_answer_as_in_transformers(
    client: OpenAI, oracle: Oracle, pipeline: SpeechPipeline
) -> None:
    prompt = PROMPTS["text"]
    first, second = pipeline.ask(prompt).token_ids[:2]
    bias = {first: -100.0, second: 2.5}
    wanted = generate(oracle, sequence_bias=[[[token], value] for token, value in bias.items()])
    length = oracle.inputs(prompt)["input_ids"].shape[1]
    tokens = wanted.sequences[0, length:].tolist()
    found = pipeline.ask(
        prompt,
        modalities=["text"],
        params={"logit_bias": {str(token): value for token, value in bias.items()}},
    )
    assert found.token_ids[:8] == tokens
    assert first not in found.token_ids


@pytest.mark.parametrize(
    ("change", "param", "problem"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "strin"}},
                }
            },
            "response_format.json_schema.schema",
            'Unsupported type "strin"',
        ),
        (
            {"tools": TOOLS, "modalities": ["text", "audio"]},
            "tools",
            "cannot be combined with speech",
        ),
        (
            {"tools": TOOLS, "response_format": {"type": "json_object"}},
            "response_format",
            "tool_choice is 'none'",
        ),
        (
            {"response_format": FORM, "extra_body": {"min_tokens": 3}},
            "min_tokens",
            "where an answer ends",
        ),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "the vocabulary has"),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "snow"}},
            },
            "tool_choice",
            "known: weather, rain",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: OpenAI, change: dict[str, Any], param: str, problem: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, **change)
    assert refusal.value.param == param
    assert problem in refusal.value.message
