"""Who may do what: the one table of operations and the scope that each needs.

A key carries a `Grant`: a scope, and perhaps the endpoints that it is for. Scopes contain each
other: whoever may administer may operate, whoever may operate may invoke. What is not in the table
needs the widest, so that a new operation is closed until somebody has thought about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from penstock.errors import CallerError

INVOKE: Final = "invoke"
OPERATE: Final = "operate"
ADMIN: Final = "admin"
#: Narrowest first; each may do what those before it may.
SCOPES: Final = (INVOKE, OPERATE, ADMIN)

#: Operations that AWS has no name for.
SERVER_METADATA: Final = "ServerMetadata"  #: GET / and /v2
MODEL_METADATA: Final = "ModelMetadata"  #: readiness, configuration and statistics of one model
LIST_SERVED_MODELS: Final = "ListServedModels"  #: /v1/models, the repository's index
LOAD_TARGET_MODEL: Final = "LoadTargetModel"  #: or unload, pin, unpin: it costs others memory
INVOKE_ENDPOINT: Final = "InvokeEndpoint"  #: every door's way to ask a model
READ_METRICS: Final = "ReadMetrics"  #: /metrics
READ_STATUS: Final = "ReadStatus"  #: /admin/..., and what a region could take
CHANGE_TRAFFIC: Final = "ChangeTraffic"  #: how much of it goes to which region
CHANGE_SCHEDULES: Final = "ChangeSchedules"  #: make, pause, run, delete: they create jobs
CLOUDWATCH_FORM: Final = "CloudWatchForm"  #: which of CloudWatch's, only the body says
UNKNOWN: Final = "Unknown"

#: Operation -> the narrowest scope that may call it.
NEEDS: Final = MappingProxyType(
    {
        INVOKE_ENDPOINT: INVOKE,
        SERVER_METADATA: INVOKE,
        MODEL_METADATA: INVOKE,
        LIST_SERVED_MODELS: INVOKE,
        LOAD_TARGET_MODEL: OPERATE,
        READ_METRICS: OPERATE,
        READ_STATUS: OPERATE,
        CLOUDWATCH_FORM: OPERATE,
        CHANGE_TRAFFIC: OPERATE,
        "PutMetricData": OPERATE,
        "GetMetricData": OPERATE,
        "GetMetricStatistics": OPERATE,
        "ListMetrics": OPERATE,
        "PutMetricAlarm": OPERATE,
        "PutCompositeAlarm": OPERATE,
        "DescribeAlarms": OPERATE,
        "DescribeAlarmsForMetric": OPERATE,
        "DescribeAlarmHistory": OPERATE,
        "SetAlarmState": OPERATE,
        "EnableAlarmActions": OPERATE,
        "DisableAlarmActions": OPERATE,
        "DeleteAlarms": OPERATE,
        "TagResource": OPERATE,
        "UntagResource": OPERATE,
        "ListTagsForResource": OPERATE,
        "DescribeModel": OPERATE,
        "ListModels": OPERATE,
        "DescribeEndpointConfig": OPERATE,
        "ListEndpointConfigs": OPERATE,
        "DescribeEndpoint": OPERATE,
        "ListEndpoints": OPERATE,
        "ListTags": OPERATE,
        "UpdateEndpointWeightsAndCapacities": OPERATE,
        "DescribeInferenceComponent": OPERATE,
        "ListInferenceComponents": OPERATE,
        "UpdateInferenceComponentRuntimeConfig": OPERATE,
        "DescribeTransformJob": OPERATE,
        "ListTransformJobs": OPERATE,
        "StopTransformJob": OPERATE,
        "RegisterScalableTarget": OPERATE,
        "DescribeScalableTargets": OPERATE,
        "DeregisterScalableTarget": OPERATE,
        "PutScalingPolicy": OPERATE,
        "DescribeScalingPolicies": OPERATE,
        "DeleteScalingPolicy": OPERATE,
        "DescribeScalingActivities": OPERATE,
        "PutScheduledAction": OPERATE,
        "DescribeScheduledActions": OPERATE,
        "DeleteScheduledAction": OPERATE,
        CHANGE_SCHEDULES: ADMIN,
        "CreateModel": ADMIN,
        "DeleteModel": ADMIN,
        "CreateEndpointConfig": ADMIN,
        "DeleteEndpointConfig": ADMIN,
        "CreateEndpoint": ADMIN,
        "UpdateEndpoint": ADMIN,
        "DeleteEndpoint": ADMIN,
        "CreateTransformJob": ADMIN,
        "CreateInferenceComponent": ADMIN,
        "UpdateInferenceComponent": ADMIN,
        "DeleteInferenceComponent": ADMIN,
        "AddTags": ADMIN,
        "DeleteTags": ADMIN,
    }
)

#: Tells nothing of any endpoint: a key that is bound to some may ask it too.
_OF_NO_ENDPOINT: Final = frozenset({SERVER_METADATA})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key may do."""

    scope: str = ADMIN
    endpoints: frozenset[str] = frozenset()  #: names in lower case; none = every endpoint

    def __post_init__(self) -> None:
        """Raises CallerError `scope-unknown`."""
        if self.scope not in SCOPES:
            raise CallerError(
                "scope-unknown",
                f"{self.scope!r} is not a scope",
                hint=f"Scopes are {', '.join(SCOPES)}.",
            )

    def only(self, scope: str) -> Grant:
        """The same, but no more than `scope`: what one makes for others is never more than it."""
        return Grant(min(self.scope, scope, key=SCOPES.index), self.endpoints)


def needed(operation: str) -> str:
    """The narrowest scope that may call `operation`."""
    return NEEDS.get(operation, ADMIN)


def allowed(grant: Grant, operation: str, endpoint: str | None = None) -> bool:
    """Whether a key may do it.

    Args:
        endpoint: whom it is about; None for what is about none. A key that is bound to endpoints
            may do only what is about one of them.
    """
    if SCOPES.index(grant.scope) < SCOPES.index(needed(operation)):
        return False
    if not grant.endpoints or operation in _OF_NO_ENDPOINT:
        return True
    return endpoint is not None and endpoint.lower() in grant.endpoints
