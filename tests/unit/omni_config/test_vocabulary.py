"""Vocabularies are read without importing their consumer, and silence means "unknown"."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_config.settings import EngineArgs
from omni_config.vocabulary import (
    Parameter,
    engine_keys,
    factory_signature,
    server_args_fields,
    server_args_version,
)

SOURCE = '''
import a_module_that_does_not_exist
from elsewhere import imported

def plain(model_path, dtype="bfloat16", *, gpu_id: int | None = None, size: int) -> object:
    """Make a stage.

    Args:
        model_path: where the checkpoint is.
        dtype: torch dtype,
            written on two lines.
        size: how large.

    Raises:
        ValueError: size: too large.
    """

def free(x, /, y, **rest): ...

not_a_function = 1
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"vocabulary_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "factories.py").write_text(SOURCE)
    (folder / "broken.py").write_text("def f(:")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def test_a_signature_is_read_from_a_module_that_cannot_be_imported(package: str) -> None:
    signature = factory_signature(f"{package}.factories.plain")
    assert signature is not None
    assert dict(signature.parameters) == {
        "model_path": Parameter("model_path", "", None, "where the checkpoint is."),
        "dtype": Parameter("dtype", "", "'bfloat16'", "torch dtype, written on two lines."),
        "gpu_id": Parameter("gpu_id", "int | None", "None", ""),
        "size": Parameter("size", "int", None, "how large."),
    }
    assert [p.name for p in signature.parameters.values() if p.required] == ["model_path", "size"]
    assert signature.settable == ("dtype", "size")
    assert not signature.accepts_any
    assert not signature.accepts("colour")
    assert f"{package}.factories" not in sys.modules


def test_arbitrary_keywords_accept_anything_but_positional_names_are_not_keys(package: str) -> None:
    signature = factory_signature(f"{package}.factories.free")
    assert signature is not None
    assert list(signature.parameters) == ["y"]
    assert signature.accepts_any
    assert signature.accepts("colour")


@pytest.mark.parametrize(
    "path",
    [
        "{package}.factories.nothing",
        "{package}.factories.not_a_function",
        "{package}.factories.imported",
        "{package}.broken.f",
        "{package}.missing.f",
        "no_such_package_anywhere.factories.f",
        "json.decoder.scanstring",
        "math.sqrt",
        "function_without_module",
        "",
    ],
)
def test_what_cannot_be_read_is_unknown(package: str, path: str) -> None:
    assert factory_signature(path.format(package=package)) is None


def test_a_package_that_raises_at_import_leaves_the_vocabulary_unknown(
    package: str, tmp_path: Path
) -> None:
    (tmp_path / package / "__init__.py").write_text("raise RuntimeError('no GPU')")
    assert factory_signature(f"{package}.factories.plain") is None


def test_engine_keys_are_declared_ones_and_server_arguments() -> None:
    assert {"mem_fraction_static", "kv_cache_bytes", "attention_backend"} <= engine_keys()
    assert "mem_fraction_statik" not in engine_keys()
    assert server_args_fields()["max_running_requests"] == "Optional[int]"
    assert not [name for name in server_args_fields() if name.startswith("_")]


def test_the_data_is_of_the_pinned_release() -> None:
    pinned = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f"sglang=={server_args_version()} " in pinned


def test_declared_engine_keys_that_are_no_server_arguments_are_translated_elsewhere() -> None:
    """`cuda_graph_max_bs` became `cuda_graph_max_bs_decode`; KV bytes are placement's."""
    assert set(EngineArgs.model_fields) - set(server_args_fields()) == {
        "cuda_graph_max_bs",
        "kv_cache_bytes",
    }
