"""Inference components through boto3, against a real server: several models on one endpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit.components import NAMED, SMALL, ComponentSite
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server, penstock

pytestmark = pytest.mark.system

ROLLING = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
        "WaitIntervalInSeconds": 0,
    }
}


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> ComponentSite:
    return ComponentSite(empty_server, tmp_path)


def test_one_component_comes_into_service_on_one_instance_and_goes(site: ComponentSite) -> None:
    described = site.endpoint()
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    site.model("red")
    site.component("red", "red")
    assert site.describe("red")["InferenceComponentStatus"] in {"Creating", "InService"}
    seen = site.serves("red")
    assert seen["RuntimeConfig"] == {
        "DesiredCopyCount": 1,
        "CurrentCopyCount": 1,
        "PlacementStatus": [{"InstanceType": "ml.local.medium", "CurrentCopyCount": 1}],
    }
    assert site.states() == {"red": ["ready"]}
    assert site.ask("red")["name"] == "red"
    site.delete("red")
    assert site.states() == {"": ["running"]}


def test_two_components_grow_shrink_go_to_zero_and_leave_in_a_row(site: ComponentSite) -> None:
    """Several copies of two models on two instances; what is asked for is what is there."""
    site.endpoint(InitialInstanceCount=2)
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.component("blue", "blue", 1)
    site.serves("red", copies=2)
    site.serves("blue", copies=1)
    # Spread: one copy of each instance, and the instances have what they have to themselves.
    places = [one["instance"] for one in site.server.copies("shop") if one["component"] == "red"]
    assert len(set(places)) == 2
    for copies in (4, 1, 0, 1):
        site.set_copies("red", copies)
        assert site.describe("red")["RuntimeConfig"]["DesiredCopyCount"] == copies
        seen = site.settled("red", copies=copies)
        assert (seen["InferenceComponentStatus"], seen.get("FailureReason")) == ("InService", None)
        assert site.ask("blue")["name"] == "blue"
        if copies:
            answers = [site.ask("red") for _ in range(20)]
            assert {one["name"] for one in answers} == {"red"}
            assert len({one["pid"] for one in answers}) <= copies
    site.serves("blue", copies=1)
    wait_until(lambda: site.states() == {"red": ["ready"], "blue": ["ready"]}, "one each", 60)
    # As notebooks end: component, model, endpoint, without waiting.
    site.client.delete_inference_component(InferenceComponentName="red")
    site.client.delete_model(ModelName="red")
    site.client.delete_endpoint(EndpointName="shop")
    for name in ("red", "blue"):
        site.gone(name)
    assert site.client.list_inference_components()["InferenceComponents"] == []


def test_a_component_that_fits_nowhere_fails_and_says_what_is_short(site: ComponentSite) -> None:
    site.endpoint()
    site.model("red")
    huge = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1 << 20}}
    site.component("huge", "red", **huge)
    seen = site.settled("huge")
    assert seen["InferenceComponentStatus"] == "Failed"
    assert seen["FailureReason"].startswith("CapacityError: a copy of huge needs 1024.00 GiB")
    assert (
        "none of the 1 running instances of variant all has so much in all"
        in (seen["FailureReason"])
    )
    # Accelerators that the machine does not have; and a number of copies beyond its cores.
    accelerated = {
        "ComputeResourceRequirements": SMALL | {"NumberOfAcceleratorDevicesRequired": 64}
    }
    site.component("fast", "red", **accelerated)
    assert "64 accelerators" in site.settled("fast")["FailureReason"]
    site.component("red", "red")
    site.settled("red", copies=1)
    site.set_copies("red", 40)
    seen = site.settled("red")
    current = seen["RuntimeConfig"]["CurrentCopyCount"]
    assert (seen["InferenceComponentStatus"], seen["RuntimeConfig"]["DesiredCopyCount"]) == (
        "InService", 40,
    )  # fmt: skip
    assert 1 <= current < 40
    assert seen["FailureReason"].startswith("CapacityError: a copy of red needs 0.12 GiB")


def test_a_model_that_cannot_load_fails_its_component_and_the_others_serve_on(
    site: ComponentSite, tmp_path: Path
) -> None:
    site.endpoint()
    site.model("red")
    site.component("red", "red")
    site.settled("red", copies=1)
    broken = python_model(tmp_path / "broken", NAMED.replace('return os.environ["NAME"]', "torn"))
    site.server.model("broken", broken)
    site.component("broken", "broken")
    seen = site.settled("broken")
    assert seen["InferenceComponentStatus"] == "Failed"
    assert "torn" in seen["FailureReason"]
    site.client.update_inference_component(
        InferenceComponentName="red",
        Specification={"ModelName": "broken", "ComputeResourceRequirements": SMALL},
    )
    seen = site.serves("red", copies=1)
    assert "the former specification serves on" in seen["FailureReason"]
    assert seen["Specification"]["ModelName"] == "red"
    wait_until(lambda: site.states()["red"] == ["ready"], "the broken copy's end", 60)


def test_a_server_killed_in_the_middle_of_an_update_ends_where_it_was_told(
    site: ComponentSite,
) -> None:
    site.endpoint()
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.settled("red", copies=2)
    site.client.update_inference_component(
        InferenceComponentName="red",
        Specification={"ModelName": "blue", "ComputeResourceRequirements": SMALL},
        RuntimeConfig={"CopyCount": 3},
    )
    site.component("late", "red", 0)
    site.server.kill()
    site.server.start()
    seen = site.settled("red", copies=3)
    assert (seen["InferenceComponentStatus"], seen["Specification"]["ModelName"]) == (
        "InService", "blue",
    )  # fmt: skip
    site.serves("late", copies=0)
    assert site.ask("red")["name"] == "blue"
    wait_until(lambda: site.states() == {"red": ["ready"] * 3}, "three copies", 60)


def test_managed_instances_come_with_the_copies_from_none(site: ComponentSite) -> None:
    managed = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
    described = site.endpoint(
        InstanceType="ml.local.small", ManagedInstanceScaling=managed, InitialInstanceCount=1
    )
    assert described["ProductionVariants"][0]["ManagedInstanceScaling"]["MaxInstanceCount"] == 2
    site.model("red")
    half = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 600}}
    site.component("red", "red", 2, **half)
    site.serves("red", copies=2)
    variant = site.client.describe_endpoint(EndpointName="shop")["ProductionVariants"][0]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    assert len({one["instance"] for one in site.server.copies("shop")}) == 2


def test_status_shows_components_and_the_copies_of_each(site: ComponentSite) -> None:
    site.endpoint()
    site.model("red")
    site.component("red", "red")
    site.settled("red", copies=1)
    shown = penstock("status", "shop", server=site.server).stdout.replace("│", " ")
    assert "inference components" in shown
    assert [row.split()[:5] for row in shown.splitlines() if "1/1" in row and "red" in row] == [
        ["red", "shop", "all", "InService", "1/1"]
    ]
    told = penstock("status", "shop", "--json", server=site.server).stdout
    (component,) = json.loads(told)["components"]
    assert component["InferenceComponentName"] == "red"


def test_an_update_under_load_loses_no_request_and_answers_with_the_one_or_the_other(
    site: ComponentSite,
) -> None:
    site.endpoint()
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.settled("red", copies=2)
    seen: list[str] = []
    with Repeating(lambda: seen.append(site.ask("red")["name"]), threads=3):
        for model, policy in (("blue", None), ("red", ROLLING)):
            config = {"DeploymentConfig": policy} if policy else {}
            site.client.update_inference_component(
                InferenceComponentName="red",
                Specification={"ModelName": model, "ComputeResourceRequirements": SMALL},
                **config,
            )
            site.settled("red", copies=2)
            before = len(seen)
            wait_until(lambda low=before: len(seen) > low + 20, "answers", 30)
            assert set(seen[before + 10 :]) == {model}


def test_an_alarm_brings_the_copies_of_the_former_specification_back(site: ComponentSite) -> None:
    """In the middle of a rolling update, when one of two copies was replaced; nobody waits. That it
    rang before says nothing of the new specification."""
    site.endpoint(InitialInstanceCount=1)
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.serves("red", copies=2)
    cloudwatch = site.server.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="component-errors", Namespace="Shop", MetricName="none", Statistic="Sum",
        Period=10, EvaluationPeriods=1, Threshold=5, ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="ignore",
    )  # fmt: skip

    def becomes(state: str) -> None:
        cloudwatch.set_alarm_state(
            AlarmName="component-errors", StateValue=state, StateReason="by hand"
        )

    becomes("ALARM")
    log = site.server.log_path
    earlier = len(log.read_text())
    slowly = {**ROLLING["RollingUpdatePolicy"], "WaitIntervalInSeconds": 600}
    seen: list[str] = []
    with Repeating(lambda: seen.append(site.ask("red")["name"]), threads=2):
        site.client.update_inference_component(
            InferenceComponentName="red",
            Specification={"ModelName": "blue", "ComputeResourceRequirements": SMALL},
            DeploymentConfig={
                "RollingUpdatePolicy": slowly,
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "component-errors"}]},
            },
        )
        wait_until(lambda: "blue" in seen[-20:], "an answer of the new one", 60)
        becomes("OK")
        told = "component red Updating (alarms-quiet)"
        wait_until(lambda: told in log.read_text()[earlier:], "that it is quiet is seen")
        assert "(goes-back)" not in log.read_text()[earlier:]
        becomes("ALARM")
        described = site.settled("red", copies=2)
        before = len(seen)
        wait_until(lambda: len(seen) > before + 20, "answers", 30)
        assert set(seen[before + 10 :]) == {"red"}
    assert described["InferenceComponentStatus"] == "InService"
    assert described["FailureReason"] == "the update went back: in ALARM: component-errors"
    assert described["Specification"]["ModelName"] == "red"
