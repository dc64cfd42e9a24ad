"""`penstock deploy`: what it creates, when it updates, and what a failed update comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.endpoints.deploy import artifact_uri, create_or_update, wait_in_service
from penstock.cli.endpoints.endpoint_tags import endpoint_for
from penstock.errors import CallerError, ModelError


class FakeSageMaker:
    """A control plane where everything happens at once; `failing` is what updates come to."""

    def __init__(self, *, failing: str = "") -> None:
        self.failing = failing
        self.called: list[str] = []
        self.made: set[str] = set()
        self.endpoint: dict[str, Any] = {}
        self.tags: dict[str, str] = {}

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        if operation != "DescribeEndpoint":
            self.called.append(operation)
        if operation in {"CreateModel", "CreateEndpointConfig"}:
            name = operation + str(members.get("ModelName") or members["EndpointConfigName"])
            if name in self.made:
                raise CallerError("ValidationException", f"Cannot create already existing {name}.")
            self.made.add(name)
        elif operation == "DeleteEndpoint":
            self.endpoint, self.tags = {}, {}
        elif operation == "ListTags":
            return {"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]}
        elif operation == "DescribeEndpoint" and not self.endpoint:
            raise CallerError("ValidationException", 'Could not find endpoint "arn".')
        elif operation == "UpdateEndpoint" and self.failing:
            self.endpoint["FailureReason"] = self.failing
        elif operation in {"CreateEndpoint", "UpdateEndpoint"}:
            config = members["EndpointConfigName"]
            self.endpoint = {"EndpointStatus": "InService", "EndpointConfigName": config}
            self.endpoint["EndpointArn"] = f"arn:aws:sagemaker:::endpoint/{members['EndpointName']}"
        if operation in {"CreateEndpoint", "AddTags"}:
            self.tags |= {tag["Key"]: tag["Value"] for tag in members.get("Tags", ())}
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


def deployed(server: FakeSageMaker, name: str, model: Path, *served: str) -> str:
    """As the command does it; the endpoint's name."""
    endpoint, names = endpoint_for(server, name, served)
    create_or_update(server, endpoint, artifact_uri(str(model)), served=names)
    return endpoint


def test_a_models_name_becomes_the_nearest_endpoint_which_is_served_under_it(model: Path) -> None:
    server = FakeSageMaker()
    assert deployed(server, "densenet_onnx", model) == "densenet-onnx"
    assert server.tags == {"penstock:served-name": "densenet_onnx"}
    server.called.clear()
    assert deployed(server, "densenet_onnx", model) == "densenet-onnx"
    assert not {"AddTags", "UpdateEndpoint", "CreateEndpoint"} & set(server.called)


def test_names_are_added_to_those_that_an_endpoint_has(model: Path) -> None:
    server = FakeSageMaker()
    assert deployed(server, "shop", model) == "shop"
    assert server.tags == {}
    assert deployed(server, "shop", model, "a_1", "q/q") == "shop"
    assert deployed(server, "shop", model, "a_1", "t=team/a") == "shop"
    assert server.tags == {
        "penstock:served-name": "a_1", "penstock:served-name:2": "q/q",
        "penstock:served-name:3": "t=team/a",
    }  # fmt: skip
    assert server.called.count("UpdateEndpoint") == 0


def test_a_failed_endpoint_that_is_made_anew_keeps_its_names(model: Path) -> None:
    server = FakeSageMaker()
    deployed(server, "densenet_onnx", model, "other_1")
    server.endpoint |= {"EndpointStatus": "Failed"}
    before = dict(server.tags)
    deployed(server, "densenet_onnx", model)
    assert server.tags == before


def test_two_names_with_one_nearest_endpoint_do_not_replace_each_others_model(model: Path) -> None:
    server = FakeSageMaker()
    deployed(server, "densenet_onnx", model)
    server.called.clear()
    with pytest.raises(CallerError) as caught:
        deployed(server, "densenet.onnx", model)
    assert caught.value.code == "endpoint-name-taken"
    assert "--served-name densenet.onnx" in caught.value.hint
    assert server.called == ["ListTags"]
    assert deployed(server, "densenet-onnx", model, "densenet.onnx") == "densenet-onnx"


@pytest.mark.parametrize("name", ["", "_", "///"])
def test_a_name_without_a_letter_or_digit_makes_no_endpoint(name: str) -> None:
    server = FakeSageMaker()
    with pytest.raises(CallerError) as caught:
        endpoint_for(server, name)
    assert (caught.value.code, server.called) == ("endpoint-name-invalid", [])


def test_a_name_that_can_not_be_served_is_told_before_the_endpoint_is_touched(model: Path) -> None:
    server = FakeSageMaker()
    with pytest.raises(CallerError) as caught:
        deployed(server, "a/infer", model)
    assert caught.value.code == "served-name-invalid"
    assert "CreateEndpoint" not in server.called
