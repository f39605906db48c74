"""What the machine has, from what the driver and the kernel say."""

from pathlib import Path

import pytest

from omni_runtime.launcher.host_facts import device_table, usable_cpus

CARD = "11111111-2222-3333-4444-555555555555"
FOUND: list[dict[str, int | str]] = [
    {"uuid": CARD, "memory_bytes": 80 << 30, "major": 9, "minor": 0}
]


def test_a_card_is_named_by_its_physical_identity() -> None:
    table = device_table(FOUND, {f"GPU-{CARD}": False}, has_mps_control=True)
    assert table.uuid(0) == f"GPU-{CARD}"
    assert table.visible_count == 1
    assert table.devices[0].mps_obstacle is None


def test_a_card_in_mig_mode_and_a_slice_of_one_are_told_apart() -> None:
    whole = device_table(FOUND, {f"GPU-{CARD}": True}, has_mps_control=True)
    slice_ = device_table(FOUND, {"GPU-another": True}, has_mps_control=True)
    assert whole.devices[0].mps_obstacle == "MIG mode is enabled"
    assert slice_.devices[0].mps_obstacle == f"MIG-{CARD} is a MIG device"


@pytest.mark.parametrize(
    ("quota", "most"),
    [
        pytest.param("50000 100000", 1, id="half a CPU counts as one"),
        pytest.param("max 100000", None, id="no quota"),
    ],
)
def test_a_container_quota_bounds_the_cpus(tmp_path: Path, quota: str, most: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    unbounded = usable_cpus(tmp_path / "missing")
    assert usable_cpus(file) == (most or unbounded)
