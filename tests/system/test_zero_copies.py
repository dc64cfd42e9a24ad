"""Requests at zero copies, with real processes: held while a copy starts, and then answered."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.components import ComponentSite
from tests.kit.polling import wait_until
from tests.kit.servers import Server

pytestmark = pytest.mark.system


class DoublingSite(ComponentSite):
    def double(self, number: int, endpoint: str = "shop", **more: Any) -> int:
        return int(self.server.invoke(endpoint, {"number": number}, **more)["doubled"])

    def no_capacity(self, **dimensions: str) -> float:
        points = self.server.datapoints("NoCapacityInvocationFailures", "Sum", **dimensions)
        return sum(points)

    def comes(self, name: str, model: str, copies: int) -> None:
        self.component(name, model, copies)
        self.serves(name, copies=copies)

    def instances(self, name: str, count: int) -> None:
        """Sets the count of the variant, and returns once it is reached."""
        self.server.set_count(name, count)

        def reached() -> bool:
            [variant] = self.client.describe_endpoint(EndpointName=name)["ProductionVariants"]
            return bool(variant["CurrentInstanceCount"] == count)

        wait_until(reached, f"{name} at {count} instances", 90)


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> DoublingSite:
    return DoublingSite(empty_server, tmp_path)


def ask_all(site: DoublingSite, pool: ThreadPoolExecutor, **more: Any) -> list[Future[int]]:
    """Four calls that are held: returns once they are."""
    asked = [pool.submit(site.double, number, **more) for number in range(4)]
    wait_until(lambda: site.server.in_flight() == 4, "four requests held", 30)
    return asked


def test_a_variant_at_zero_instances_holds_its_requests_until_one_is_there(
    site: DoublingSite,
) -> None:
    site.model("m")
    site.endpoint("depot", ModelName="m")
    assert site.double(1, "depot") == 2
    site.instances("depot", 0)
    with ThreadPoolExecutor(4) as pool:
        asked = ask_all(site, pool, endpoint="depot")
        site.instances("depot", 1)
        assert [one.result(60) for one in asked] == [0, 2, 4, 6]
    # A gateway of several tells what it counts each second.
    wait_until(lambda: site.server.in_flight() == 0, "nothing in flight", 30)
    wait_until(
        lambda: site.no_capacity(EndpointName="depot", VariantName="all") == 4,
        "four requests counted as those that found no capacity",
        30,
    )


def test_a_component_at_zero_copies_holds_its_requests_until_one_is_there(
    site: DoublingSite,
) -> None:
    site.endpoint("shop")
    site.model("m")
    site.comes("held", "m", 0)
    with ThreadPoolExecutor(4) as pool:
        asked = ask_all(site, pool, InferenceComponentName="held")
        site.set_copies("held", 1)
        assert [one.result(60) for one in asked] == [0, 2, 4, 6]
    wait_until(
        lambda: site.no_capacity(InferenceComponentName="held") == 4,
        "four requests counted as those that found no capacity",
        30,
    )


def test_a_component_that_says_so_refuses_at_zero_copies_as_aws_does(site: DoublingSite) -> None:
    site.endpoint("shop")
    site.model("m", PENSTOCK_ZERO_CAPACITY="refuse")
    site.comes("red", "m", 0)
    with pytest.raises(ClientError) as raised:
        site.double(1, InferenceComponentName="red")
    error = raised.value.response["Error"]
    assert error["Code"] == "ValidationError"
    assert error["Message"] == (
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may"
        " be in-progress (if configured) or try to increase the capacity by invoking"
        " UpdateInferenceComponentRuntimeConfig API."
    )


def test_a_component_answers_through_every_door_and_nothing_answers_for_it(
    site: DoublingSite,
) -> None:
    site.endpoint("shop")
    site.model("m")
    site.comes("red", "m", 1)
    assert site.double(4, InferenceComponentName="red") == 8
    stream = site.runtime.invoke_endpoint_with_response_stream(
        EndpointName="shop",
        InferenceComponentName="red",
        ContentType="application/json",
        Body=b'{"number": 5}',
    )["Body"]
    parts = b"".join(event["PayloadPart"]["Bytes"] for event in stream)
    assert json.loads(parts)["doubled"] == 10
    for more, text in (
        ({}, "Inference Component Name header is required"),
        ({"InferenceComponentName": "blue"}, "Inference component blue of endpoint shop not found"),
    ):
        with pytest.raises(ClientError) as raised:
            site.double(1, **more)
        assert raised.value.response["Error"]["Code"] == "ValidationError"
        assert text in raised.value.response["Error"]["Message"]
    _, index = site.server.post("/v2/repository/index", b"{}")
    assert [one["name"] for one in json.loads(index)] == ["shop", "shop:red"]
    assert site.server.get("/v2/models/shop:red")["name"] == "shop:red"
