"""One pattern for the files of a stage."""

from __future__ import annotations

import fnmatch

import pytest

from omni_runtime.sglang_bridge.weight_glob import covering_glob

SHARDS = [f"model-{n:05d}-of-00015.safetensors" for n in range(1, 16)]


@pytest.mark.parametrize("wanted", [SHARDS[13:], SHARDS[:2], SHARDS[4:5], SHARDS])
def test_every_wanted_file_is_matched(wanted: list[str]) -> None:
    pattern = covering_glob(wanted)
    assert pattern is not None
    assert set(wanted) <= set(fnmatch.filter(SHARDS, pattern))


def test_the_talkers_two_shards_leave_the_others_alone() -> None:
    pattern = covering_glob(SHARDS[13:])
    assert fnmatch.filter(SHARDS, pattern or "") == SHARDS[13:]


@pytest.mark.parametrize("names", [[], ["a.safetensors", "model.safetensors"]])
def test_names_without_a_common_shape_have_no_pattern(names: list[str]) -> None:
    assert covering_glob(names) is None
