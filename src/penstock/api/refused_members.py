"""Members and operations of AWS's services that are refused, and members without effect.

What promises security has tables of its own (`api/sagemaker/security_members.py`). The operations
refuse with the words of REFUSED, and `docs/howto/refused.md` is generated from all of them. A test
finds members of the services' shapes that nothing reads and no table has.
"""

from __future__ import annotations

from typing import Final

#: Where the files of a model are, by its container.
SOURCE: Final = "ModelDataSource.S3DataSource"

#: Path of the member -> why it is refused, in the words of the error; {} is the value.
REFUSED: Final[dict[str, str]] = {
    "CreateModel.Containers[].Mode": "Container {}: Mode MultiModel is for models of one container"
    " here. Give its target models an endpoint of their own.",
    "CreateModel.PrimaryContainer.ModelPackageName": "ModelPackageName is not supported: give"
    " ModelDataUrl.",
    **{
        f"CreateModel.{part}.{SOURCE}.{member}": f"{SOURCE}.{member} is not supported: {why}"
        for part in ("PrimaryContainer", "Containers[]")
        for member, why in {
            "ManifestS3Uri": "all files below S3Uri are the model. Give the prefix of these alone.",
            "ETag": "an artifact is read as it lies there. Leave it out, and name the version in"
            " S3Uri.",
            "ManifestEtag": "there are no manifests here. Leave it out.",
        }.items()
    },
    "CreateEndpointConfig.ProductionVariants[].RoutingConfig.RoutingStrategy": "RoutingStrategy {}"
    " is not supported here: no engine here tells what its cache holds.",
    "CreateInferenceComponent.Specification.SchedulingConfig.AvailabilityZoneBalance":
    "SchedulingConfig.AvailabilityZoneBalance is not supported: the instances of this server are in"
    " one place.",
    "CreateInferenceComponent.Specification.ComputeResourceRequirements.AcceleratorPartitionType":
    "AcceleratorPartitionType is not supported: accelerators are given out whole here.",
    "CreateTransformJob.TransformInput.DataSource.S3DataSource.S3DataType": "S3DataType {!r} is not"
    " supported:",
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

_NO_VOLUMES: Final = "instances have no volumes of their own"
_PROCESSES: Final = "instances are processes of this machine"
_NO_PACKAGES: Final = "it is about model packages, which are refused"
_NO_ENTITIES: Final = "metrics have no entities here"
_CONTAINER: Final = {
    "InferenceSpecificationName": _NO_PACKAGES,
    "ContainerMetricsConfig": "a container's own metrics are not collected",
}
_VARIANT: Final = {
    "VariantInstanceProvisionTimeoutInSeconds": _PROCESSES,
    "AcceleratorType": "Elastic Inference has ended at AWS, too",
    "VolumeSizeInGB": _NO_VOLUMES,
    "InferenceAmiVersion": _PROCESSES,
    "CapacityReservationConfig": "no capacity is bought here",
    "AcceleratorPartitionLayouts": "accelerators are given out whole here",
}


def _below(path: str, members: dict[str, str]) -> dict[str, str]:
    return {f"{path}.{name}": why for name, why in members.items()}


#: Path of the member -> why it is accepted and has no effect.
NO_EFFECT: Final[dict[str, str]] = {
    **_below("CreateModel.PrimaryContainer", _CONTAINER),
    "CreateModel.PrimaryContainer.ContainerHostname": "a model of one container is not asked for it"
    " by name",
    **_below("CreateModel.Containers[]", _CONTAINER),
    **_below("CreateEndpointConfig.ProductionVariants[]", _VARIANT),
    **_below("CreateEndpointConfig.ShadowProductionVariants[]", _VARIANT),
    "CreateEndpointConfig.MetricsConfig.EnableDetailedObservability": "all metrics are kept",
    "CreateEndpointConfig.CrossRegionTrafficConfig": "traffic between regions is the"
    " orchestrator's",
    "CreateInferenceComponent.Specification.Container.ContainerMetricsConfig": _CONTAINER[
        "ContainerMetricsConfig"
    ],
    "CreateInferenceComponent.Specification.DataCacheConfig.EnableCaching": "artifacts are cached"
    " by their content",
    **{
        f"{variants}.InfrastructureConfig.InfrastructureType": "it has one value, RealTimeInference"
        for variants in (
            "CreateInferenceExperiment.ModelVariants[]",
            "UpdateInferenceExperiment.ModelVariants[]",
            "StopInferenceExperiment.DesiredModelVariants[]",
        )
    },
    "CreateTransformJob.TransformResources.TransformAmiVersion": _PROCESSES,
    "CreateTransformJob.ExperimentConfig": "there are no trials of SageMaker Experiments here",
    "PutScalingPolicy.TargetTrackingScalingPolicyConfiguration.PredefinedMetricSpecification"
    ".ResourceLabel": "it names a load balancer, and no metric of SageMaker has one",
    "PutMetricData.EntityMetricData[].Entity": _NO_ENTITIES,
    "PutMetricData.StrictEntityValidation": _NO_ENTITIES,
    "GetMetricData.LabelOptions": "labels have no times here",
    "ListMetrics.OwningAccount": "there is one account here",
}


def refused_members(operation: str) -> dict[str, str]:
    """Members at the top of an operation -> why they are refused."""
    found = (path.partition(".") for path in REFUSED)
    return {name: REFUSED[f"{head}.{name}"] for head, _, name in found if head == operation}
