"""Who may do what: the one table of operations and the scope that each needs.

A key carries a `Grant`: a scope, and perhaps the endpoints that it is limited to. Scopes contain
each other: an administrator may operate, an operator may invoke. An operation that is not in the
table needs the widest scope, so a new operation is closed until somebody has thought about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from penstock.errors import CallerError

INVOKE: Final = "invoke"
OPERATE: Final = "operate"
ADMIN: Final = "admin"
#: Narrowest first; each includes those before it.
SCOPES: Final = (INVOKE, OPERATE, ADMIN)

#: Operations that AWS has no name for.
SERVER_METADATA: Final = "ServerMetadata"  #: GET / and /v2
MODEL_METADATA: Final = "ModelMetadata"  #: readiness, configuration and statistics of one model
LIST_SERVED_MODELS: Final = "ListServedModels"  #: /v1/models, the repository's index
#: load, unload, pin or unpin a target model: it takes other models' memory
LOAD_TARGET_MODEL: Final = "LoadTargetModel"
INVOKE_ENDPOINT: Final = "InvokeEndpoint"  #: every door's way to call a model
READ_METRICS: Final = "ReadMetrics"  #: /metrics
READ_STATUS: Final = "ReadStatus"  #: /admin/..., and a region's free room
CHANGE_TRAFFIC: Final = "ChangeTraffic"  #: change the regions' shares of traffic
BEGIN_ROLLOUT: Final = "BeginRollout"  #: give a target model another artifact
CHANGE_ROLLOUT: Final = "ChangeRollout"  #: pause, resume, promote or abort a rollout under way
#: make, pause, run or delete schedules, which create jobs
CHANGE_SCHEDULES: Final = "ChangeSchedules"
#: vouch for an artifact, so that its pickles are loaded: see `TRUST_VARIABLE`
TRUST_ARTIFACT: Final = "TrustArtifact"
#: register regions of shared memory, which are everybody's of the server's user
SHARE_MEMORY: Final = "ShareMemory"
CHANGE_LOG: Final = "ChangeLog"  #: set the level of the server's log
CLOUDWATCH_FORM: Final = "CloudWatchForm"  #: a CloudWatch operation that only the body names
UNKNOWN: Final = "Unknown"

_OPERATIONS: Final = {
    INVOKE: (INVOKE_ENDPOINT, SERVER_METADATA, MODEL_METADATA, LIST_SERVED_MODELS),
    OPERATE: (
        *(LOAD_TARGET_MODEL, READ_METRICS, READ_STATUS, CLOUDWATCH_FORM, CHANGE_TRAFFIC),
        CHANGE_ROLLOUT,
        *(SHARE_MEMORY, CHANGE_LOG),
        # metrics and alarms
        *("PutMetricData", "GetMetricData", "GetMetricStatistics", "ListMetrics"),
        *("PutMetricAlarm", "PutCompositeAlarm", "DescribeAlarms", "DescribeAlarmsForMetric"),
        *("DescribeAlarmHistory", "SetAlarmState", "EnableAlarmActions", "DisableAlarmActions"),
        *("DeleteAlarms", "TagResource", "UntagResource", "ListTagsForResource"),
        # models, endpoints and jobs
        *("DescribeModel", "ListModels", "DescribeEndpointConfig", "ListEndpointConfigs"),
        *("DescribeEndpoint", "ListEndpoints", "ListTags", "UpdateEndpointWeightsAndCapacities"),
        *("DescribeInferenceComponent", "ListInferenceComponents"),
        "UpdateInferenceComponentRuntimeConfig",
        *("DescribeInferenceExperiment", "ListInferenceExperiments"),
        *("DescribeTransformJob", "ListTransformJobs", "StopTransformJob"),
        # scaling
        *("RegisterScalableTarget", "DescribeScalableTargets", "DeregisterScalableTarget"),
        *("PutScalingPolicy", "DescribeScalingPolicies", "DeleteScalingPolicy"),
        *("DescribeScalingActivities", "PutScheduledAction", "DescribeScheduledActions"),
        "DeleteScheduledAction",
    ),
    ADMIN: (
        *(CHANGE_SCHEDULES, TRUST_ARTIFACT, "CreateModel", "DeleteModel", "CreateTransformJob"),
        *("CreateEndpointConfig", "DeleteEndpointConfig"),
        *("CreateEndpoint", "UpdateEndpoint", "DeleteEndpoint", "AddTags", "DeleteTags"),
        BEGIN_ROLLOUT,
        *("CreateInferenceComponent", "UpdateInferenceComponent", "DeleteInferenceComponent"),
        *("CreateInferenceExperiment", "UpdateInferenceExperiment", "StartInferenceExperiment"),
        *("StopInferenceExperiment", "DeleteInferenceExperiment"),
    ),
}
#: Operation -> the narrowest scope that may call it.
NEEDS: Final = MappingProxyType(
    {operation: scope for scope, operations in _OPERATIONS.items() for operation in operations}
)

#: The variable in a container's Environment by which a caller vouches for the artifact: "true".
TRUST_VARIABLE: Final = "PENSTOCK_TRUST_ARTIFACT"


def trusts(environment: Mapping[str, str]) -> bool:
    """Whether the artifact is vouched for."""
    return environment.get(TRUST_VARIABLE) == "true"


def check_trust(
    environment: Mapping[str, str], *, multi_model: bool = False, strangers: bool = False
) -> None:
    """Refuses trust that nobody may give. Raises CallerError (`environment-invalid`,
    `trust-refused`).

    Args:
        multi_model: the artifact is a prefix, to which others add models later.
        strangers: other machines may call without credentials, so nobody knows who vouches.
    """
    said = environment.get(TRUST_VARIABLE, "false")
    if said not in ("true", "false"):
        raise CallerError(
            "environment-invalid",
            f"{TRUST_VARIABLE} is {said[:40]!r}",
            hint="Give true, or leave it out.",
        )
    if not trusts(environment) or not (multi_model or strangers):
        return
    why = (
        "a multi-model endpoint loads whatever is put below its prefix"
        if multi_model
        else "this server asks other machines for no credentials (--insecure)"
    )
    raise CallerError(
        "trust-refused",
        f"{TRUST_VARIABLE} can't be given here: {why}",
        hint="The operator lists the place in control.trusted_artifacts of the configuration.",
    )


#: They reveal nothing of any endpoint: keys for certain endpoints may call them too.
_OF_NO_ENDPOINT: Final = frozenset({SERVER_METADATA})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key may do."""

    scope: str = ADMIN
    endpoints: frozenset[str] = frozenset()  #: names in lower case; empty = every endpoint

    def __post_init__(self) -> None:
        """Raises CallerError `scope-unknown`."""
        if self.scope not in SCOPES:
            raise CallerError(
                "scope-unknown",
                f"{self.scope!r} is not a scope",
                hint=f"Scopes are {', '.join(SCOPES)}.",
            )

    def only(self, scope: str) -> Grant:
        """The grant limited to `scope`: a grant made for another key never exceeds one's own."""
        return Grant(min(self.scope, scope, key=SCOPES.index), self.endpoints)


def needed(operation: str) -> str:
    """The narrowest scope that may call `operation`."""
    return NEEDS.get(operation, ADMIN)


def allowed(grant: Grant, operation: str, endpoint: str | None = None) -> bool:
    """Whether a key may call the operation.

    Args:
        endpoint: the endpoint concerned; None: the operation concerns none. A key that is limited
            to endpoints may only call operations that concern one of them.
    """
    if SCOPES.index(grant.scope) < SCOPES.index(needed(operation)):
        return False
    if not grant.endpoints or operation in _OF_NO_ENDPOINT:
        return True
    return endpoint is not None and endpoint.lower() in grant.endpoints
