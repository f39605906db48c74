"""Events on the user's object: each is one edge of its state, said once.

An Event is named after its content, so a repetition within the API server's memory (an hour) is
refused there as existing, even when another operator said it first.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime

from omni_operator.controller.client import ApiError, Client
from omni_operator.controller.logs import EventLogger
from omni_operator.names import API_VERSION, FIELD_MANAGER, KIND, short_hash
from omni_operator.plan.world import Event
from omni_operator.render.manifest import Manifest

logger = EventLogger(__name__)

REMEMBERED = 10_000
MESSAGE_LENGTH = 1024


class EventRecorder:
    """Writes Events; never fails a turn because of one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: OrderedDict[str, None] = OrderedDict()

    async def record(self, pipeline: Manifest, events: tuple[Event, ...]) -> None:
        """Write those events that were not written yet."""
        for event in events:
            manifest = _manifest(pipeline, event)
            name = manifest["metadata"]["name"]
            if name in self._said:
                continue
            try:
                await self._client.create(manifest)
            except ApiError as error:
                if not error.is_conflict:
                    logger.warning("event not written", reason=event.reason, error=error)
                    continue
            self._said[name] = None
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)


def _manifest(pipeline: Manifest, event: Event) -> Manifest:
    metadata = pipeline["metadata"]
    generation = metadata.get("generation", 0)
    content = f"{metadata['uid']} {generation} {event.type} {event.reason} {event.message}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{short_hash(content)}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MESSAGE_LENGTH],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
