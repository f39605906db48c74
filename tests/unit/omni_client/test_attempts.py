"""A request is tried again only where that is safe and worth it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from omni_client import OmniClient
from omni_client.connection import Attempts, Retries
from omni_wire.errors import (
    ErrorInfo,
    InvalidRequest,
    QueueFull,
    ServiceError,
    Unavailable,
    from_info,
)

QUICK = Retries(attempts=3, first_wait_seconds=0.2, longest_wait_seconds=5.0)
NEWER = from_info(ErrorInfo("SOMETHING_NEW", "come again", retryable=True, status="UNAVAILABLE"))


@pytest.mark.parametrize("error", [Unavailable("no replica"), NEWER], ids=["known", "newer"])
def test_an_error_that_may_pass_is_tried_again_under_another_id(error: ServiceError) -> None:
    attempts = Attempts("mine", 60.0, QUICK)
    assert 0.1 <= attempts.wait_after(error) <= 0.2
    assert attempts.request_id == "mine-2"
    assert 0.2 <= attempts.wait_after(error) <= 0.4
    assert attempts.request_id == "mine-3"
    with pytest.raises(type(error)):
        attempts.wait_after(error)


def test_nothing_is_tried_again_once_something_was_delivered() -> None:
    attempts = Attempts("mine", 60.0, QUICK)
    attempts.delivered = True
    with pytest.raises(Unavailable):
        attempts.wait_after(Unavailable("the replica is gone"))


def test_an_error_of_the_request_itself_is_final() -> None:
    with pytest.raises(InvalidRequest):
        Attempts("mine", 60.0, QUICK).wait_after(InvalidRequest("no such voice"))


def test_a_time_that_the_gateway_names_is_kept_within_bounds() -> None:
    attempts = Attempts("mine", 60.0, QUICK)
    assert attempts.wait_after(QueueFull("busy", retry_after=2.5)) == 2.5
    assert attempts.wait_after(QueueFull("busy", retry_after=90)) == 5.0


def test_no_wait_outlasts_the_deadline() -> None:
    with pytest.raises(QueueFull):
        Attempts("mine", 1.0, QUICK).wait_after(QueueFull("busy", retry_after=3))


def test_a_try_after_a_failed_connection_dials_again() -> None:
    """gRPC's own pause between connections would outlast most of the tries."""
    dialled = 0

    def hang_up(listener: socket.socket) -> None:
        nonlocal dialled
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                dialled += 1
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with OmniClient(address) as client, pytest.raises(Unavailable):
            client.chat("hello", modalities=["text"])
    assert dialled >= Retries().attempts - 1
