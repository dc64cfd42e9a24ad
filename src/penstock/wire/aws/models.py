"""The service models in use, read from the installed botocore on first use.

This repository contains none of botocore's data: a newer botocore brings its newer members.
Importing botocore and reading SageMaker's model (3,200 shapes) takes about a quarter of a second,
so import this package, and request a model, only when a request needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Container

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel

from penstock.wire.aws.errors import unknown_operation

SAGEMAKER = "sagemaker"
RUNTIME = "sagemaker-runtime"
AUTOSCALING = "application-autoscaling"
CLOUDWATCH = "cloudwatch"


@functools.cache
def service_model(service: str) -> ServiceModel:
    """The model of one of the services above, by botocore's name for it; loaded once."""
    # Only the installed package: files under ~/.aws/models must not change what a server accepts.
    loader = Loader(
        include_default_search_paths=False, extra_search_paths=[Loader.BUILTIN_DATA_PATH]
    )
    return ServiceModel(loader.load_service_model(service, "service-2"), service)


def operation_named(
    model: ServiceModel, name: str, *, served: Container[str] | None = None
) -> OperationModel:
    """The operation of that name, if the model has it and it is in `served` (None: all are).

    Raises:
        AwsError: UnknownOperationException.
    """
    if (served is not None and name not in served) or name not in model.operation_names:
        raise unknown_operation(f"The operation {name[:128]!r} is not available here.")
    return model.operation_model(name)
