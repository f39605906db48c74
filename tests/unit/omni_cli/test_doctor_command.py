"""`omni doctor` tells what is there and what is wrong, on machines that tests make up."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_cli import doctor_command, health_checks
from tests.support.command_line import Outcome, omni


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH, and free ports."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(doctor_command, "PORTS", ())
    return folder


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def doctor(tmp_path: Path) -> Outcome:
    return omni("doctor", "--base-path", str(tmp_path / "runs"))


def test_an_empty_machine_has_nothing_wrong(programs: Path, tmp_path: Path) -> None:
    shown = doctor(tmp_path)
    assert shown.status == 0, shown.stdout
    assert "--  none: there is no nvidia-smi" in shown.stdout
    assert "--  none runs here\n      omni up --config FILE" in shown.stdout
    assert "--  there is no kubectl" in shown.stdout
    assert shown.stdout.endswith("nothing is wrong\n")


def test_a_missing_extra_comes_with_its_command(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "EXTRAS", {"runtime": ("no-such-package",)})
    shown = doctor(tmp_path)
    assert "--  runtime: no-such-package not installed\n" in shown.stdout
    assert "pip install 'omnipipe[runtime]'" in shown.stdout


def test_cards_are_told(programs: Path, tmp_path: Path) -> None:
    program(programs, "nvidia-smi", "echo '0, NVIDIA H200, 12 MiB, 143771 MiB, 580.65.06'")
    text = "0: NVIDIA H200, 12 MiB of 143771 MiB used, driver 580.65.06"
    assert f"ok  {text}" in doctor(tmp_path).stdout


def test_a_driver_that_fails_is_wrong(programs: Path, tmp_path: Path) -> None:
    program(programs, "nvidia-smi", "echo 'Driver/library version mismatch' >&2; exit 18")
    shown = doctor(tmp_path)
    assert shown.status == 1
    assert "!!  nvidia-smi fails: Driver/library version mismatch" in shown.stdout
    assert shown.stdout.endswith("1 wrong\n")


def test_a_taken_port_is_wrong_where_no_pipeline_runs(
    programs: Path, tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_command, "PORTS", (taken_port,))
    shown = doctor(tmp_path)
    assert shown.status == 1
    assert f"!!  {taken_port} is taken by another program" in shown.stdout


def test_a_run_whose_gateway_is_silent_is_wrong(programs: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "parrot-1"
    run.mkdir(parents=True)
    lock = os.open(run / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = doctor(tmp_path)
    finally:
        os.close(lock)
    assert shown.status == 1
    assert "!!  parrot-1: its gateway does not answer" in shown.stdout
    assert "none runs here" in doctor(tmp_path).stdout, "a run that nobody holds is over"


KINDS = health_checks.CUSTOM_RESOURCES
CRDS = "customresourcedefinition.apiextensions.k8s.io/"


@pytest.mark.parametrize(
    ("names", "operators", "status", "told"),
    [
        pytest.param((), "", 0, "--  omnipipelines.omnipipe.dev", id="not installed"),
        pytest.param(KINDS, "", 1, "!!  the operator is not installed", id="no operator"),
        pytest.param(KINDS, "op ", 1, "!!  the operator is not ready", id="operator starts"),
        pytest.param(KINDS, "op 1", 0, "ok  the operator is ready", id="operator ready"),
    ],
)
def test_a_cluster_is_looked_at(
    programs: Path, tmp_path: Path, names: tuple[str, ...], operators: str, status: int, told: str
) -> None:
    listed = "; ".join(f"echo {CRDS}{name}" for name in names) or ":"
    cases = f"config*) echo here;; getcrd*) {listed};; *) echo '{operators}';;"
    program(programs, "kubectl", f'case "$1$2" in {cases} esac')
    shown = doctor(tmp_path)
    assert told in shown.stdout
    assert shown.status == status


def test_programs_read_it_as_json(programs: Path, tmp_path: Path) -> None:
    shown = omni("doctor", "--base-path", str(tmp_path), "-o", "json")
    found = json.loads(shown.stdout)
    assert found["healthy"] is True
    gpus = next(one for one in found["findings"] if one["area"] == "GPUs")
    assert gpus["verdict"] == "absent"
