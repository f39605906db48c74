"""The operator's single secret: read at start, made when there is none, never changed.

It and the Lease belong to the operator's service account, so that an uninstalled operator leaves
nothing of its own behind. Not to its Deployment: who deletes that by hand does not want to have
every certificate replaced.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence

from omni_config.errors import OmniError
from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.resources import SECRETS, SERVICE_ACCOUNTS
from omni_operator.names import APP_LABELS
from omni_operator.render.manifest import Manifest

SECRET_NAME = "omnipipe-operator-authority"
KEY = "seed"
SECRET_BYTES = 32


class AuthorityUnreadable(OmniError):
    """The Secret exists and does not hold what it should; certificates cannot be issued."""


async def owner_references(client: Client, namespace: str, account: str) -> tuple[Manifest, ...]:
    """Return what makes objects go with a service account; nothing without a name.

    Raises:
        ApiError: the account does not exist or may not be read.
    """
    if not account:
        return ()
    found = await client.get(SERVICE_ACCOUNTS, namespace, account)
    uid = found["metadata"]["uid"]
    return ({"apiVersion": "v1", "kind": "ServiceAccount", "name": account, "uid": uid},)


async def load_secret(client: Client, namespace: str, owners: Sequence[Manifest] = ()) -> bytes:
    """Return the secret that all certificates derive from.

    Args:
        owners: owner references of one that has to be made.

    Raises:
        AuthorityUnreadable: the Secret was made or changed by somebody else.
        ApiError: it may not be read or created.
    """
    try:
        found = await client.get(SECRETS, namespace, SECRET_NAME)
    except ApiError as error:
        if not error.is_missing:
            raise
        found = await _create(client, namespace, owners)
    text = (found.get("data") or {}).get(KEY, "")
    secret = base64.b64decode(text)
    if len(secret) != SECRET_BYTES:
        raise AuthorityUnreadable(
            f"Secret {namespace}/{SECRET_NAME} must hold {SECRET_BYTES} bytes under '{KEY}', has "
            f"{len(secret)}; delete it to have it made anew (all pods then need new certificates)"
        )
    return secret


async def _create(client: Client, namespace: str, owners: Sequence[Manifest]) -> Manifest:
    seed = base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    wanted = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET_NAME,
            "namespace": namespace,
            "labels": dict(APP_LABELS),
            "ownerReferences": list(owners),
        },
        "type": "Opaque",
        "immutable": True,
        "data": {KEY: seed},
    }
    try:
        return await client.create(wanted)
    except ApiError as error:
        if not error.is_conflict:
            raise
        return await client.get(SECRETS, namespace, SECRET_NAME)
