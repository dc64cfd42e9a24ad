"""`penstock deploy`: what it creates, when it updates, and what a failed update comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.endpoints.deploy import artifact_uri, create_or_update, wait_in_service
from penstock.errors import CallerError, ModelError


class FakeSageMaker:
    """A control plane where everything happens at once; `failing` is what updates come to."""

    def __init__(self, *, failing: str = "") -> None:
        self.failing = failing
        self.called: list[str] = []
        self.made: set[str] = set()
        self.endpoint: dict[str, Any] = {}

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        if operation != "DescribeEndpoint":
            self.called.append(operation)
        if operation in {"CreateModel", "CreateEndpointConfig"}:
            name = operation + str(members.get("ModelName") or members["EndpointConfigName"])
            if name in self.made:
                raise CallerError("ValidationException", f"Cannot create already existing {name}.")
            self.made.add(name)
        elif operation == "DeleteEndpoint":
            self.endpoint = {}
        elif operation == "DescribeEndpoint" and not self.endpoint:
            raise CallerError("ValidationException", 'Could not find endpoint "arn".')
        elif operation == "UpdateEndpoint" and self.failing:
            self.endpoint["FailureReason"] = self.failing
        elif operation in {"CreateEndpoint", "UpdateEndpoint"}:
            config = members["EndpointConfigName"]
            self.endpoint = {"EndpointStatus": "InService", "EndpointConfigName": config}
        return dict(self.endpoint)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text("answer = 1\n")
    return tmp_path


def test_the_first_deployment_makes_model_configuration_and_endpoint(model: Path) -> None:
    server = FakeSageMaker()
    config = create_or_update(server, "shop", artifact_uri(str(model)))
    assert server.called == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"]
    assert wait_in_service(server, "shop", config)["EndpointConfigName"] == config


def test_the_same_again_changes_nothing(model: Path) -> None:
    server = FakeSageMaker()
    first = create_or_update(server, "shop", artifact_uri(str(model)))
    server.called.clear()
    assert create_or_update(server, "shop", artifact_uri(str(model))) == first
    assert "UpdateEndpoint" not in server.called


@pytest.mark.parametrize("change", ["a file", "the instance type", "the environment"])
def test_whatever_changed_is_an_update(model: Path, change: str) -> None:
    """A folder that was edited is another model, though its path is the same."""
    server = FakeSageMaker()
    uri = artifact_uri(str(model))
    first = create_or_update(server, "shop", uri)
    options: dict[str, Any] = {}
    if change == "a file":
        (model / "code" / "inference.py").write_text("answer = 42\n")
    elif change == "the instance type":
        options = {"instance_type": "ml.local.large"}
    else:
        options = {"environment": {"A": "1"}}
    server.called.clear()
    assert create_or_update(server, "shop", uri, **options) != first
    assert server.called == ["CreateModel", "CreateEndpointConfig", "UpdateEndpoint"]


def test_an_update_that_failed_is_an_error_though_the_endpoint_serves_on(model: Path) -> None:
    server = FakeSageMaker()
    uri = artifact_uri(str(model))
    create_or_update(server, "shop", uri)
    server.failing = "CapacityError: no room"
    config = create_or_update(server, "shop", uri, count=9)
    with pytest.raises(ModelError) as caught:
        wait_in_service(server, "shop", config)
    assert caught.value.code == "update-failed"
    assert caught.value.message == "endpoint shop was not updated: CapacityError: no room"


def test_a_failed_endpoint_is_made_anew(model: Path) -> None:
    server = FakeSageMaker()
    uri = artifact_uri(str(model))
    config = create_or_update(server, "shop", uri)
    server.endpoint |= {"EndpointStatus": "Failed", "FailureReason": "the model is torn"}
    with pytest.raises(ModelError, match="endpoint shop failed: the model is torn"):
        wait_in_service(server, "shop", config)
    server.called.clear()
    create_or_update(server, "shop", uri)
    assert server.called[-2:] == ["DeleteEndpoint", "CreateEndpoint"]


@pytest.mark.parametrize("name", ["", "a_b", "-a", "a-", "a" * 64, "a/b"])
def test_a_wrong_name_is_told_before_anything_is_made(name: str) -> None:
    server = FakeSageMaker()
    with pytest.raises(CallerError) as caught:
        create_or_update(server, name, "s3://bucket/model.tar.gz")
    assert (caught.value.code, server.called) == ("endpoint-name-invalid", [])
