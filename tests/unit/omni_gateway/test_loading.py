"""What a gateway reads beside its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_config.errors import ConfigError
from omni_gateway.loading import load_provenance


def test_a_configuration_without_provenance_has_none(tmp_path: Path) -> None:
    assert load_provenance(tmp_path / "config.yaml") == {}


def test_the_last_write_of_a_path_is_who_set_it(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(
        '[{"path": "name", "writes": [{"source": "profile p"}, {"source": "--name"}]}]'
    )
    assert load_provenance(tmp_path / "config.yaml") == {"name": "--name"}


@pytest.mark.parametrize("content", ["", "{}x", "[1]", '[{"path": "a", "writes": []}]'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "provenance.json").write_text(content)
    with pytest.raises(ConfigError, match=r"provenance\.json"):
        load_provenance(tmp_path / "config.yaml")
