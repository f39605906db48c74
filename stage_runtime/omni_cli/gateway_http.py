"""Asking a gateway over HTTP, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from omni_config.errors import OmniError

TIMEOUT_SECONDS = 10.0


class GatewayUnreachable(OmniError):
    """Nobody answers at the address, or not as a gateway does."""


class GatewayRefused(OmniError):
    """The gateway answered with an error, whose message this is."""


def get_json(gateway: str, path: str, api_key: str | None) -> dict[str, Any]:
    """Return what a gateway answers to a GET.

    Args:
        gateway: base URL, such as `http://127.0.0.1:8000`.

    Raises:
        GatewayUnreachable: there is no gateway.
        GatewayRefused: it answered with an error.
    """
    if not gateway.startswith(("http://", "https://")):
        raise GatewayUnreachable(f"'{gateway}' is no address: give http://HOST:PORT")
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        request = urllib.request.Request(f"{gateway.rstrip('/')}/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            found = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise GatewayRefused(_message(error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise GatewayUnreachable(f"no gateway answers at {gateway}: {error}") from error
    if not isinstance(found, dict):
        raise GatewayUnreachable(f"{gateway} answers, but not as a gateway does")
    return found


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code}"
