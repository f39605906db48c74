"""The comparison with transformers under everything that may not change an answer.

`make test-all` runs it: every launch of the table in `parity_table`, each asked in every round, and
three more: two whose engines have to take rows out of their batch because memory runs out, and one
that hears ten minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from omni_cli.chat_answer import ChatAnswer
from omni_runtime.scheduler import Chunks, NewRequest
from omni_wire.messages import StreamDone
from tests.support import media
from tests.support.checkpoints import tiny_checkpoint
from tests.support.encoded_prompts import media_hidden_rows, merged_payload
from tests.support.oracle import Oracle, fingerprint
from tests.support.parity_table import LAUNCHES, Launch, Round, prompts_of, rounds_of
from tests.support.prompts import OTHER_PROMPTS, PROMPTS, Answer, Prompt, Settings, user
from tests.support.speech_pipeline import SpeechPipeline, greedy, speech_pipeline
from tests.support.speech_stages import (
    GREEDY_SPEECH,
    codes_of,
    counters,
    renamed,
    start_talker,
    start_thinker,
    talker_input,
    tokens_of,
    wait_until_free,
)
from tests.support.stage_process import StageProcess

pytestmark = [
    pytest.mark.parity,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Passing .repetition_penalty. with .inputs_embeds."),
]

TOLERANCE = 1e-5
MAX_TOKENS, MAX_FRAMES = 24, 32
CHUNK = 16
STEPS = "omni_stage_step_duration_seconds_count"
RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "3"}
# Half of what the prompts take, and an engine that trusts answers to be short.
HARDLY_ANY_MEMORY = {"max_total_tokens": 340, "schedule_conservativeness": 0.1}

Judge = Callable[[int], Oracle]


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    answers = pytestconfig.cache
    assert answers is not None

    @cache
    def of(seed: int) -> Oracle:
        checkpoint = tiny_checkpoint(seed)
        # They stay true for as long as the checkpoint, transformers and the judge are the same.
        return Oracle(checkpoint, answers.mkdir(f"judge-{fingerprint(checkpoint)}"))

    return of


def asked_in(launch: Launch, one: Round) -> Mapping[str, Prompt]:
    """Return the prompts of a round by name."""
    if not one.together:
        return {name: PROMPTS[name] for name in prompts_of(launch, one)}
    # Others than those asked alone, or they would not be new; and one more, which makes eight.
    assert OTHER_PROMPTS.keys() >= set(prompts_of(launch, one))
    assert len(OTHER_PROMPTS) == 8
    return OTHER_PROMPTS


def settings_of(penalty: float) -> Settings:
    return Settings(
        max_tokens=MAX_TOKENS,
        max_frames=MAX_FRAMES,
        repetition_penalty=penalty,
        text_penalty=penalty,
    )


# Pipelines


@pytest.mark.parametrize("launch", [one for one in LAUNCHES if one.kind != "talker"], ids=str)
def test_a_pipeline_answers_as_transformers(launch: Launch, judge: Judge, tmp_path: Path) -> None:
    oracle = judge(launch.seed)
    config = tmp_path / "pipeline.yaml"
    config.write_text(yaml.safe_dump(document_of(launch)))
    environment = RETRACT if launch.retracted else {}
    with speech_pipeline(oracle.checkpoint, config=config, environment=environment) as pipeline:
        answers = [
            answer
            for one in rounds_of(launch)
            for answer in answers_of(launch, one, pipeline, oracle)
        ]
        log = pipeline.log.read_text(errors="replace")
    used = {answer.timeline["thinker"]["instance"] for answer in answers}
    assert len(used) == launch.replicas
    engines = 1 if launch.kind == "text" else 2
    assert (retractions(log) > 3 * engines) is launch.retracted


def test_ten_minutes_of_sound_are_answered_as_by_transformers(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(1, context=16_384)
    sound = media.sound(600.0, 0.5)
    prompt = Prompt((user("audio", "What do you hear?"),), audios=(sound,))
    inputs: dict[str, Any] = {
        "messages": [{"role": "user", "content": "What do you hear?"}],
        "audios": [media.wav(sound)],
    }
    launch = Launch("speech", 1, retracted=False, chunked=False, start=1, replicas=1)
    config = tmp_path / "pipeline.yaml"
    config.write_text(yaml.safe_dump(document_of(launch)))
    with speech_pipeline(checkpoint, config=config) as pipeline:
        answer = pipeline.send(inputs, greedy(settings_of(1.0)), ("text", "audio"))
    # Thirteen tokens a second.
    assert answer.usage["prompt_tokens"] > 600 * 13
    assert_same(answer, Oracle(checkpoint, tmp_path).answer(prompt, settings_of(1.0)), launch)


def document_of(launch: Launch) -> dict[str, Any]:
    """Return the configuration of a pipeline, on the CPU and in few processes."""
    engine: dict[str, object] = {"dtype": "float32"}
    if launch.chunked:
        engine["chunked_prefill_size"] = CHUNK
    thinker = {"gpu": None, "engine": engine}
    light = ("preprocessing", "image_encoder", "audio_encoder", "decode")
    if launch.kind == "text":
        stages: dict[str, Any] = {name: {"gpu": None} for name in (*light[1:3], "mm_aggregate")}
        return _document("Qwen3OmniPipelineConfig", {**stages, "thinker": thinker}, launch)
    talker = {**thinker, "factory": {"partial_start_min_chunks": launch.start}}
    home = "media" if launch.kind == "speech" else "thinker"
    stages = {name: {"process": home} for name in light}
    for name in light[1:3]:
        stages[name]["gpu"] = None
    code2wav: dict[str, Any] = {"gpu": None}
    if launch.kind == "speech":
        code2wav["process"] = home
    stages |= {"thinker": thinker, "talker_ar": talker, "code2wav": code2wav}
    variant = "" if launch.kind == "speech" else "Colocated"
    return _document(f"Qwen3OmniSpeech{variant}PipelineConfig", stages, launch)


def _document(name: str, stages: Mapping[str, Any], launch: Launch) -> dict[str, Any]:
    document = {"config_cls": name, "model_path": "tiny", "stages": dict(stages)}
    if launch.replicas > 1:
        engines = ("pipeline",) if launch.kind == "text" else ("thinker", "talker_ar")
        document["processes"] = {name: {"num_replicas": launch.replicas} for name in engines}
    return document


def retractions(log: str) -> int:
    """Return how often SGLang says that it took rows out of a batch."""
    return len(re.findall(r"#retracted_reqs: [1-9]", log))


def answers_of(
    launch: Launch, one: Round, pipeline: SpeechPipeline, oracle: Oracle
) -> Iterator[ChatAnswer]:
    prompts, settings = asked_in(launch, one), settings_of(one.penalty)
    expected = {name: oracle.answer(prompt, settings) for name, prompt in prompts.items()}
    before = thinker_steps(pipeline)
    # Of two replicas one has seen a prompt before when it comes for the third time.
    asked = [
        ask(pipeline, list(prompts.values()), settings, launch, one)
        for _ in range(launch.replicas if one.cached else 1)
    ]
    for answers in asked:
        for answer, wanted in zip(answers, expected.values(), strict=True):
            wanted.require_variety()
            assert_same(answer, wanted, launch)
        yield from answers
    for found in zip(*asked, strict=True):
        assert_cached(found, one)
    # A replica that comes up late may still be warming up.
    if not one.together and not one.cached and launch.replicas == 1:
        assert_read(asked[0], thinker_steps(pipeline) - before, CHUNK if launch.chunked else None)


def ask(
    pipeline: SpeechPipeline,
    prompts: Sequence[Prompt],
    settings: Settings,
    launch: Launch,
    one: Round,
) -> list[ChatAnswer]:
    modalities = ("text",) if launch.kind == "text" else ("text", "audio")
    if one.together:
        return pipeline.ask_together(prompts, settings, modalities)
    return [pipeline.ask(prompt, settings, modalities) for prompt in prompts]


def assert_same(answer: ChatAnswer, wanted: Answer, launch: Launch) -> None:
    assert answer.token_ids == wanted.text_ids.tolist()
    if launch.kind == "text":
        assert not len(answer.samples)
        return
    assert answer.codec_codes == wanted.codes.tolist()
    assert answer.samples.shape == wanted.wav.shape == (1920 * wanted.codes.shape[1] - 555,)
    assert np.abs(answer.samples - wanted.wav).max() <= TOLERANCE
    assert answer.steps_to_first_audio == {
        "talker_frames": 1,
        "thinker_tokens": launch.start,
    }


def assert_cached(answers: Sequence[ChatAnswer], one: Round) -> None:
    cached = max(answer.usage["cached_tokens"] for answer in answers)
    prompt = answers[0].usage["prompt_tokens"]
    if one.cached:
        # Everything but the last token, which has to be computed to answer.
        assert cached == prompt - 1
    else:
        assert cached < prompt / 2


def thinker_steps(pipeline: SpeechPipeline) -> float:
    steps = pipeline.measured(STEPS)
    return sum(count for instance, count in steps.items() if instance.startswith("thinker"))


def assert_read(answers: Sequence[ChatAnswer], steps: float, chunk: int | None) -> None:
    """Fail unless reading lone prompts took a step per chunk, and writing one per token."""
    wanted = 0
    for answer in answers:
        new = answer.usage["prompt_tokens"] - answer.usage["cached_tokens"]
        wanted += len(answer.token_ids) + (0 if chunk is None else -(-new // chunk) - 1)
    # The page may be a step behind.
    assert wanted - 1 <= steps <= wanted
    assert chunk is None or wanted > sum(len(answer.token_ids) for answer in answers) + 1


# Stages alone


@pytest.mark.parametrize("launch", [one for one in LAUNCHES if one.kind == "talker"], ids=str)
def test_a_talker_speaks_as_transformers(
    launch: Launch, judge: Judge, capfd: pytest.CaptureFixture[str]
) -> None:
    oracle = judge(launch.seed)
    stage = start_talker(
        oracle.checkpoint,
        {"chunked_prefill_size": CHUNK} if launch.chunked else {},
        environment=RETRACT if launch.retracted else {},
        partial_start_min_chunks=launch.start,
    )
    with closing(stage) as talker:
        for one in rounds_of(launch):
            prompts = asked_in(launch, one)
            for batch in [prompts] if one.together else [{n: p} for n, p in prompts.items()]:
                assert_speeches(talker, oracle, batch, one.penalty)
    assert (retractions("".join(capfd.readouterr())) > 3) is launch.retracted


def test_a_talker_with_hardly_any_memory_speaks_as_transformers(
    judge: Judge, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(start_talker(judge(8).checkpoint, HARDLY_ANY_MEMORY)) as talker:
        assert_speeches(talker, judge(8), OTHER_PROMPTS, penalty=1.05)
    assert retractions("".join(capfd.readouterr()))


def test_a_thinker_with_hardly_any_memory_writes_as_transformers(
    judge: Judge, capfd: pytest.CaptureFixture[str]
) -> None:
    oracle, settings, wanted = judge(8), settings_of(1.0), {}
    with closing(start_thinker(oracle.checkpoint, HARDLY_ANY_MEMORY)) as thinker:
        start = counters(thinker)
        for name, prompt in OTHER_PROMPTS.items():
            answer = oracle.answer(prompt, settings)
            answer.require_variety()
            payload = merged_payload(oracle, prompt, name, {"max_tokens": MAX_TOKENS})
            wanted[payload.key] = answer.text_ids.tolist()
            thinker.put(NewRequest(payload))
        seen = thinker.until_ended(wanted)
        assert {key: tokens_of(seen, key, "decode") for key in wanted} == wanted
        assert wait_until_free(thinker, start) == start
    assert retractions("".join(capfd.readouterr()))


def assert_speeches(
    talker: StageProcess, oracle: Oracle, prompts: Mapping[str, Prompt], penalty: float
) -> None:
    """Tell the talker some prompts and their texts, half of them token by token."""
    start, settings = counters(talker), settings_of(penalty)
    params = {
        **GREEDY_SPEECH,
        "talker_max_tokens": settings.max_frames,
        "talker_repetition_penalty": penalty,
    }
    wanted: dict[Any, Any] = {}
    dripping: list[list[Chunks | StreamDone]] = []
    for number, (name, prompt) in enumerate(prompts.items()):
        answer = oracle.answer(prompt, settings)
        answer.require_variety()
        made = merged_payload(oracle, prompt, name, params)
        payload = renamed(made, f"{name} of {len(prompts)}")
        chunks = talker_input(
            payload.key, answer.text_ids.tolist(), media_hidden_rows(oracle, prompt)
        )
        wanted[payload.key] = answer.codes.T.tolist()
        messages: list[Chunks | StreamDone] = [*chunks]
        messages.append(StreamDone(payload.key, "thinker", len(chunks)))
        talker.put(NewRequest(payload))
        if number % 2:
            talker.put(*messages)
        else:
            dripping.append(messages)
    for turn in range(max(map(len, dripping))):
        for messages in dripping:
            talker.put(*messages[turn : turn + 1])
    seen = talker.until_ended(wanted)
    assert {key: codes_of(seen, key) for key in wanted} == wanted
    assert wait_until_free(talker, start) == start
