"""The files of captured calls, on literal timelines: written, tried again, dropped."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.backoff import Backoff
from penstock.core.capture.queue import (
    Action,
    CaptureQueue,
    CaptureQueueSpec,
    DropRecords,
    FilePlace,
    WriteFile,
    is_sampled,
)

SPEC = CaptureQueueSpec(
    bytes_max=100,
    endpoint_bytes_max=60,
    file_bytes_max=30,
    file_records_max=3,
    file_wait_s=10.0,
    tries_max=3,
    writes_max=2,
    backoff=Backoff(pause_s_first=1.0, pause_s_max=60.0),
)
SHOP = FilePlace("s3://b/p", "shop", "blue", 5)
BANK = FilePlace("s3://b/p", "bank", "blue", 5)
MINE = FilePlace("s3://b/p", "mine", "blue", 5)


def test_the_share_of_the_calls_is_the_percentage() -> None:
    draws = [number / 1000 for number in range(1000)]
    for percentage, expected in ((0, 0), (1, 10), (50, 500), (100, 1000)):
        assert sum(is_sampled(percentage, draw) for draw in draws) == expected


def test_a_lone_record_is_written_once_it_has_waited_enough() -> None:
    queue = CaptureQueue(SPEC)
    assert queue.next_deadline() is None
    assert queue.add(SHOP, "a", 1, now=100.0) == []
    assert queue.add(SHOP, "b", 1, now=104.0) == []
    assert queue.next_deadline() == 110.0
    assert queue.on_timer(now=109.9) == []
    assert queue.on_timer(now=110.0) == [WriteFile(1, SHOP, ("a", "b"), "waited-enough")]
    assert queue.next_deadline() is None
    assert queue.written(1, now=111.0) == []
    assert queue.is_empty


def test_a_file_is_full_by_its_records_or_by_their_bytes() -> None:
    queue = CaptureQueue(SPEC)
    assert queue.add(SHOP, "a", 1, now=0.0) == []
    assert queue.add(SHOP, "b", 1, now=0.0) == []
    assert queue.add(SHOP, "c", 1, now=0.0) == [WriteFile(1, SHOP, ("a", "b", "c"), "file-full")]
    assert queue.add(BANK, "d", 29, now=0.0) == []
    assert queue.add(BANK, "e", 1, now=0.0) == [WriteFile(2, BANK, ("d", "e"), "file-full")]


def test_variants_and_hours_have_files_of_their_own_and_an_endpoint_one_write_at_a_time() -> None:
    queue = CaptureQueue(SPEC)
    for place, record in (
        (SHOP, "a"),
        (SHOP._replace(variant="green"), "b"),
        (SHOP._replace(hour=6), "c"),
    ):
        queue.add(place, record, 1, now=0.0)
    assert queue.on_timer(now=10.0) == [WriteFile(1, SHOP, ("a",), "waited-enough")]
    green = WriteFile(2, SHOP._replace(variant="green"), ("b",), "waited-enough")
    assert queue.written(1, now=11.0) == [green]
    later = WriteFile(3, SHOP._replace(hour=6), ("c",), "waited-enough")
    assert queue.written(2, now=12.0) == [later]


def test_a_store_that_fails_is_tried_again_ever_more_slowly_and_then_its_file_is_dropped() -> None:
    """The same number each time: it gives the object's name, so a try that succeeded unseen is
    written over."""
    queue = CaptureQueue(SPEC)
    queue.add(SHOP, "a", 1, now=0.0)
    queue.on_timer(now=10.0)
    assert queue.failed(1, now=10.0) == []
    queue.add(SHOP, "b", 1, now=10.5)
    assert queue.next_deadline() == 11.0
    assert queue.on_timer(now=10.9) == []
    assert queue.on_timer(now=11.0) == [WriteFile(1, SHOP, ("a",), "tried-again")]
    assert queue.failed(1, now=11.0) == []
    assert queue.next_deadline() == 13.0
    assert queue.on_timer(now=13.0) == [WriteFile(1, SHOP, ("a",), "tried-again")]
    assert queue.failed(1, now=13.0) == [DropRecords(("a",), "not-written")]
    assert queue.on_timer(now=20.5) == [WriteFile(2, SHOP, ("b",), "waited-enough")]
    assert queue.written(2, now=21.0) == []
    assert queue.is_empty


def test_a_store_that_is_well_again_has_no_pause() -> None:
    queue = CaptureQueue(replace(SPEC, backoff=Backoff(pause_s_first=0.25, pause_s_max=60.0)))
    for record in "abcdef":
        queue.add(SHOP, record, 1, now=0.0)
    queue.failed(1, now=0.0)
    assert queue.on_timer(now=0.25) == [WriteFile(1, SHOP, ("a", "b", "c"), "tried-again")]
    assert queue.written(1, now=0.5) == [WriteFile(2, SHOP, ("d", "e", "f"), "file-full")]
    queue.failed(2, now=0.5)
    assert queue.next_deadline() == 0.75  # the first pause again, not the second


def test_beyond_the_bound_records_are_dropped_and_nothing_waits() -> None:
    """40 bytes are left for others: one endpoint whose store is away costs them nothing."""
    queue = CaptureQueue(SPEC)
    queue.add(SHOP, "a", 29, now=0.0)
    queue.add(SHOP, "b", 29, now=0.0)
    assert queue.add(SHOP, "c", 3, now=0.0) == [DropRecords(("c",), "queue-full")]
    assert queue.add(SHOP, "d", 2, now=0.0) == []
    assert queue.add(BANK, "e", 29, now=0.0) == []
    assert queue.add(MINE, "f", 12, now=0.0) == [DropRecords(("f",), "queue-full")]
    assert queue.add(MINE, "g", 11, now=0.0) == []
    queue.check_invariants()


def test_streams_under_way_take_from_the_same_bound() -> None:
    queue = CaptureQueue(SPEC)
    assert queue.reserve(100)
    queue.release(1)
    assert not queue.reserve(2)
    assert queue.add(SHOP, "a", 2, now=0.0) == [DropRecords(("a",), "queue-full")]
    queue.release(99)
    queue.check_invariants()
    assert queue.add(SHOP, "a", 2, now=0.0) == []
    assert queue.reserve(3)
    queue.check_invariants()


def test_only_so_many_files_are_written_at_once_and_endpoints_take_turns() -> None:
    queue = CaptureQueue(SPEC)
    for record in "abcdef":
        queue.add(SHOP, record, 1, now=0.0)
    for record in "ghi":
        queue.add(BANK, record, 1, now=0.0)
    for record in "jklmno":
        assert queue.add(MINE, record, 1, now=0.0) == []
    assert queue.next_deadline() is None
    assert queue.written(1, now=1.0) == [WriteFile(2, SHOP, ("d", "e", "f"), "file-full")]
    for record in "pqr":
        assert queue.add(SHOP, record, 1, now=1.0) == []
    assert queue.written(2, now=2.0) == [WriteFile(4, MINE, ("j", "k", "l"), "file-full")]
    assert queue.written(4, now=3.0) == [WriteFile(6, SHOP, ("p", "q", "r"), "file-full")]


def test_the_end_writes_what_there_is_with_one_try_each() -> None:
    queue = CaptureQueue(SPEC)
    queue.add(SHOP, "a", 1, now=0.0)
    queue.on_timer(now=10.0)
    queue.failed(1, now=10.0)
    queue.add(BANK, "b", 1, now=10.0)
    assert queue.stop(now=10.1) == [
        WriteFile(1, SHOP, ("a",), "tried-again"),
        WriteFile(2, BANK, ("b",), "stopping"),
    ]
    assert queue.failed(1, now=10.2) == [DropRecords(("a",), "not-written")]
    assert queue.add(SHOP, "c", 1, now=10.2) == [DropRecords(("c",), "stopping")]
    assert not queue.reserve(1)
    assert queue.abandon() == [DropRecords(("b",), "stopping")]
    assert queue.is_empty
    queue.check_invariants()


def test_at_the_end_nobody_waits_for_the_pause_of_a_file_that_failed() -> None:
    queue = CaptureQueue(SPEC)
    for record in "abcd":
        queue.add(SHOP, record, 1, now=0.0)
    assert queue.stop(now=0.5) == []
    dropped = DropRecords(("a", "b", "c"), "not-written")
    assert queue.failed(1, now=0.5) == [dropped, WriteFile(2, SHOP, ("d",), "stopping")]


def test_what_there_is_no_time_for_is_counted_too() -> None:
    queue = CaptureQueue(replace(SPEC, writes_max=1))
    queue.reserve(5)
    queue.add(SHOP, "a", 1, now=0.0)
    queue.add(BANK, "b", 1, now=0.0)
    assert queue.stop(now=1.0) == [WriteFile(1, SHOP, ("a",), "stopping")]
    assert queue.abandon() == [DropRecords(("b",), "stopping"), DropRecords(("a",), "stopping")]
    assert queue.snapshot() == {"bytes": 5, "endpoints": []}
    queue.check_invariants()


def test_a_pause_ends_unnoticed_while_there_is_no_room_for_a_try() -> None:
    queue = CaptureQueue(replace(SPEC, writes_max=1))
    queue.add(SHOP, "a", 30, now=0.0)
    assert queue.failed(1, now=0.0) == []
    assert queue.next_deadline() == 1.0
    queue.add(BANK, "b", 30, now=0.5)
    assert queue.next_deadline() is None
    assert queue.written(2, now=5.0) == [WriteFile(1, SHOP, ("a",), "tried-again")]


def test_what_is_held_is_shown_by_endpoint() -> None:
    queue = CaptureQueue(SPEC)
    for record in "abcd":
        queue.add(SHOP, record, 2, now=0.0)
    queue.failed(1, now=0.0)
    shop = {"endpoint": "shop", "destination": "s3://b/p", "bytes": 8, "files_due": 1}
    assert queue.snapshot() == {"bytes": 8, "endpoints": [shop | {"failures": 1}]}
    queue.on_timer(now=10.0)
    assert queue.snapshot()["endpoints"] == [shop | {"files_due": 2, "failures": 1}]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "written", "failed", "timer"]),
        st.sampled_from([SHOP, BANK, MINE, SHOP._replace(hour=6)]),
        st.integers(1, 25),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_record_is_written_or_dropped_once_whatever_happens(
    steps: list[tuple[str, FilePlace, int]],
) -> None:
    queue = CaptureQueue(replace(SPEC, tries_max=2))
    writing: dict[int, WriteFile] = {}
    ended: list[int] = []
    added, now = 0, 0.0

    def carry_out(actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, WriteFile):
                assert all(one.place[:2] != action.place[:2] for one in writing.values())
                writing[action.number] = action
            else:
                ended.extend(action.records)
        queue.check_invariants()

    def end_one(how: str) -> None:
        if writing:
            number, action = writing.popitem()
            if how == "written":
                ended.extend(action.records)
            carry_out(getattr(queue, how)(number, now=now))

    for what, place, size in steps:
        now += size / 10
        if what == "add":
            added += 1
            carry_out(queue.add(place, added, size, now=now))
        elif what == "timer":
            due = queue.next_deadline()
            now = now if due is None else max(now, due)
            carry_out(queue.on_timer(now=now))
            after = queue.next_deadline()
            assert after is None or after > now, "at its deadline it acts, or the driver would spin"
        else:
            end_one(what)
    carry_out(queue.stop(now=now))
    while writing:
        end_one("written")
    assert sorted(ended) == list(range(1, added + 1))
    assert queue.is_empty
