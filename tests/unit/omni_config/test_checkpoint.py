"""Reading a checkpoint's config.json from this machine, and what is said when it is not here."""

import json
from pathlib import Path

import pytest

from omni_config.checkpoint import hub_cache, read_checkpoint_config
from omni_config.errors import ConfigError

CONFIG = {"architectures": ["Qwen3TTSForConditionalGeneration"]}


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """A hub cache that holds org/model: `main` is commit aaa, `v1` is commit bbb."""
    repository = tmp_path / "hub/models--org--model"
    for reference, commit in (("main", "aaa"), ("refs/pr/1", "bbb"), ("v1", "bbb")):
        file = repository / "refs" / reference
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(commit)
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "config.json").write_text(json.dumps(CONFIG | {"commit": commit}))
    return {"HF_HOME": str(tmp_path)}


def test_a_local_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert read_checkpoint_config(str(tmp_path), {}) == CONFIG


@pytest.mark.parametrize(
    ("model_path", "commit"),
    [
        ("org/model", "aaa"),
        ("org/model@main", "aaa"),
        ("org/model@v1", "bbb"),
        ("org/model@refs/pr/1", "bbb"),
        ("org/model@bbb", "bbb"),
    ],
)
def test_a_cached_revision_is_read(cache: dict[str, str], model_path: str, commit: str) -> None:
    assert read_checkpoint_config(model_path, cache)["commit"] == commit


@pytest.mark.parametrize(
    "model_path", ["org/other", "org/model@v2", "org/model@../../x", "org/model@/etc"]
)
def test_what_is_not_here_is_not_downloaded(cache: dict[str, str], model_path: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_checkpoint_config(model_path, cache)
    [problem] = refusal.value.problems
    assert problem.path == "model_path"
    assert f"'{model_path}' is not a local directory" in problem.message
    assert "config_cls" in problem.message
    assert "--variant" in problem.message


@pytest.mark.parametrize("model_path", ["./ckpt", "../ckpt", "/no/such/folder", "ckpt"])
def test_a_path_that_does_not_exist_is_not_taken_for_a_hub_id(
    cache: dict[str, str], model_path: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{model_path}' is neither a directory nor a hub id"):
        read_checkpoint_config(model_path, cache)


def test_a_directory_without_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config\.json; name the pipeline"):
        read_checkpoint_config(str(tmp_path), {})


@pytest.mark.parametrize(
    ("content", "where", "says"),
    [
        (b'{\n "a": }', ":2", "is not JSON"),
        (b"[1]", "", "must hold a JSON object, got list"),
        (b"\xff\xfe{", "", "cannot be read"),
    ],
)
def test_a_damaged_config_is_named(tmp_path: Path, content: bytes, where: str, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        read_checkpoint_config(str(tmp_path), {})
    [problem] = refusal.value.problems
    assert says in problem.message
    assert problem.where == (f"{file}{where}" if where else "")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, str(Path.home() / ".cache/huggingface/hub")),
    ],
)
def test_the_cache_is_where_hugging_face_keeps_it(environ: dict[str, str], folder: str) -> None:
    assert hub_cache(environ) == Path(folder)
