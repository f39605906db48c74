"""What `python -m omni_runtime.model_download` leaves on disk, asks the hub and prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_hub import COMMIT, FakeHub, running
from tests.support.patience import PROGRAM_SECONDS

pytest.importorskip("huggingface_hub")

REPO = "acme/speaking-parrot"
FILES = {
    "config.json": b'{"architectures": ["Parrot"]}',
    "tokenizer/vocab.json": b"{}",
    "model.safetensors": bytes(range(256)) * 4096,
}
MIB = 1 << 20
TOKEN = "hf_secret_of_this_test"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub(REPO, dict(FILES))) as served:
        yield served


def downloaded(
    hub: FakeHub, directory: Path, *, revision: str = "main", token: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program as a pod does."""
    home = directory.parent / "home"
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_ENDPOINT": hub.endpoint}
    if token is not None:
        environ["HF_TOKEN"] = token
    command = [sys.executable, "-m", "omni_runtime.model_download", "--repo", REPO]
    return subprocess.run(
        [*command, "--revision", revision, "--directory", str(directory)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_SECONDS,
    )


def whole(hub: FakeHub, directory: Path) -> bool:
    return all((directory / name).read_bytes() == content for name, content in hub.files.items())


def test_a_checkpoint_is_fetched_once_and_then_needs_no_hub(hub: FakeHub, tmp_path: Path) -> None:
    directory = tmp_path / "models"

    first = downloaded(hub, directory)
    asked = len(hub.requests)
    second = downloaded(hub, directory)
    by_commit = downloaded(hub, directory, revision=COMMIT)

    assert first.returncode == 0, first.stderr
    assert whole(hub, directory)
    assert (second.returncode, by_commit.returncode) == (0, 0)
    assert len(hub.requests) == asked


def test_a_lost_file_is_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    directory = tmp_path / "models"
    downloaded(hub, directory)
    (directory / "config.json").unlink()
    hub.requests.clear()

    assert downloaded(hub, directory).returncode == 0
    assert whole(hub, directory)
    assert not any(one.startswith("GET") and "model.safetensors" in one for one in hub.requests)


def test_a_broken_transfer_goes_on_where_it_stopped(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["model.safetensors"] = bytes(24 * MIB)  # written to disk in pieces of 10 MiB
    hub.cut_once.add("model.safetensors")

    done = downloaded(hub, tmp_path / "models")

    assert done.returncode == 0, done.stderr
    assert whole(hub, tmp_path / "models")
    assert hub.ranges["model.safetensors"].startswith(f"bytes={10 * MIB}-")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_with_another_checksum_is_refused_and_fetched_anew(
    hub: FakeHub, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "models"
    hub.corrupt.add(name)

    refused = downloaded(hub, directory)
    hub.corrupt.clear()
    repaired = downloaded(hub, directory)

    assert refused.returncode == 1
    assert f"{REPO}@{COMMIT}: {name} is not what the hub says it is" in refused.stderr
    assert repaired.returncode == 0, repaired.stderr
    assert whole(hub, directory)


def test_the_token_reaches_the_hub_and_no_log(hub: FakeHub, tmp_path: Path) -> None:
    hub.token = TOKEN

    done = downloaded(hub, tmp_path / "models", token=TOKEN)

    assert done.returncode == 0, done.stderr
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.stdout + done.stderr


def test_a_token_stored_on_the_machine_is_not_used(hub: FakeHub, tmp_path: Path) -> None:
    stored = tmp_path / "home" / ".cache" / "huggingface" / "token"
    stored.parent.mkdir(parents=True)
    stored.write_text(TOKEN)

    assert downloaded(hub, tmp_path / "models").returncode == 0
    assert hub.tokens == {None}


def test_a_refusal_of_the_hub_says_what_to_do(hub: FakeHub, tmp_path: Path) -> None:
    hub.token = TOKEN

    refused = downloaded(hub, tmp_path / "models")

    assert refused.returncode == 1
    assert f"{REPO}@main: the hub answered 401" in refused.stderr
    assert "set a token that may read it" in refused.stderr
    assert hub.endpoint not in refused.stderr
