"""The engine vocabulary is that of the SGLang release that runs."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from omni_config.vocabulary import server_args_fields, server_args_version
from scripts.server_args import read_fields

SPEC = importlib.util.find_spec("sglang")


@pytest.mark.skipif(SPEC is None, reason="sglang is not installed: no ServerArgs to compare with")
def test_fields_are_those_of_the_installed_sglang() -> None:
    assert SPEC is not None
    assert SPEC.origin is not None
    assert server_args_version() == importlib.metadata.version("sglang")
    assert dict(server_args_fields()) == read_fields(Path(SPEC.origin).parents[1])
