"""The directory of a run is private, goes away, and is found when its launcher was killed."""

import stat
from pathlib import Path

import pytest

from omni_runtime.launcher.run_directory import UnsafeDirectory, remove_abandoned, run_directory


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "base" / "echo-1"
    with run_directory(path) as folder:
        (folder / "config.yaml").write_text("x")
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o1777
    assert list((tmp_path / "base").iterdir()) == []


def test_what_a_killed_launcher_left_is_removed_by_the_next(tmp_path: Path) -> None:
    abandoned = tmp_path / "echo-1"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    (abandoned / "talker.sock").touch()
    with run_directory(tmp_path / "echo-2"):
        assert not abandoned.exists()


def test_the_directory_of_a_living_run_and_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "not-a-run").mkdir()
    with run_directory(tmp_path / "echo-1"):
        assert remove_abandoned(tmp_path) == []
        assert {path.name for path in tmp_path.iterdir()} == {"echo-1", "not-a-run"}


def test_a_link_in_place_of_the_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeDirectory, match="another user"), run_directory(tmp_path / "base/run"):
        pass
