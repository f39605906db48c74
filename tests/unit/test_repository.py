"""The repository's own promises: source roots, a light base, locks that agree, loud skips."""

import ast
import importlib.util
import operator
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("operator", "stage_runtime")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
CUDA_PINS = dict(
    re.findall(
        r"^([\w.-]+)(?:\[.*?\])?==(\S+)$", (ROOT / "requirements/cuda.txt").read_text(), re.M
    )
)
PACKAGES = [
    ROOT / path for path in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
]


@pytest.mark.parametrize("source_root", SOURCE_ROOTS)
def test_a_source_root_is_not_a_package(source_root: str) -> None:
    assert not (ROOT / source_root / "__init__.py").exists()


def test_operator_still_means_the_standard_library() -> None:
    assert Path(operator.__file__).parent == Path(sysconfig.get_path("stdlib"))


def test_the_wheel_names_every_package_and_no_other() -> None:
    inits = [init for root in SOURCE_ROOTS for init in (ROOT / root).glob("*/__init__.py")]
    assert sorted(init.parent for init in inits) == sorted(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_is_typed_and_says_why_it_exists(package: Path) -> None:
    assert (package / "py.typed").exists()
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_is_imported_from_its_source_root(package: Path) -> None:
    found = importlib.util.find_spec(package.name)
    assert found is not None
    assert found.origin == str(package / "__init__.py")


IMPORT_ALL = """
import importlib, pkgutil, sys

for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
        importlib.import_module(module.name)
print(*sorted({"sglang", "torch", "transformers"} & sys.modules.keys()))
"""


def test_light_modules_load_nothing_heavy() -> None:
    """The import contract reads source; this sees imports by computed name as well."""
    light = ["omni_cli", "omni_client", "omni_config", "omni_gateway", "omni_operator"]
    if importlib.util.find_spec("omni_runtime.launcher"):
        light.append("omni_runtime.launcher")
    command = [sys.executable, "-c", IMPORT_ALL, *light]
    loaded = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert not loaded.strip()


def test_the_base_has_no_dependencies() -> None:
    assert PYPROJECT["project"]["dependencies"] == []


def image_requirements() -> list[Requirement]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    parsed = [Requirement(line) for extra in extras if extra != "dev" for line in extras[extra]]
    return [requirement for requirement in parsed if requirement.name != "omnipipe"]


def test_the_image_has_the_versions_that_the_extras_ask_for() -> None:
    wrong = [
        f"{requirement} against {CUDA_PINS.get(canonicalize_name(requirement.name))}"
        for requirement in image_requirements()
        if not requirement.specifier.contains(CUDA_PINS[canonicalize_name(requirement.name)])
    ]
    assert not wrong, "run `make cuda-constraints`"


def test_the_image_has_the_versions_that_tests_ran_with() -> None:
    locked: dict[str, set[str]] = {}
    for package in LOCK["package"]:
        locked.setdefault(package["name"], set()).add(package.get("version", "ours"))
    different = {
        name: (CUDA_PINS[name], versions)
        for name, versions in locked.items()
        if name in CUDA_PINS and CUDA_PINS[name] not in versions
    }
    assert not different, "run `make cuda-constraints`"


def test_what_the_lock_leaves_out_is_in_the_image() -> None:
    overrides = [Requirement(line) for line in PYPROJECT["tool"]["uv"]["override-dependencies"]]
    assert all(str(override.marker) == 'sys_platform == "never"' for override in overrides)
    foreign = {"decord2"}  # asked for on ARM only
    assert {override.name for override in overrides} - foreign <= CUDA_PINS.keys()


SKIPPING = """
import pytest

@pytest.mark.{marker}
def test_needs_something():
    pytest.skip("not here")
"""


@pytest.mark.parametrize(
    ("marker", "in_ci", "passes"),
    [
        pytest.param("slow", False, True, id="a skip passes on a developer's machine"),
        pytest.param("slow", True, False, id="a skip fails in CI"),
        pytest.param("gpu", True, True, id="a missing GPU is excused in CI"),
        pytest.param("xfail", True, False, id="xfail does not excuse a skip"),
    ],
)
def test_skips_in_ci(tmp_path: Path, marker: str, in_ci: bool, passes: bool) -> None:
    result = run_suite(tmp_path, SKIPPING.format(marker=marker), in_ci)
    assert (result.returncode == 0) is passes, result.stdout
    assert ("SKIPPED" in result.stdout) is passes, "the reason is always printed"


def test_a_module_that_skips_itself_fails_in_ci(tmp_path: Path) -> None:
    result = run_suite(tmp_path, "import pytest\npytest.importorskip('no_such_module')\n", True)
    assert result.returncode != 0
    assert "a skip is a failure" in result.stdout


def run_suite(tmp_path: Path, source: str, in_ci: bool) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_suite.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -rs\nmarkers =\n  slow\n  gpu\n")
    environment = os.environ | {
        "OMNIPIPE_CI": "1" if in_ci else "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),  # where the copied conftest finds what it imports
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
