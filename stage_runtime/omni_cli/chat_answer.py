"""What comes back from a speech pipeline, piece by piece and put together."""

from __future__ import annotations

import base64
import codecs
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from omni_client.events import Event, StageOutput
from omni_client.sound import Audio
from omni_wire.messages import Tree
from omni_wire.trees import to_numpy


@dataclass(slots=True)
class ChatAnswer:
    """A whole answer.

    Attributes:
        samples: of the speech, float32; empty without speech.
        first_text, first_audio: seconds until the first of each; 0 where there is none.
        steps_to_first_audio: codec frames in the first piece of sound, and tokens of text that
            speech waited for.
        timeline: when each stage worked on it, in Unix seconds, in order of beginning.
        told: names of the attributes that the pipeline said something about; it may know of no
            tokens, or of no codes.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    codec_codes: list[list[int]] = field(default_factory=list)
    samples: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    sample_rate: int = 24_000
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    first_text: float = 0.0
    first_audio: float = 0.0
    steps_to_first_audio: dict[str, int | None] = field(default_factory=dict)
    timeline: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def audio(self) -> Audio:
        """Return the speech."""
        return Audio(self.samples, self.sample_rate)

    def as_json(self) -> dict[str, Any]:
        """Return the answer as what `omni chat --json` prints; null is what there was none of."""
        found: dict[str, Any] = {
            "text": self.text,
            "token_ids": self.token_ids,
            "codec_codes": self.codec_codes,
            "wav": base64.b64encode(self.samples.astype("<f4").tobytes()).decode(),
            "sample_rate": self.sample_rate,
            "finish_reason": self.finish_reason,
            "usage": dict(self.usage),
            "seconds_to_first_text": self.first_text,
            "seconds_to_first_audio": self.first_audio,
            "steps_to_first_audio": self.steps_to_first_audio,
            "timeline": self.timeline,
        }
        return {name: value if name in self.told else None for name, value in found.items()}


class ChatProgress:
    """Reads the events of one answer.

    Args:
        shown: where text goes as it comes; None shows nothing.
    """

    def __init__(self, shown: TextIO | None) -> None:
        self._shown = shown
        self._began = time.monotonic()
        self._answer = ChatAnswer()
        self._pieces: list[npt.NDArray[np.float32]] = []
        self._characters = codecs.getincrementaldecoder("utf-8")()

    def read(self, events: Iterable[Event]) -> ChatAnswer:
        """Return the answer once its last event has come."""
        for event in events:
            if isinstance(event, StageOutput):
                data: Any = to_numpy(event.data)
                if event.final:
                    self._finish(data if isinstance(data, Mapping) else {})
                elif event.modality == "text":
                    self._text(data)
                elif event.modality == "audio":
                    self._audio(data["pcm"])
        if self._pieces:
            self._answer.samples = np.concatenate(self._pieces)
        return self._answer

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _text(self, data: Mapping[str, Any]) -> None:
        self._answer.first_text = self._answer.first_text or self._seconds()
        self._answer.told.add("seconds_to_first_text")
        if self._shown is not None:
            raw = data["text"].reshape(-1)[: int(data["bytes"])].tobytes()
            self._shown.write(self._characters.decode(raw))
            self._shown.flush()

    def _audio(self, samples: npt.NDArray[Any]) -> None:
        self._answer.first_audio = self._answer.first_audio or self._seconds()
        self._answer.told |= {"seconds_to_first_audio", "wav", "sample_rate"}
        self._pieces.append(samples.reshape(-1).astype(np.float32))

    def _finish(self, result: Mapping[str, Any]) -> None:
        answer, told = self._answer, self._answer.told
        if "text" in result:
            answer.text = result["text"]
            answer.finish_reason = result.get("finish_reason", "")
            told |= {"text"} | ({"finish_reason", "usage"} & result.keys())
            answer.usage = result.get("usage", {})
            if "token_ids" in result:
                answer.token_ids = list(result["token_ids"])
                told.add("token_ids")
        if "sample_rate" in result:
            self._finish_speech(result)
        if "timeline" in result:
            answer.timeline = _timeline({**answer.timeline, **result["timeline"]})
            told.add("timeline")

    def _finish_speech(self, result: Mapping[str, Any]) -> None:
        answer, told = self._answer, self._answer.told
        answer.sample_rate = result["sample_rate"]
        told |= {"wav", "sample_rate"}
        if "codes" in result:
            answer.codec_codes = np.asarray(result["codes"]).tolist()
            told.add("codec_codes")
        if "first_frames" in result:
            answer.steps_to_first_audio = {
                "talker_frames": result["first_frames"],
                "thinker_tokens": result.get("start_tokens"),
            }
            told.add("steps_to_first_audio")


def _timeline(entries: Mapping[str, Mapping[str, Tree]]) -> dict[str, dict[str, Any]]:
    """Entries in order of their beginning. Both terminals report, each what it knows."""
    numbers: dict[str, dict[str, Any]] = {stage: dict(entry) for stage, entry in entries.items()}
    return dict(sorted(numbers.items(), key=lambda item: item[1]["opened"]))
