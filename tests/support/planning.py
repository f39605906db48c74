"""Runs planning cases: a configuration and made-up devices in, a plan or a refusal out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from omni_config.errors import ConfigError
from omni_config.planning.devices import Device, DeviceTable
from omni_config.planning.plan import PipelineRuntime, Signatures, prepare_pipeline_runtime
from omni_config.vocabulary import FactorySignature, Parameter
from tests.support.config import Case, load_case

Answer = TypeVar("Answer")

_CASES = Path(__file__).parents[1] / "cases"
_TELLING = re.compile(r"'([^']*)'|([A-Za-z0-9_@.-]*[0-9_][A-Za-z0-9_@.-]*)")
_PLACEHOLDER = re.compile(r"<[A-Z_]+>")

OUR_PREFIX = ("SGLANG_OMNI_", "OMNI_")
"""The reference's own variables, and ours; those of SGLang itself keep their names."""


def planning_cases(kind: str) -> list[Case]:
    """Return the cases of one kind as ours are named, deviations applied.

    A deviation replaces single keys of what a case expects.
    """
    text = (_CASES / "config" / f"{kind}.json").read_text().replace(*OUR_PREFIX)
    loaded: list[Case] = json.loads(text)["cases"]
    ours = planning_deviations()
    for case in loaded:
        case["expected"] |= ours.get(case["id"], {}).get("expected", {})
    return loaded


def planning_deviations() -> dict[str, Case]:
    """Return where ours plans otherwise on purpose."""
    loaded: dict[str, Case] = json.loads((_CASES / "deviations" / "planning.json").read_text())
    return loaded


def no_signatures(path: str) -> None:
    """Know no factory, so that cases about other things may write any factory key."""


def signatures_of(parameters: Mapping[str, Iterable[str]]) -> Signatures:
    """Return signatures that know some factories by import path, `**rest` included."""
    known = {path: signature(path, names) for path, names in parameters.items()}
    return known.get


def signature(path: str, names: Iterable[str]) -> FactorySignature:
    """Return the signature of a made-up factory."""
    plain = {name: Parameter(name) for name in names if not name.startswith("**")}
    return FactorySignature(path, plain, any(name.startswith("**") for name in names))


def plan_case(given: Mapping[str, Any], signatures: Signatures = no_signatures) -> PipelineRuntime:
    """Resolve and plan the input of a case.

    Raises:
        ConfigError: it is refused on the way.
    """
    return prepare_pipeline_runtime(
        load_case(given),
        devices=device_table(given),
        environ=given.get("environ"),
        run_id="RUN",
        signatures=signatures,
    )


def device_table(given: Mapping[str, Any]) -> DeviceTable:
    """Return the made-up devices of a case."""
    devices = {
        int(gpu_id): Device(
            uuid=device["uuid"], mig=device.get("unsupported") == "MIG mode is enabled"
        )
        for gpu_id, device in given.get("devices", {}).items()
    }
    memory = given.get("memory_bytes")
    if memory is not None:
        devices = {gpu_id: Device(f"GPU-{gpu_id}", memory_bytes=memory) for gpu_id in range(8)}
    has_control = given.get("has_binary", False) if given.get("through") == "host" else None
    return DeviceTable(devices, given.get("visible"), has_control)


def accepted(attempt: Callable[[], Answer], expected: Mapping[str, Any]) -> Answer | None:
    """Return what an attempt gives, or null when it is refused as the case says."""
    try:
        answer = attempt()
    except ConfigError as error:
        refusal = error
    else:
        assert expected["ok"], "accepted"
        return answer
    assert not expected["ok"], f"refused: {refusal}"
    assert all(problem.path for problem in refusal.problems)
    assert_refusal(str(refusal), expected)
    return None


def assert_refusal(said: str, expected: Mapping[str, Any]) -> None:
    """Check that a refusal names everything the case's refusal names: values, settings, stages."""
    error = expected["error"]
    wanted = [error["says"]] if "says" in error else [it["says"] for it in error["problems"]]
    for text in wanted:
        missing = [name for name in telling_names(text) if name not in said]
        assert not missing, f"{said!r} does not name {missing} of {text!r}"


def telling_names(text: str) -> list[str]:
    """Return the quoted words of a message, and its words with a digit or an underscore."""
    plain = _PLACEHOLDER.sub(" ", text)
    found = [quoted or word.strip(".-") for quoted, word in _TELLING.findall(plain)]
    return [name for name in found if name]
