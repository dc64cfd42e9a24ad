"""The served operations of the SageMaker control plane by name."""

from __future__ import annotations

from types import MappingProxyType

from penstock.api.aws import Operation
from penstock.api.sagemaker import (
    endpoints,
    experiments,
    inference_components,
    records,
    transform_jobs,
)

OPERATIONS: MappingProxyType[str, Operation] = MappingProxyType(
    {
        "CreateModel": records.create_model,
        "DescribeModel": records.describe_model,
        "ListModels": records.list_models,
        "DeleteModel": records.delete_model,
        "CreateEndpointConfig": records.create_endpoint_config,
        "DescribeEndpointConfig": records.describe_endpoint_config,
        "ListEndpointConfigs": records.list_endpoint_configs,
        "DeleteEndpointConfig": records.delete_endpoint_config,
        "CreateEndpoint": endpoints.create_endpoint,
        "DescribeEndpoint": endpoints.describe_endpoint,
        "ListEndpoints": endpoints.list_endpoints,
        "UpdateEndpoint": endpoints.update_endpoint,
        "UpdateEndpointWeightsAndCapacities": endpoints.update_endpoint_weights_and_capacities,
        "DeleteEndpoint": endpoints.delete_endpoint,
        "CreateInferenceComponent": inference_components.create_inference_component,
        "DescribeInferenceComponent": inference_components.describe_inference_component,
        "ListInferenceComponents": inference_components.list_inference_components,
        "UpdateInferenceComponent": inference_components.update_inference_component,
        "UpdateInferenceComponentRuntimeConfig": (
            inference_components.update_inference_component_runtime_config
        ),
        "DeleteInferenceComponent": inference_components.delete_inference_component,
        "CreateInferenceExperiment": experiments.create_inference_experiment,
        "DescribeInferenceExperiment": experiments.describe_inference_experiment,
        "ListInferenceExperiments": experiments.list_inference_experiments,
        "UpdateInferenceExperiment": experiments.update_inference_experiment,
        "StartInferenceExperiment": experiments.start_inference_experiment,
        "StopInferenceExperiment": experiments.stop_inference_experiment,
        "DeleteInferenceExperiment": experiments.delete_inference_experiment,
        "CreateTransformJob": transform_jobs.create_transform_job,
        "DescribeTransformJob": transform_jobs.describe_transform_job,
        "ListTransformJobs": transform_jobs.list_transform_jobs,
        "StopTransformJob": transform_jobs.stop_transform_job,
        "AddTags": records.add_tags,
        "ListTags": records.list_tags,
        "DeleteTags": records.delete_tags,
    }
)
