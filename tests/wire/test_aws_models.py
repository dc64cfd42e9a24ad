"""Service models come from the installed botocore, once, and only served operations are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.loaders import Loader

from penstock.wire.aws import models
from penstock.wire.aws.errors import AwsError, fault_of


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        (models.SAGEMAKER, "CreateEndpoint"),
        (models.RUNTIME, "InvokeEndpoint"),
        (models.AUTOSCALING, "PutScalingPolicy"),
        (models.CLOUDWATCH, "PutMetricData"),
    ],
)
def test_the_four_services_are_there(service: str, operation: str) -> None:
    model = models.service_model(service)
    assert models.service_model(service) is model
    assert models.operation_named(model, operation).name == operation


@pytest.mark.parametrize("name", ["CreateTrainingJob", "createEndpoint", "", "x" * 5000])
def test_an_operation_that_is_not_served_is_unknown(name: str) -> None:
    model = models.service_model(models.SAGEMAKER)
    with pytest.raises(AwsError) as refused:
        models.operation_named(model, name, served={"CreateEndpoint"})
    assert refused.value.code == "UnknownOperationException"
    assert len(refused.value.message) < 300


def test_an_error_takes_status_and_fault_from_its_model_unless_told_otherwise() -> None:
    runtime = models.service_model(models.RUNTIME)
    fault = fault_of(runtime, AwsError("ModelError", "no"))
    assert (fault.status, fault.sender, fault.message_key) == (424, True, "Message")
    assert fault_of(runtime, AwsError("ServiceUnavailable")).status == 503
    assert fault_of(runtime, AwsError("ServiceUnavailable")).sender is False
    assert fault_of(runtime, AwsError("ServiceUnavailable", status=429)).status == 429
    unknown = fault_of(runtime, AwsError("Whatever", "no"))
    assert (unknown.status, unknown.sender, unknown.message_key) == (400, True, "message")


def test_an_error_goes_by_its_name_or_its_older_code() -> None:
    cloudwatch = models.service_model(models.CLOUDWATCH)
    by_name = fault_of(cloudwatch, AwsError("InvalidParameterValueException", "no"))
    by_code = fault_of(cloudwatch, AwsError("InvalidParameterValue", "no"))
    assert by_name == by_code
    assert (by_name.name, by_name.code) == (
        "InvalidParameterValueException",
        "InvalidParameterValue",
    )


def test_a_file_of_the_user_does_not_change_what_is_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / models.RUNTIME / "2999-01-01"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text('{"metadata": {"apiVersion": "2999-01-01"}}')
    monkeypatch.setattr(Loader, "CUSTOMER_DATA_PATH", str(tmp_path))
    loaded = models.service_model.__wrapped__(models.RUNTIME)
    assert loaded.metadata["apiVersion"] < "2999"
    assert "InvokeEndpoint" in loaded.operation_names
