"""API keys: how files hold them, what each may use, and when a change is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_gateway.access.guard import Guard
from omni_gateway.access.keys import ApiKey, InvalidKeyFile, digest_of, new_key, read_keys
from omni_gateway.access.quota import Quota
from omni_gateway.errors import RateLimited, Unauthenticated

APP = ApiKey("app", digest_of("secret"), concurrency=2, requests_per_minute=60)


def test_a_file_of_lines_and_a_folder_of_secrets_hold_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n{APP.line}  # the application\n")
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "app").write_text(APP.line.removeprefix("app "))
    (folder / "plain").write_text("open sesame\n")
    (folder / "..data").write_text("not a key")

    assert read_keys(file) == {APP.digest: APP}
    assert read_keys(folder) == {
        APP.digest: APP,
        digest_of("open sesame"): ApiKey("plain", digest_of("open sesame")),
    }


@pytest.mark.parametrize(
    "text",
    [
        "app",
        "app secret",
        "app sha256:abc",
        f"{APP.line} speed=3",
        f"app sha256:{APP.digest} concurrency=0",
        f"{APP.line}\n{APP.line}",
    ],
)
def test_a_line_that_makes_no_sense_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(InvalidKeyFile) as raised:
        read_keys(file)
    assert str(file) in str(raised.value)
    assert "secret" not in str(raised.value)
    assert APP.digest not in str(raised.value)


def test_new_keys_differ() -> None:
    assert len({new_key() for _ in range(100)}) == 100


@pytest.mark.parametrize("header", [None, "", "secret", "Basic secret", "Bearer other", "Bearer "])
def test_nobody_comes_in_without_an_accepted_key(tmp_path: Path, header: str | None) -> None:
    guard = Guard(_written(tmp_path, APP))
    with pytest.raises(Unauthenticated):
        guard.identify(header)
    assert guard.identify("bearer secret") == APP


def test_keys_change_without_a_restart_and_damage_changes_nothing(tmp_path: Path) -> None:
    file = _written(tmp_path, APP)
    guard = Guard(file)
    file.write_text("nonsense")
    with pytest.raises(InvalidKeyFile):
        guard.reload()
    assert guard.identify("Bearer secret") == APP

    file.write_text(ApiKey("other", digest_of("new")).line)
    guard.reload()
    with pytest.raises(Unauthenticated):
        guard.identify("Bearer secret")
    found = guard.identify("Bearer new")
    assert found is not None
    assert found.name == "other"


def test_a_key_has_its_requests_at_once_and_gives_them_back(tmp_path: Path) -> None:
    guard = Guard(_written(tmp_path, APP))
    with guard.using(APP), guard.using(APP):
        with pytest.raises(RateLimited), guard.using(APP):
            pass
        with guard.using(None):
            pass
    with guard.using(APP):
        pass


def test_a_minute_s_requests_come_back_evenly() -> None:
    quota = Quota.full(ApiKey("app", "", requests_per_minute=2), now=0.0)
    quota.begin(0.0)
    quota.begin(0.0)
    with pytest.raises(RateLimited) as raised:
        quota.begin(15.0)
    assert raised.value.retry_after == pytest.approx(15.0)
    quota.begin(30.0)
    with pytest.raises(RateLimited):
        quota.begin(30.0)


def _written(folder: Path, key: ApiKey) -> Path:
    file = folder / "keys"
    file.write_text(key.line)
    return file
