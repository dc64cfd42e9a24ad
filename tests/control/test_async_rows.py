"""The record of asynchronous requests on each database: what is entered, found, and ended once."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.control.store.store import Store
from penstock.core.deployment.deployment import AsyncSpec, DeploymentSpec, ModelSource, VariantSpec
from penstock.core.jobs.asynchronous_actions import Accepted
from penstock.jobs.asynchronous import rows
from penstock.jobs.asynchronous.rows import (
    AsyncRequest,
    Due,
    Ended,
    Entered,
    Notification,
    QueueId,
)

REQUEST = AsyncRequest(
    endpoint="later",
    inference_id="a",
    accepted=50.0,
    expires=110.0,
    timeout_s=900.0,
    input_uri="",
    body_bytes=3,
    meta=b'["text/csv"]',
    content_type="text/csv",
    output_uri="s3://bucket/a.out",
    failure_uri="",
    success_topic="arn:ok",
    error_topic="",
    answer_in_success=True,
    answer_in_error=False,
)
TOLD = Notification("id-1", "arn:ok", '{"a": "\u00e4"}', 60.0)
LATER = QueueId("Later", 5.0)


def endpoint(store: Store, name: str = "Later", *, born: float = 5.0, serves: bool = True) -> None:
    variant = VariantSpec(
        name="all",
        model=ModelSource(model_name="m"),
        instance_type="ml.local.small",
        instance_count=1,
    )
    deployment = DeploymentSpec(
        endpoint=name,
        generation=1,
        config_name="c",
        variants=(variant,),
        asynchronous=AsyncSpec(output_uri="s3://bucket"),
    )
    store.create_endpoint(name, deployment, arn=name, now=born)
    if serves:
        store.set_status(name, "InService", now=born, active_generation=1)


def entered(body: bytes = b"1,2", **changed: object) -> Entered:
    request = dataclasses.replace(REQUEST, body_bytes=len(body), **changed)  # type: ignore[arg-type]
    return Entered(request, body)


def test_a_deployment_keeps_its_configuration_of_asynchronous_inference(store: Store) -> None:
    endpoint(store)
    shown = store.describe_endpoint("later").shown
    assert shown.asynchronous == AsyncSpec(output_uri="s3://bucket")


def test_what_is_entered_is_found_in_its_order_with_its_body(store: Store) -> None:
    endpoint(store)
    taken = rows.enter(store, [entered(), entered(b"", input_uri="s3://in", expires=80.0)])
    assert taken == [LATER, LATER]
    assert rows.queues(store) == {LATER: 2}
    assert rows.after(store, LATER, 0, 9) == [Accepted(1, 110.0, 900.0), Accepted(2, 80.0, 900.0)]
    assert rows.after(store, LATER, 1, 9) == [Accepted(2, 80.0, 900.0)]
    assert rows.after(store, LATER, 0, 1) == [Accepted(1, 110.0, 900.0)]
    found = rows.request(store, 1)
    assert found == dataclasses.replace(REQUEST, endpoint="Later")
    assert (rows.body(store, 1), rows.body(store, 2)) == (b"1,2", b"")
    assert rows.oldest(store, LATER) == 50.0


def test_requests_whose_time_is_over_are_found_wherever_they_stand(store: Store) -> None:
    endpoint(store)
    rows.enter(store, [entered(), entered(expires=80.0), entered(expires=70.0)])
    assert rows.overdue(store, LATER, 69.9, 9) == []
    assert [one.number for one in rows.overdue(store, LATER, 80.0, 9)] == [3, 2]
    assert [one.number for one in rows.overdue(store, LATER, 200.0, 1)] == [3]


def test_an_endpoint_that_never_served_or_is_going_takes_none(store: Store) -> None:
    endpoint(store, serves=False)
    endpoint(store, "gone")
    store.begin_delete("gone", now=9.0)
    taken = rows.enter(store, [entered(), entered(endpoint="gone"), entered(endpoint="no")])
    assert taken == [None, None, None]
    assert rows.queues(store) == {}


def test_a_request_ends_once_with_one_notification(store: Store) -> None:
    endpoint(store)
    rows.enter(store, [entered(), entered()])
    rows.end(store, [Ended(1, TOLD)])
    rows.end(store, [Ended(1, TOLD), Ended(2, None)])
    assert rows.request(store, 1) is None
    assert rows.body(store, 1) == b""
    assert (rows.queues(store), rows.oldest(store, LATER)) == ({}, None)
    assert rows.due(store, 60.0, 9) == ([Due(1, TOLD, 0)], 60.0)


def test_a_number_is_never_used_again(store: Store) -> None:
    """What was read up to a number is not read again: a later request must stand behind it."""
    endpoint(store)
    rows.enter(store, [entered(), entered()])
    rows.end(store, [Ended(1, None), Ended(2, None)])
    rows.enter(store, [entered()])
    assert [one.number for one in rows.after(store, LATER, 2, 9)] == [3]


def test_an_endpoint_of_the_same_name_does_not_take_a_queue_over(store: Store) -> None:
    endpoint(store)
    rows.enter(store, [entered()])
    assert rows.exists(store, LATER)
    store.begin_delete("later", now=9.0)
    assert not rows.exists(store, LATER)
    store.finish_delete("later")
    assert not rows.exists(store, LATER)
    endpoint(store, born=7.0)
    assert not rows.exists(store, LATER)
    assert rows.enter(store, [entered()]) == [QueueId("Later", 7.0)]
    assert rows.queues(store) == {LATER: 1, QueueId("Later", 7.0): 1}


def test_notifications_wait_for_their_time_and_go_once_delivered(store: Store) -> None:
    endpoint(store)
    rows.enter(store, [entered(), entered()])
    other = TOLD._replace(message_id="id-2", made=61.0)
    rows.end(store, [Ended(1, TOLD), Ended(2, other)])
    assert rows.due(store, 59.0, 9) == ([], 60.0)
    assert [one.notification for one in rows.due(store, 61.0, 9)[0]] == [TOLD, other]
    rows.put_off(store, 1, 100.0, 1)
    rows.sent(store, 2)
    assert rows.due(store, 99.0, 9) == ([], 100.0)
    assert rows.due(store, 100.0, 9) == ([Due(1, TOLD, 1)], 100.0)


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_bodies_are_kept_as_they_are(store: Store, size: int) -> None:
    endpoint(store)
    body = bytes(range(256)) * (size // 256 + 1)
    rows.enter(store, [entered(body[:size])])
    assert rows.body(store, 1) == body[:size]
