"""Inference experiments over their wire form: what is refused, and what is told.

The driver is the real one, asked for one turn at a time; the reconciler is a record in the
database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_async import Outputs
from tests.api.test_sagemaker_operations import ARN, SagemakerPlane, error, in_service
from tests.core.experiments.test_experiment_configurations import mode, variant

from penstock.api.sagemaker.context import SagemakerContext
from penstock.control.store.store import Store
from penstock.errors import CallerError
from penstock.jobs.experiments.driver import ExperimentsDriver
from penstock.wire.aws.http import HttpRequest

EXPERIMENT_ARN = f"{ARN}:inference-experiment/try"
CREATE: dict[str, Any] = {
    "Name": "try",
    "Type": "ShadowMode",
    "RoleArn": "arn:aws:iam::123456789012:role/any",
    "EndpointName": "shop",
    "ModelVariants": [variant("Old", "old"), variant("New", "new")],
    "ShadowModeConfig": mode(),
}
OLD = {
    "VariantName": "Old",
    "ModelName": "old",
    "InstanceType": "ml.local.small",
    "InitialInstanceCount": 1,
}
NOT_ENDED = "this call needs one that is Completed or Cancelled."


class ExperimentPlane(SagemakerPlane):
    """With a driver whose calls come back to this door."""

    def __init__(self, state_dir: Path) -> None:
        self.outputs = Outputs()
        super().__init__(state_dir)
        self.driver = ExperimentsDriver(
            database=self.database, call=self.internal, notify=self.doorbell.notify,
            clock=self.clock,
        )  # fmt: skip

    def context(self, region: str) -> SagemakerContext:
        return replace(super().context(region), asynchronous=self.outputs)

    async def internal(
        self, operation: str, members: dict[str, Any], *, owner: str = ""
    ) -> dict[str, Any]:
        headers = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        http = HttpRequest("POST", "/", "", headers, json.dumps(members).encode())
        answer = await self.door.handle(http, "id-2")
        fields: dict[str, Any] = json.loads(answer.body)
        if answer.status != 200:
            raise CallerError(fields["__type"], fields["message"])
        return fields

    def call(self, operation: str, **members: Any) -> tuple[int, dict[str, Any]]:
        """Shapes of errors that the operations declare spell it Message."""
        status, answer = super().call(operation, **members)
        return status, {"message" if key == "Message" else key: answer[key] for key in answer}

    def turn(self) -> None:
        self.runner.run(self.driver.tick())

    def create(self, **members: Any) -> tuple[int, dict[str, Any]]:
        """Members of None are left out."""
        asked = {name: one for name, one in (CREATE | members).items() if one is not None}
        return self.call("CreateInferenceExperiment", **asked)

    def described(self) -> dict[str, Any]:
        status, seen = self.call("DescribeInferenceExperiment", Name="try")
        assert status == 200, seen
        return seen

    def running(self) -> None:
        assert self.create()[0] == 200
        self.turn()
        in_service(self)
        self.turn()
        assert self.described()["Status"] == "Running"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ExperimentPlane]:
    made = ExperimentPlane(tmp_path / "state")
    for name in ("old", "new"):
        model = {"ModelDataUrl": f"file:///models/{name}"}
        assert made.call("CreateModel", ModelName=name, PrimaryContainer=model)[0] == 200
    config(made, "shop", OLD)
    assert made.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="shop")[0] == 200
    in_service(made)
    yield made
    made.close()


def config(plane: SagemakerPlane, name: str, *variants: dict[str, Any], **members: Any) -> None:
    made = plane.call(
        "CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=list(variants),
        **members,
    )  # fmt: skip
    assert made[0] == 200, made


def test_it_is_told_as_it_was_asked_for(plane: ExperimentPlane) -> None:
    start, end = 1_700_100_000.0, 1_700_200_000.0
    given = {"Description": "a try", "Schedule": {"StartTime": start, "EndTime": end}}
    assert plane.create(**given) == (200, {"InferenceExperimentArn": EXPERIMENT_ARN})
    seen = plane.described()
    created = seen.pop("CreationTime")
    assert seen.pop("LastModifiedTime") == created
    assert seen == {
        "Arn": EXPERIMENT_ARN,
        "Name": "try",
        "Type": "ShadowMode",
        "Status": "Creating",
        "Description": "a try",
        "RoleArn": CREATE["RoleArn"],
        "Schedule": {"StartTime": start, "EndTime": end},
        "ShadowModeConfig": mode(),
        "EndpointMetadata": {
            "EndpointName": "shop",
            "EndpointConfigName": "shop",
            "EndpointStatus": "InService",
        },
        "ModelVariants": [
            variant("Old", "old") | {"Status": "Creating"},
            variant("New", "new") | {"Status": "Creating"},
        ],
    }
    plane.turn()
    assert plane.described()["Status"] == "Created"
    plane.call("AddTags", ResourceArn=EXPERIMENT_ARN, Tags=[{"Key": "a", "Value": "b"}])
    assert plane.call("ListTags", ResourceArn=EXPERIMENT_ARN)[1]["Tags"]


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"KmsKey": "alias/ours"}, "KmsKey is not supported"),
        (
            {"DataStorageConfig": {"Destination": "s3://b/p", "KmsKey": "alias/ours"}},
            "DataStorageConfig.KmsKey is not supported",
        ),
        ({"EndpointName": "no"}, 'Could not find endpoint "'),
        ({"ModelVariants": [variant("Old", "old"), variant("New", "no")]}, "Could not find model"),
        (
            {
                "ModelVariants": [variant("Other", "old"), variant("New", "new")],
                "ShadowModeConfig": mode() | {"SourceModelVariantName": "Other"},
            },
            "SourceModelVariantName 'Other' must be the one production variant of endpoint 'shop'",
        ),
        ({"ModelVariants": [variant("Old", "old")]}, "ModelVariants must be the source variant"),
        ({"ShadowModeConfig": mode(-5)}, "SamplingPercentage -5"),
        ({"Schedule": {"StartTime": 2e10}}, "more than a year ahead"),
        ({"Schedule": {"EndTime": 1.0}}, "EndTime must be after now"),
        ({"Type": "Other"}, "failed to satisfy constraint"),
        ({"RoleArn": None}, "roleArn"),
    ],
)
def test_what_can_not_be_carried_out_is_refused_by_its_name(
    plane: ExperimentPlane, members: dict[str, Any], told: str
) -> None:
    status, answer = plane.create(**members)
    assert status == 400
    assert answer["__type"] == "ValidationException"
    assert told in answer["message"]
    assert plane.call("ListInferenceExperiments") == (200, {"InferenceExperiments": []})


@pytest.mark.parametrize(
    ("members", "model", "told"),
    [
        (
            {"ShadowProductionVariants": [OLD | {"VariantName": "Dark", "ModelName": "new"}]},
            {}, "has a shadow variant already: 'Dark'",
        ),
        (
            {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://b/p"}}},
            {}, "is asynchronous",
        ),
        ({"ExecutionRoleArn": CREATE["RoleArn"]}, None, "takes inference components"),
        ({}, {"Mode": "MultiModel"}, "has a multi-model container"),
    ],
)  # fmt: skip
def test_endpoints_that_no_experiment_can_use_are_refused(
    plane: ExperimentPlane, members: dict[str, Any], model: dict[str, Any] | None, told: str
) -> None:
    own = {key: value for key, value in OLD.items() if model is not None or key != "ModelName"}
    if model:
        container = {"ModelDataUrl": "s3://b/many/"} | model
        plane.call("CreateModel", ModelName="many", PrimaryContainer=container)
        own["ModelName"] = "many"
    config(plane, "unfit", own, **members)
    plane.call("CreateEndpoint", EndpointName="unfit", EndpointConfigName="unfit")
    in_service(plane, "unfit")
    variants = [variant("Old", own.get("ModelName", "old")), variant("New", "new")]
    status, answer = plane.create(EndpointName="unfit", ModelVariants=variants)
    assert status == 400
    assert told in answer["message"]


def test_data_is_stored_where_it_can_be_written(plane: ExperimentPlane) -> None:
    stored = {"DataStorageConfig": {"Destination": "s3://bucket/try"}}
    plane.outputs.refuses = CallerError("no-such-bucket", "there is no bucket")
    assert "there is no bucket" in plane.create(**stored)[1]["message"]
    plane.outputs.refuses = None
    assert plane.create(**stored)[0] == 200
    assert plane.outputs.tried == ["s3://bucket/try"] * 2
    plane.turn()
    in_service(plane)
    capture = plane.store(Store.describe_endpoint, "shop").active.capture
    assert (capture.destination_uri, capture.percentage) == ("s3://bucket/try", 100)


def test_an_endpoint_must_be_in_service_and_have_its_configuration(plane: ExperimentPlane) -> None:
    plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="shop")
    assert plane.create() == error(f'Cannot update in-progress endpoint "{ARN}:endpoint/shop".')
    in_service(plane)
    plane.call("DeleteEndpointConfig", EndpointConfigName="shop")
    assert (
        "Endpoint configuration 'shop' of endpoint 'shop' was deleted"
        in plane.create()[1]["message"]
    )


def test_an_endpoint_has_one_experiment_at_a_time(plane: ExperimentPlane) -> None:
    assert plane.create()[0] == 200
    assert plane.create(Name="again") == error(
        'Endpoint "shop" has inference experiment "try" already.', "ResourceInUse"
    )
    assert plane.create() == error(
        f'Cannot create already existing inference experiment "{EXPERIMENT_ARN}".',
        "ResourceInUse",
    )
    stop = plane.call("StopInferenceExperiment", Name="try", ModelVariantActions={"New": "Remove"})
    assert stop[0] == 200
    assert plane.described()["Status"] == "Cancelled"  # it had not started
    assert plane.create(Name="again")[0] == 200


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("DescribeInferenceExperiment", {}),
        ("UpdateInferenceExperiment", {}),
        ("StartInferenceExperiment", {}),
        ("StopInferenceExperiment", {"ModelVariantActions": {"New": "Remove"}}),
        ("DeleteInferenceExperiment", {}),
    ],
)
def test_one_that_is_not_there_is_not_found(
    plane: ExperimentPlane, operation: str, members: dict[str, Any]
) -> None:
    assert plane.call(operation, Name="no", **members) == error(
        f'Could not find inference experiment "{ARN}:inference-experiment/no".',
        "ResourceNotFound",
    )


def test_each_call_needs_a_status(plane: ExperimentPlane) -> None:
    plane.running()
    started = plane.call("StartInferenceExperiment", Name="try")
    assert started[1]["__type"] == "ConflictException"
    assert "is Running; this call needs one that is Creating or Created" in started[1]["message"]
    deleted = plane.call("DeleteInferenceExperiment", Name="try")
    assert deleted == error(
        f'Inference experiment "try" is Running; {NOT_ENDED}', "ConflictException"
    )
    remove = {"ModelVariantActions": {"New": "Remove"}}
    assert plane.call("StopInferenceExperiment", Name="try", **remove)[0] == 200
    for operation, members in (
        ("StopInferenceExperiment", remove),
        ("UpdateInferenceExperiment", {}),
    ):
        answer = plane.call(operation, Name="try", **members)[1]
        assert answer["__type"] == "ConflictException"
        assert "is Stopping" in answer["message"]
    plane.turn()
    in_service(plane)
    plane.turn()
    assert plane.described()["Status"] == "Completed"
    assert plane.call("DeleteInferenceExperiment", Name="try") == (
        200, {"InferenceExperimentArn": EXPERIMENT_ARN},
    )  # fmt: skip
    assert plane.store(Store.describe_endpoint, "shop").active.shadows == ()


def test_what_was_promoted_or_kept_must_be_there(plane: ExperimentPlane) -> None:
    assert plane.create(Schedule={"StartTime": 1_700_100_000.0})[0] == 200
    promote = {"ModelVariantActions": {"New": "Promote"}}
    early = plane.call("StopInferenceExperiment", Name="try", **promote)
    assert early == error("The experiment has not started: there is nothing to promote.")
    assert plane.call("StartInferenceExperiment", Name="try")[0] == 200
    assert plane.described()["Status"] == "Starting"
    plane.call("DeleteModel", ModelName="new")
    status, answer = plane.call("StopInferenceExperiment", Name="try", **promote)
    assert (status, answer["message"]) == (400, f'Could not find model "{ARN}:model/new".')
    many = plane.call(
        "StopInferenceExperiment", Name="try", DesiredModelVariants=[variant("New", "new")],
        ModelVariantActions={"New": "Remove"},
    )  # fmt: skip
    assert "DesiredModelVariants must be what is kept" in many[1]["message"]


def stop(plane: ExperimentPlane, **members: Any) -> Any:
    """The endpoint after it, as it is on record."""
    assert plane.call("StopInferenceExperiment", Name="try", **members)[0] == 200
    plane.turn()
    if plane.store(Store.describe_endpoint, "shop").status == "Updating":
        in_service(plane)
        plane.turn()
    assert plane.described()["Status"] == "Completed"
    return plane.store(Store.describe_endpoint, "shop").active


def test_both_variants_may_be_kept_as_they_are(plane: ExperimentPlane) -> None:
    """Without an update: no copy is started again."""
    plane.running()
    before = plane.store(Store.describe_endpoint, "shop").active
    assert stop(plane, ModelVariantActions={"Old": "Retain", "New": "Retain"}) == before
    assert [one.name for one in before.shadows] == ["New"]


@pytest.mark.parametrize(
    ("actions", "served"),
    [
        ({"New": "Remove"}, ("Old", "old-again")),
        ({"Old": "Remove", "New": "Promote"}, ("New", "new")),
        (None, ("Old", "old")),
    ],
)
def test_the_production_variant_gets_the_model_that_it_is_given(
    plane: ExperimentPlane, actions: dict[str, str] | None, served: tuple[str, str]
) -> None:
    """AWS's sample registers the model anew for its experiment. What is retained is the
    experiment's; one that ends by its schedule leaves the endpoint as it was."""
    again = {"ModelDataUrl": "file:///models/old"}
    plane.call("CreateModel", ModelName="old-again", PrimaryContainer=again)
    end = plane.clock.wall() + 60.0
    variants = [variant("Old", "old-again"), variant("New", "new")]
    assert plane.create(ModelVariants=variants, Schedule={"EndTime": end})[0] == 200
    plane.turn()
    in_service(plane)
    plane.turn()
    during = plane.store(Store.describe_endpoint, "shop").active
    assert [one.model.model_name for one in during.hosted] == ["old-again", "new"]
    if actions is not None:
        after = stop(plane, ModelVariantActions=actions)
    else:
        plane.clock.advance(60.0)
        plane.turn()
        in_service(plane)
        plane.turn()
        assert plane.described()["Status"] == "Completed"
        after = plane.store(Store.describe_endpoint, "shop").active
    assert [(one.name, one.model.model_name) for one in after.hosted] == [served]


