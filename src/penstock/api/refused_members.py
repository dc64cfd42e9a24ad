"""Members and operations of AWS's services that are refused, and members without effect.

What promises security has tables of its own (`api/sagemaker/security_members.py`). The operations
refuse with the words of REFUSED, and `docs/howto/refused.md` is generated from all of them. A test
sends every member of REFUSED, and finds members of the services' shapes that nothing reads and no
table has.
"""

from __future__ import annotations

from typing import Final

_DEPLOYMENT: Final = "DeploymentConfig"
_COMPONENTS: Final = "UpdateInferenceComponent.DeploymentConfig"

#: Path of the member -> why it is refused, in the words of the error; {} is the value.
REFUSED: Final[dict[str, str]] = {
    "CreateModel.Containers": "A model needs exactly one container here; {} are given. Inference"
    " pipelines of several containers are not supported.",
    "CreateModel.PrimaryContainer.ModelPackageName": "ModelPackageName is not supported: give"
    " ModelDataUrl.",
    "CreateEndpointConfig.ShadowProductionVariants": "ShadowProductionVariants is not supported:"
    " this server has no shadow variants.",
    "CreateEndpointConfig.ProductionVariants[].RoutingConfig.RoutingStrategy": "RoutingStrategy {}"
    " is not supported here: no engine here tells what its cache holds.",
    "UpdateEndpoint.DeploymentConfig.RollingUpdatePolicy": f"{_DEPLOYMENT}: rolling updates are not"
    " supported here.",
    "UpdateEndpoint.DeploymentConfig.BlueGreenUpdatePolicy.TrafficRoutingConfiguration.Type":
    f"{_DEPLOYMENT}: traffic routing {{}} is not supported here;",
    "UpdateEndpoint.DeploymentConfig.AutoRollbackConfiguration": f"{_DEPLOYMENT}:"
    " AutoRollbackConfiguration is not supported here.",
    "CreateInferenceComponent.Specification.SchedulingConfig.AvailabilityZoneBalance":
    "SchedulingConfig.AvailabilityZoneBalance is not supported: the instances of this server are in"
    " one place.",
    "CreateInferenceComponent.Specification.ComputeResourceRequirements.AcceleratorPartitionType":
    "AcceleratorPartitionType is not supported: accelerators are given out whole here.",
    f"{_COMPONENTS}.AutoRollbackConfiguration": f"{_DEPLOYMENT}: AutoRollbackConfiguration is not"
    " supported here.",
    f"{_COMPONENTS}.RollingUpdatePolicy.MaximumExecutionTimeoutInSeconds": f"{_DEPLOYMENT}:"
    " RollingUpdatePolicy.MaximumExecutionTimeoutInSeconds is not supported here.",
    f"{_COMPONENTS}.RollingUpdatePolicy.RollbackMaximumBatchSize": f"{_DEPLOYMENT}:"
    " RollingUpdatePolicy.RollbackMaximumBatchSize is not supported here.",
    "CreateTransformJob.TransformInput.DataSource.S3DataSource.S3DataType": "S3DataType {!r} is not"
    " supported:",
    "InvokeEndpoint.TargetContainerHostname": "TargetContainerHostname is not supported: no"
    " endpoint has several containers.",
    "PutScalingPolicy.PredictiveScalingPolicyConfiguration": "Predictive scaling is not supported"
    " for the service namespace sagemaker",
    "PutMetricAlarm.ComparisonOperator": "The ComparisonOperator {} compares with an anomaly"
    " detection band, which is not supported.",
    **{
        f"PutMetricAlarm.{member}": f"The parameter {member} is not supported."
        for member in (
            # Only other kinds of alarms have them.
            "ThresholdMetricId",
            "EvaluationWindow",
            "WarmUpConfiguration",
            "EvaluationCriteria",
            "EvaluationInterval",
            "ActionConfiguration",
        )
    },
    "PutCompositeAlarm": "Composite alarms are not supported; make metric alarms with"
    " PutMetricAlarm, with metric math over several metrics where one is not enough.",
}  # fmt: skip


def refused_members(operation: str) -> dict[str, str]:
    """Members at the top of an operation -> why they are refused."""
    found = (path.partition(".") for path in REFUSED)
    return {name: REFUSED[f"{head}.{name}"] for head, _, name in found if head == operation}
