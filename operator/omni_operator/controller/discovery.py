"""What the cluster offers, asked at start and from time to time."""

from __future__ import annotations

from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.logs import EventLogger
from omni_operator.controller.resources import DEVICE_CLASSES, NODES, OWNED
from omni_operator.plan.capabilities import OPTIONAL_KINDS, Capabilities
from omni_operator.render.manifest import Manifest

logger = EventLogger(__name__)


async def discover(client: Client) -> Capabilities:
    """Return the capabilities of a cluster.

    What the operator may not read counts as absent, as a namespaced one may not read nodes.

    Raises:
        ApiError: the API server does not say which kinds it serves.
    """
    version = await client.request("GET", "/version")
    groups = await client.request("GET", "/apis")
    return Capabilities(
        version=int("".join(filter(str.isdigit, version["minor"]))),
        device_classes=await _device_classes(client),
        resources=await _advertised(client),
        kinds=await _optional_kinds(client, groups),
    )


async def _device_classes(client: Client) -> frozenset[str] | None:
    try:
        return frozenset([one["metadata"]["name"] async for one in client.list(DEVICE_CLASSES)])
    except ApiError as error:
        if error.is_missing:
            return None
        if error.is_forbidden:
            logger.warning("device classes may not be read", error=error)
            return None
        raise


async def _advertised(client: Client) -> frozenset[str]:
    """Return the extended resources of all nodes."""
    found: set[str] = set()
    try:
        async for node in client.list(NODES):
            allocatable = (node.get("status") or {}).get("allocatable") or {}
            found |= {name for name, count in allocatable.items() if "/" in name and count != "0"}
    except ApiError as error:
        if not error.is_forbidden:
            raise
        logger.warning("nodes may not be read", error=error)
    return frozenset(found)


async def _optional_kinds(client: Client, groups: Manifest) -> frozenset[str]:
    """Return those of the optional kinds that are served in the version we use."""
    served = {
        version["groupVersion"] for one in groups.get("groups") or () for version in one["versions"]
    }
    found: set[str] = set()
    for resource in OWNED:
        if resource.needs not in OPTIONAL_KINDS or resource.api_version not in served:
            continue
        listed = await client.request("GET", f"/apis/{resource.api_version}")
        if any(one["name"] == resource.plural for one in listed.get("resources") or ()):
            found.add(resource.needs)
    return frozenset(found)