def test_what_is_promoted_may_have_other_instances(plane: ExperimentPlane) -> None:
    plane.running()
    after = stop(
        plane, ModelVariantActions={"Old": "Remove", "New": "Promote"},
        DesiredModelVariants=[variant("New", "new", 3)],
    )  # fmt: skip
    assert [(one.name, one.instance_count) for one in after.hosted] == [("New", 3)]


def test_one_with_the_name_of_a_deleted_one_takes_none_of_its_configurations(
    plane: ExperimentPlane,
) -> None:
    plane.running()
    first = plane.store(Store.describe_endpoint, "shop").config_name
    stop(plane, ModelVariantActions={"New": "Remove"})
    assert plane.call("DeleteInferenceExperiment", Name="try")[0] == 200
    plane.running()
    assert plane.store(Store.describe_endpoint, "shop").config_name != first


def test_a_change_that_is_undone_takes_the_endpoint_back_to_before(plane: ExperimentPlane) -> None:
    plane.running()
    more = [variant("Old", "old"), variant("New", "new", 4)]
    assert plane.call("UpdateInferenceExperiment", Name="try", ModelVariants=more)[0] == 200
    assert plane.described()["Status"] == "Updating"
    plane.turn()
    active = plane.store(Store.describe_endpoint, "shop").active.generation
    plane.store(
        Store.set_status, "shop", "InService", now=plane.clock.wall(), failure_reason="no room",
        active_generation=active,
    )  # fmt: skip
    plane.turn()
    in_service(plane)
    plane.turn()
    seen = plane.described()
    assert (seen["Status"], seen["StatusReason"]) == ("Cancelled", "no room")
    assert plane.store(Store.describe_endpoint, "shop").config_name == "shop"


