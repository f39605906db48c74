"""The vocabulary of conditions and events: every word that programs may rely on."""

from __future__ import annotations

ACCEPTED = "Accepted"
"""The object is well formed."""
CONFIG_RESOLVED = "ConfigResolved"
"""The configuration resolves, and a plan of it satisfies every rule."""
GPU_SHARING_SUPPORTED = "GPUSharingSupported"
"""The cluster can give the GPUs the way they are shared."""
GROUPS_READY = "GroupsReady"
"""Every pod shape has all its wanted pods, routable."""
GATEWAY_READY = "GatewayReady"
"""Every gateway is ready."""
ROUTABLE = "Routable"
"""A complete path of some revision serves requests."""
PROGRESSING = "Progressing"
"""A new revision or another number of pods is on its way."""
DEGRADED = "Degraded"
"""Something needs a person."""
READY = "Ready"
"""The wanted revision serves with all its pods."""

ORDER = (
    ACCEPTED,
    CONFIG_RESOLVED,
    GPU_SHARING_SUPPORTED,
    GROUPS_READY,
    GATEWAY_READY,
    ROUTABLE,
    PROGRESSING,
    DEGRADED,
    READY,
)
"""Conditions as status lists them, causes before effects."""

AS_EXPECTED = "AsExpected"
INVALID_OBJECT = "InvalidObject"
INVALID_CONFIG = "InvalidConfig"
PROFILE_MISSING = "ProfileMissing"
PLAN_REFUSED = "PlanRefused"
NOT_SHARED = "NotShared"
MPS_NOT_ATTACHED = "MPSNotAttached"
KIND_MISSING = "KindMissing"
INSUFFICIENT_CAPACITY = "InsufficientCapacity"
IMAGE_PULL = "ImagePull"
CRASH_LOOP = "CrashLoop"
MODEL_DOWNLOAD = "ModelDownload"
MODEL_LOAD = "ModelLoad"
NOT_REGISTERED = "NotRegistered"
DRAINING = "Draining"
PODS_MISSING = "PodsMissing"
NO_COMPLETE_PATH = "NoCompletePath"
GATEWAYS_UNREACHABLE = "GatewaysUnreachable"
GATEWAYS_NOT_READY = "GatewaysNotReady"
ROLLOUT_COMPLETE = "RolloutComplete"
ROLLOUT_IN_PROGRESS = "RolloutInProgress"
ROLLOUT_STALLED = "RolloutStalled"
PAUSED = "Paused"
DRAIN_TIMED_OUT = "DrainTimedOut"
OBJECT_REFUSED = "ObjectRefused"
OLD_REVISION_SERVES = "OldRevisionServes"
UNKNOWN = "NotEvaluated"
