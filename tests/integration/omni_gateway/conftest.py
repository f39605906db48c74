"""One gateway with the chat example for the tests that change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chat_gateway import ChatGateway, chat_gateway


@pytest.fixture(scope="session")
def parrot() -> Iterator[ChatGateway]:
    with chat_gateway() as gateway:
        yield gateway