def test_an_update_that_the_endpoint_refuses_ends_it_with_the_reason(
    plane: ExperimentPlane,
) -> None:
    """Its model was deleted between its creation and its start."""
    assert plane.create()[0] == 200
    plane.call("DeleteModel", ModelName="new")
    plane.turn()
    seen = plane.described()
    assert seen["Status"] == "Cancelled"
    assert f'Could not find model "{ARN}:model/new"' in seen["StatusReason"]
    assert seen["EndpointMetadata"]["EndpointConfigName"] == "shop"


def test_an_update_that_is_undone_ends_it_with_the_endpoints_reason(
    plane: ExperimentPlane,
) -> None:
    assert plane.create()[0] == 200
    plane.turn()
    assert plane.described()["Status"] == "Starting"
    active = plane.store(Store.describe_endpoint, "shop").active.generation
    plane.store(
        Store.set_status, "shop", "InService", now=plane.clock.wall(), failure_reason="no room",
        active_generation=active,
    )  # fmt: skip
    plane.turn()
    assert plane.described()["StatusReason"] == "no room"
    assert plane.described()["Status"] == "Cancelled"


def test_while_it_runs_it_says_why_its_shadow_does_not(plane: ExperimentPlane) -> None:
    plane.running()
    plane.doorbell.counts = {"Old": 1}
    plane.doorbell.failures = {"New": "it can't be loaded"}
    seen = plane.described()
    assert seen["StatusReason"] == "it can't be loaded"
    assert [one["Status"] for one in seen["ModelVariants"]] == ["InService", "Creating"]


def test_lists_are_filtered_and_paged(plane: ExperimentPlane) -> None:
    assert plane.create()[0] == 200
    listed = plane.call("ListInferenceExperiments", StatusEquals="Creating", NameContains="tr")
    (row,) = listed[1]["InferenceExperiments"]
    assert (row["Name"], row["Status"]) == ("try", "Creating")
    other = plane.call("ListInferenceExperiments", StatusEquals="Running")
    assert other == (200, {"InferenceExperiments": []})
