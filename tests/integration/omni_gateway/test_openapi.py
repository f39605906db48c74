"""Requests made up from the API's own description, right and wrong ones, by schemathesis."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.chat_gateway import ChatGateway
from tests.support.patience import PATIENT_SECONDS

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
def test_no_request_breaks_the_gateway(parrot: ChatGateway) -> None:
    schema = schemathesis.openapi.from_url(f"{parrot.url}/openapi.json")
    found: Any = schema.get_all_operations()
    operations = [one.ok() for one in found]
    assert len(operations) > 8
    for operation in operations:

        @EXAMPLES
        @given(operation.as_strategy())
        def conforms(case: Any) -> None:
            case.call_and_validate(checks=list(CHECKS), timeout=PATIENT_SECONDS)

        conforms()


def test_the_description_has_a_page(parrot: ChatGateway) -> None:
    page = httpx.get(f"{parrot.url}/docs", timeout=PATIENT_SECONDS)
    assert page.status_code == 200
    assert "/openapi.json" in page.text
