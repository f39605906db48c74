"""The contract names what is used: found in the source, so that nothing is used in silence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_models.qwen3_omni.seams import TALKER_SEAMS, THINKER_SEAMS
from omni_runtime.sglang_bridge.contract import SEAMS, Seam

ROOT = Path(__file__).parents[4] / "stage_runtime"
BRIDGE = sorted((ROOT / "omni_runtime/sglang_bridge").glob("*.py"))
QWEN = ROOT / "omni_models/qwen3_omni"
SHARED = [QWEN / "moe_weights.py"]


def imported(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that is imported from SGLang."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang"):
                yield from ((str(node.module), alias.name) for alias in node.names)


def overridden(file: Path) -> Iterator[str]:
    """Yield, as `Class.method`, each method that a class of ours hands on to its base."""
    for owner in ast.walk(ast.parse(file.read_text())):
        if not isinstance(owner, ast.ClassDef) or not isinstance(owner.bases[:1], list):
            continue
        for call in ast.walk(owner):
            if (
                isinstance(call, ast.Attribute)
                and isinstance(call.value, ast.Call)
                and isinstance(call.value.func, ast.Name)
                and call.value.func.id == "super"
            ):
                yield f"{ast.unparse(owner.bases[0])}.{call.attr}"


@pytest.mark.parametrize(
    ("files", "seams"),
    [
        pytest.param(BRIDGE, SEAMS, id="bridge"),
        pytest.param(
            [*SHARED, *(QWEN / "thinker").glob("*.py")], (*SEAMS, *THINKER_SEAMS), id="thinker"
        ),
        pytest.param(
            [*SHARED, *(QWEN / "talker").glob("*.py")], (*SEAMS, *TALKER_SEAMS), id="talker"
        ),
    ],
)
def test_everything_imported_is_named(files: list[Path], seams: tuple[Seam, ...]) -> None:
    named = {(seam.module, seam.name.split(".")[0]) for seam in seams}
    modules = {seam.module for seam in seams}
    found = set(imported(files))
    assert found
    unnamed = {
        f"{module}.{name}"
        for module, name in found
        if (module, name) not in named and f"{module}.{name}" not in modules
    }
    assert unnamed == set()


def test_every_method_that_is_handed_on_is_named() -> None:
    found = set(overridden(ROOT / "omni_runtime/sglang_bridge/hosted_scheduler.py"))
    assert len(found) > 10
    assert found <= {seam.name for seam in SEAMS}
