"""The record of decisions: the form of its rows, and a digest that depends on nothing else."""

from __future__ import annotations

import hashlib

import pytest

from penstock.core.batching.batcher import Expire, RefuseItem, RunBatch
from penstock.core.request.admission import Refusal
from penstock.core.routing import CopyState, NoRoute, Routed
from penstock.sim.record import DecisionRecorder, admission_row, batcher_row, router_row


def test_rows_name_time_place_and_reason() -> None:
    state = CopyState(7, "i-1", "blue", 10)
    batch = RunBatch(1, (4, 5), 3, 64, 0.25, 2, "lane-free")
    assert [
        admission_row(0.5, 1, Refusal("in-flight-limit", 1.0)),
        router_row(0.5, 2, Routed(state, "blue", "only-copy", 1)),
        router_row(0.5, 3, NoRoute("no-copies", 1.0)),
        batcher_row(0.5, 7, batch),
        batcher_row(0.5, 7, RefuseItem(6, "queue-full")),
        batcher_row(0.5, 7, Expire(8, "queue-timeout")),
    ] == [
        (0.5, "admission", 1, "in-flight-limit", 1.0),
        (0.5, "router", 2, 7, "blue", "only-copy", 1),
        (0.5, "router", 3, None, None, "no-copies", 1.0),
        (0.5, "batcher", 7, "run", 1, (4, 5), 3, 64, 0.25, 2, "lane-free"),
        (0.5, "batcher", 7, "refuse", 6, "queue-full"),
        (0.5, "batcher", 7, "expire", 8, "queue-timeout"),
    ]


def test_the_digest_is_that_of_compact_json_rows_with_commas() -> None:
    recorder = DecisionRecorder()
    recorder.add((0.1, "router", 3, None, "no-copies"))
    recorder.add((1.0, "batcher", 7, (1, 2)))
    text = b'[0.1,"router",3,null,"no-copies"],[1.0,"batcher",7,[1,2]],'
    assert recorder.digest() == hashlib.sha256(text).hexdigest()


def test_the_digest_does_not_depend_on_when_it_is_asked_for() -> None:
    asked, silent = DecisionRecorder(), DecisionRecorder(keep=True)
    rows = [(number / 7, "router", number) for number in range(5000)]
    for number, row in enumerate(rows):
        asked.add(row)
        silent.add(row)
        if number % 1000 == 0:
            asked.digest()
    assert asked.digest() == silent.digest()
    assert (asked.count, silent.count) == (5000, 5000)
    assert list(silent.rows()) == rows


def test_another_order_is_another_digest() -> None:
    one, two = DecisionRecorder(), DecisionRecorder()
    for recorder, rows in ((one, ((1.0,), (2.0,))), (two, ((2.0,), (1.0,)))):
        for row in rows:
            recorder.add(row)
    assert one.digest() != two.digest()


def test_rows_are_kept_only_where_asked_to() -> None:
    with pytest.raises(AssertionError, match="does not keep its rows"):
        DecisionRecorder().rows()
