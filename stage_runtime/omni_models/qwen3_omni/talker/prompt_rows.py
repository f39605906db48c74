"""The talker's prompt, built from tokens: user turns whole, then nine rows that begin the answer.

Text stands as the thinker's token embeddings, projected; media as the thinker's hidden rows,
projected. Rows are known as their sources come: text at once, media when the thinker has read them,
the last row with the first token of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from omni_models.qwen3_omni.media_blocks import (
    Block,
    Media,
    MediaLayout,
    media_blocks,
    rope_positions,
)
from omni_models.qwen3_omni.segments import Ints, Roles

if TYPE_CHECKING:
    from transformers import PretrainedConfig

TEMPLATE_TOKENS = 3
HEAD_ROWS = 9
"""Template, four pads, the start of text, the first token: the beginning of the answer."""


@dataclass(frozen=True, slots=True)
class TalkerFacts:
    """What the talker must know of its checkpoint.

    Attributes:
        layout: of media, as the talker counts their positions.
        tts_pad, tts_bos, tts_eos: text tokens that frame what is spoken.
        head_codes: codec tokens added to rows 3 to 8 of the answer's beginning; the speaker's
            stands at `speaker_at`.
        eos, filler: codec tokens that end speech, and that stand for nothing.
        vocabulary, codes: codec tokens, and how many of them are sounds.
        groups: codes per frame.
    """

    layout: MediaLayout
    roles: Roles
    tts_pad: int
    tts_bos: int
    tts_eos: int
    head_codes: tuple[int, ...]
    speaker_at: int
    eos: int
    filler: int
    vocabulary: int
    codes: int
    groups: int
    speakers: dict[str, int]

    @classmethod
    def of(cls, whole: PretrainedConfig) -> TalkerFacts:
        """Read a checkpoint's configuration."""
        talker, thinker = whole.talker_config, whole.thinker_config
        window = thinker.audio_config.n_window
        vocabulary = talker.text_config.vocab_size
        return cls(
            layout=MediaLayout.of(talker, talker.spatial_merge_size, window),
            roles=Roles.of(whole),
            tts_pad=whole.tts_pad_token_id,
            tts_bos=whole.tts_bos_token_id,
            tts_eos=whole.tts_eos_token_id,
            head_codes=(
                talker.codec_nothink_id,
                talker.codec_think_bos_id,
                talker.codec_think_eos_id,
                talker.codec_pad_id,
                talker.codec_pad_id,
                talker.codec_bos_id,
            ),
            speaker_at=3,
            eos=talker.codec_eos_token_id,
            filler=talker.codec_pad_id,
            vocabulary=vocabulary,
            codes=vocabulary - 1024,
            groups=talker.num_code_groups,
            speakers=dict(talker.speaker_id),
        )


class RowSource(Protocol):
    """Where rows come from."""

    def text(self, ids: Ints) -> torch.Tensor:
        """Return projected embeddings of text tokens, [tokens, hidden]."""
        ...

    def codes(self, ids: Ints) -> torch.Tensor:
        """Return embeddings of first codes, [codes, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class TalkerPrompt:
    """A prompt before the thinker has said anything.

    Attributes:
        rows: [length, hidden]; rows of media are zero, the last row lacks its text.
        media: positions of media rows, ascending.
        positions: int64 [3, length].
    """

    rows: torch.Tensor
    media: Ints
    positions: torch.Tensor


def talker_prompt(
    ids: Ints, media: Media, facts: TalkerFacts, speaker: int, source: RowSource
) -> TalkerPrompt:
    """Return the rows of a prompt that are known from its tokens alone.

    Raises:
        InvalidRequest: placeholders and media do not match, or nobody is asked to answer.
    """
    mask = facts.roles.user_mask(ids)
    answer = facts.roles.answer_start(ids)
    own_ids = np.concatenate([ids[mask], np.full(HEAD_ROWS, facts.tts_pad)])
    head = ids[answer : answer + TEMPLATE_TOKENS]
    placeholders = np.flatnonzero(np.isin(own_ids, list(facts.layout.tokens.values())))
    rows = source.text(np.concatenate([own_ids, head, [facts.tts_bos]]))
    length = len(own_ids)
    prompt, template, bos = rows[:length], rows[length:-1], rows[-1]
    prompt[-HEAD_ROWS : -HEAD_ROWS + len(template)] = template
    prompt[-2] = bos
    # Row 8 is the first token's; only its codec part is known.
    prompt[-1] = 0
    codes = np.array(facts.head_codes)
    codes[facts.speaker_at] = speaker
    prompt[-len(codes) :] += source.codes(codes)
    prompt[torch.from_numpy(placeholders)] = 0
    blocks = _in_user_turns(ids, mask, media, facts.layout)
    positions, _ = rope_positions(own_ids, media, facts.layout, blocks, by_time=False)
    return TalkerPrompt(prompt, placeholders, torch.from_numpy(positions))


def _in_user_turns(ids: Ints, mask: np.ndarray, media: Media, layout: MediaLayout) -> list[Block]:
    """Return the blocks of a prompt that the talker sees, where it sees them."""
    place = np.cumsum(mask) - 1
    return [
        Block(int(place[block.first]), block.length, block.items)
        for block in media_blocks(ids, media, layout)
        if mask[block.first]
    ]
