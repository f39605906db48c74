"""`omni key`."""

from __future__ import annotations

from pathlib import Path

from omni_gateway.access.keys import ApiKey, digest_of, read_keys
from tests.support.command_line import omni


def test_a_key_is_shown_once_and_its_hash_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first = omni("key", "app", "--file", str(file), "--concurrency", "3").stdout.strip()
    second = omni("key", "other", "--file", str(file)).stdout.strip()

    kept = read_keys(file)
    assert kept[digest_of(first)] == ApiKey("app", digest_of(first), concurrency=3)
    assert kept[digest_of(second)].name == "other"
    assert first not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_names_are_unique_words(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    omni("key", "app", "--file", str(file))
    for name in ("app", "two words", "#app"):
        outcome = omni("key", name, "--file", str(file))
        assert outcome.status == 1
        assert name.split()[0] in outcome.stderr
    assert len(read_keys(file)) == 1
