"""Transform jobs on record: what each transaction leaves, on every database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.control.store.records import AlreadyExists, ListQuery, NotFound
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    DataProcessing,
    InputObject,
    SpanDone,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.jobs.transform import transactions
from penstock.jobs.transform.records import (
    COMPLETED,
    IN_PROGRESS,
    STOPPING,
    JobNotRunning,
    JobTotals,
)

SPEC = TransformSpec(
    job="Nightly",
    model=ModelSource(model_name="m", uri="file:///m", environment=(("A", "1"),)),
    instance_type="ml.local.small",
    instance_count=2,
    input=TransformInput(uri="file:///in", split="Line", columns=("a", "b")),
    output=TransformOutput(uri="file:///out"),
    processing=DataProcessing(output_filter="$.x"),
    refused_max=None,
    cores_max=1,
    owner="team",
)
OBJECTS = [
    InputObject(number=n, key=f"k{n}", uri=f"file:///in/k{n}", size=5 * 2**32, stamp=str(n))
    for n in range(3)
]
TOTALS = JobTotals(objects=3, spans=6, bytes_total=15 * 2**32)


def create(store: Store, name: str = "Nightly", now: float = 1.0) -> None:
    transactions.create(
        store, replace(SPEC, job=name), {"TransformJobName": name}, arn=f"arn:{name}", now=now,
        tags={"team": "search"},
    )  # fmt: skip


def begun(store: Store) -> None:
    create(store)
    transactions.begin(store, "nightly", OBJECTS, span_bytes=7, totals=TOTALS, now=2.0)


def span(one: int, number: int, **fields: Any) -> SpanDone:
    told = {"records": 10, "refused": 0, "bytes_in": 2**33, "bytes_out": 3, "run_s": 0.5}
    return SpanDone(object=one, span=number, **(told | fields))


def test_a_job_is_found_in_any_case_with_all_that_it_asks_for(store: Store) -> None:
    create(store)
    record = transactions.describe(store, "nIGHTLY")
    assert record.spec == SPEC
    assert (record.name, record.arn, record.status) == ("Nightly", "arn:Nightly", IN_PROGRESS)
    assert (record.started, record.ended, record.span_bytes) == (None, None, 0)
    assert record.totals == JobTotals()
    assert store.list_tags("arn:Nightly") == {"team": "search"}
    with pytest.raises(AlreadyExists):
        create(store, "NIGHTLY")
    with pytest.raises(NotFound):
        transactions.describe(store, "other")


def test_what_a_job_reads_is_on_record_as_it_was_listed(store: Store) -> None:
    begun(store)
    record = transactions.describe(store, "nightly")
    assert (record.started, record.span_bytes, record.totals) == (2.0, 7, TOTALS)
    assert transactions.work_of(store, "nightly") == (OBJECTS, {}, set(), [])


def test_spans_that_are_done_are_there_once_however_often_they_are_told(store: Store) -> None:
    begun(store)
    transactions.add_spans(store, "nightly", [span(1, 0), span(0, 1)])
    transactions.add_spans(store, "nightly", [span(1, 0, records=10)])
    assert transactions.work_of(store, "nightly")[3] == [span(0, 1), span(1, 0)]


def test_an_object_has_its_output_or_the_reason_why_not(store: Store) -> None:
    begun(store)
    transactions.set_object(store, "nightly", 0, assembled=True)
    transactions.set_object(store, "nightly", 2, failure="k2: not UTF-8")
    objects, failures, assembled, _ = transactions.work_of(store, "nightly")
    assert objects == OBJECTS
    assert (failures, assembled) == ({2: "k2: not UTF-8"}, {0})


def test_the_end_keeps_the_totals_and_forgets_the_rest(store: Store) -> None:
    begun(store)
    transactions.add_spans(store, "nightly", [span(0, 0)])
    totals = replace(TOTALS, records=10, cost=0.25, instance_s=45.0)
    transactions.set_totals(store, "nightly", totals)
    assert transactions.describe(store, "nightly").totals == totals
    transactions.end(store, "nightly", COMPLETED, reason="", totals=totals, now=9.0)
    record = transactions.describe(store, "nightly")
    assert (record.status, record.ended, record.modified) == (COMPLETED, 9.0, 9.0)
    assert record.totals == totals
    assert transactions.work_of(store, "nightly") == ([], {}, set(), [])
    assert transactions.going(store) == []


def test_those_that_have_not_ended_are_taken_up_oldest_first(store: Store) -> None:
    for name, now in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        create(store, name, now)
    transactions.begin_stop(store, "b", now=5.0)
    transactions.end(store, "a", COMPLETED, reason="", totals=TOTALS, now=6.0)
    assert [(one.name, one.status) for one in transactions.going(store)] == [
        ("b", STOPPING), ("c", IN_PROGRESS),
    ]  # fmt: skip


def test_a_stop_is_recorded_once_and_refused_after_the_end(store: Store) -> None:
    create(store)
    transactions.begin_stop(store, "nightly", now=5.0)
    transactions.begin_stop(store, "nightly", now=6.0)
    record = transactions.describe(store, "nightly")
    assert (record.status, record.modified) == (STOPPING, 5.0)
    transactions.end(store, "nightly", "Stopped", reason="", totals=TOTALS, now=7.0)
    with pytest.raises(JobNotRunning):
        transactions.begin_stop(store, "nightly", now=8.0)


def test_lists_have_status_and_name_filters(store: Store) -> None:
    for name, now in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        create(store, name, now)
    transactions.begin_stop(store, "b", now=5.0)

    def names(**query: Any) -> list[str]:
        return [one.name for one in transactions.page(store, ListQuery(**query)).items]

    assert names() == ["c", "b", "a"]
    assert names(status_equals=STOPPING) == ["b"]
    assert names(sort_by="Status", sort_order="Ascending") == ["a", "c", "b"]
    assert names(name_contains="A") == ["a"]
