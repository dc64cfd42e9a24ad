"""Sequences as timelines: which slot, which batch, and how they end."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.batching.sequences import (
    LOST,
    NOT_STARTED,
    FreeSequenceSlot,
    RunSequences,
    SequenceBatcher,
    SequenceSpec,
    SequenceStep,
)
from penstock.core.batching.spec import Expire, RefuseItem

DIRECT = SequenceSpec(slots=4)
OLDEST = SequenceSpec(slots=4, direct=False, rows_max=2)


def add(
    batcher: SequenceBatcher, id: int, sequence: Hashable, marks: str = "", *, now: float
) -> list[object]:
    """`marks`: "(" where it begins the sequence, ")" where it ends it."""
    told = batcher.add(id, sequence=sequence, start="(" in marks, end=")" in marks, now=now)
    batcher.check_invariants()
    return list(told)


def step(sequence: Hashable, slot: int, marks: str = "") -> SequenceStep:
    return SequenceStep(sequence, slot, "(" in marks, ")" in marks)


def run(
    lane: int,
    ids: tuple[int, ...],
    *steps: SequenceStep | None,
    reason: str = "lane-free",
    waited_s: float = 0.0,
    waiting: int = 0,
) -> RunSequences:
    return RunSequences(lane, ids, len(steps), 0, waited_s, waiting, reason, tuple(steps))


# direct


def test_the_rows_of_a_direct_batch_are_the_slots_and_those_without_a_request_are_padding() -> None:
    batcher = SequenceBatcher(DIRECT)
    for id, sequence in enumerate(("a", "b", "c"), 1):
        assert add(batcher, id, sequence, "(", now=0.0) == []
    assert batcher.next_deadline() == 0.0
    assert batcher.on_timer(now=0.0)[0] == [
        run(0, (1, 2, 3), step("a", 0, "("), step("b", 1, "("), step("c", 2, "("))
    ]
    assert batcher.next_deadline() is None
    assert add(batcher, 4, "c", now=0.1) == []
    assert batcher.lane_freed(0, now=0.2) == []
    assert batcher.on_timer(now=0.2)[0] == [run(0, (4,), None, None, step("c", 2), waited_s=0.1)]


def test_requests_of_one_sequence_run_in_order_and_one_at_a_time() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, 7, "(", now=0.0)
    add(batcher, 2, 7, now=0.0)
    add(batcher, 3, 7, ")", now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (1,), step(7, 0, "("), waiting=2)]
    assert batcher.lane_freed(0, now=1.0) == []
    assert batcher.on_timer(now=1.0)[0] == [run(0, (2,), step(7, 0), waited_s=1.0, waiting=1)]
    assert batcher.lane_freed(0, now=2.0) == []
    assert batcher.on_timer(now=2.0)[0] == [run(0, (3,), step(7, 0, ")"), waited_s=2.0)]
    assert batcher.lane_freed(0, now=3.0) == [FreeSequenceSlot(7, 0, 0, "ended")]
    assert batcher.next_deadline() is None


def test_a_direct_batch_waits_for_its_part_of_the_slots_but_not_longer_than_it_may() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=4, utilization_min=0.5, wait_s_max=0.5))
    add(batcher, 1, "a", "(", now=1.0)
    assert batcher.next_deadline() == 1.5
    assert batcher.on_timer(now=1.4)[0] == []
    add(batcher, 2, "b", "(", now=1.4)
    assert batcher.on_timer(now=1.4)[0] == [
        run(0, (1, 2), step("a", 0, "("), step("b", 1, "("), waited_s=0.3999999999999999)
    ]
    batcher.lane_freed(0, now=2.0)
    add(batcher, 3, "b", now=2.0)
    assert batcher.on_timer(now=2.5)[0] == [
        run(0, (3,), None, step("b", 1), reason="waited-enough", waited_s=0.5)
    ]


def test_sequences_spread_over_lanes_and_each_stays_on_its_own() -> None:
    batcher = SequenceBatcher(SequenceSpec(lanes=2, slots=2))
    for id, sequence in enumerate("abc", 1):
        add(batcher, id, sequence, "(", now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [
        run(0, (1, 3), step("a", 0, "("), step("c", 1, "("), waiting=1),
        run(1, (2,), step("b", 0, "(")),
    ]
    add(batcher, 4, "b", now=0.1)
    batcher.lane_freed(0, now=0.2)
    assert batcher.on_timer(now=0.2)[0] == []  # lane 0 is free, and not the one of b
    batcher.lane_freed(1, now=0.3)
    assert batcher.on_timer(now=0.3)[0] == [
        run(1, (4,), step("b", 0), waited_s=0.19999999999999998)
    ]


def test_a_request_that_is_to_run_alone_has_no_batch_mates() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    batcher.add(2, sequence="b", start=True, end=False, alone=True, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (2,), None, step("b", 1, "("), waiting=1)]
    batcher.lane_freed(0, now=0.1)
    assert batcher.on_timer(now=0.1)[0] == [run(0, (1,), step("a", 0, "("), waited_s=0.1)]


def test_one_request_that_is_to_run_alone_goes_before_another() -> None:
    batcher = SequenceBatcher(DIRECT)
    for id, sequence in enumerate("ab", 1):
        batcher.add(id, sequence=sequence, start=True, end=False, alone=True, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (1,), step("a", 0, "("), waiting=1)]


def test_by_itself_a_copy_holds_one_sequence_and_runs_one_row_at_once() -> None:
    batcher = SequenceBatcher(SequenceSpec(direct=False))
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "b", "(", now=0.0)
    assert (batcher.open_count, batcher.backlog_count) == (1, 1)
    reason = "batch-full"
    assert batcher.on_timer(now=0.0)[0] == [
        run(0, (1,), step("a", 0, "("), reason=reason, waiting=1)
    ]


def test_without_a_bound_of_its_own_a_queue_takes_2048_requests() -> None:
    batcher = SequenceBatcher(SequenceSpec())
    for id in range(2048):
        assert batcher.add(id, sequence="a", start=id == 0, end=False, now=0.0) == []
    assert add(batcher, 2048, "a", now=0.0) == [RefuseItem(2048, "queue-full")]


def test_a_batch_whose_part_of_the_slots_is_less_than_one_request_leaves_with_one() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=4, utilization_min=0.1, wait_s_max=9.0))
    add(batcher, 1, "a", "(", now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (1,), step("a", 0, "("))]


# oldest


def test_oldest_takes_the_oldest_requests_of_any_slot_without_padding() -> None:
    batcher = SequenceBatcher(OLDEST)
    for id, sequence in enumerate("abc", 1):
        add(batcher, id, sequence, "(", now=id / 10)
    assert batcher.on_timer(now=0.3)[0] == [
        run(
            0, (1, 2), step("a", 0, "("), step("b", 1, "("),
            reason="batch-full", waited_s=0.19999999999999998, waiting=1,
        )
    ]  # fmt: skip
    add(batcher, 4, "a", now=0.4)
    batcher.lane_freed(0, now=0.5)
    assert batcher.on_timer(now=0.5)[0] == [
        run(0, (3, 4), step("c", 2, "("), step("a", 0), reason="batch-full", waited_s=0.2)
    ]


def test_oldest_leaves_at_a_preferred_size_or_when_its_oldest_has_waited_enough() -> None:
    spec = SequenceSpec(slots=8, direct=False, rows_max=8, rows_preferred=(2,), wait_s_max=1.0)
    batcher = SequenceBatcher(spec)
    add(batcher, 1, "a", "(", now=0.0)
    assert batcher.next_deadline() == 1.0
    assert batcher.on_timer(now=1.0)[0] == [
        run(0, (1,), step("a", 0, "("), reason="waited-enough", waited_s=1.0)
    ]
    batcher.lane_freed(0, now=2.0)
    for id, sequence in enumerate("bcd", 2):
        add(batcher, id, sequence, "(", now=2.0)
    assert batcher.on_timer(now=2.0)[0] == [
        run(
            0, (2, 3), step("b", 1, "("), step("c", 2, "("),
            reason="preferred-size", waiting=1,
        )
    ]  # fmt: skip


def test_the_oldest_request_decides_and_not_the_sequence_that_came_first() -> None:
    spec = SequenceSpec(slots=4, direct=False, rows_max=2, wait_s_max=1.0)
    batcher = SequenceBatcher(spec)
    for id, sequence in enumerate("ab", 1):
        add(batcher, id, sequence, "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    add(batcher, 3, "b", now=1.0)  # b's next is older than a's, which is added behind it
    add(batcher, 4, "a", now=1.5)
    add(batcher, 5, "c", "(", now=1.25)
    assert batcher.lane_freed(0, now=2.0) == []
    assert batcher.on_timer(now=2.0)[0] == [
        run(
            0, (3, 5), step("b", 1), step("c", 2, "("),
            reason="batch-full", waited_s=1.0, waiting=1,
        )
    ]  # fmt: skip
    batcher.lane_freed(0, now=2.0)
    assert batcher.next_deadline() == 2.5  # since 4 came at 1.5


def test_of_the_preferred_sizes_the_largest_that_is_there_is_taken() -> None:
    def batch_of(count: int, rows_max: int = 8) -> list[object]:
        spec = SequenceSpec(
            slots=8, direct=False, rows_max=rows_max, rows_preferred=(4, 2), wait_s_max=1.0
        )
        batcher = SequenceBatcher(spec)
        for id in range(count):
            add(batcher, id, id, "(", now=0.0)
        (action,) = batcher.on_timer(now=0.0)[0] or [None]
        return [len(action.ids), action.reason] if isinstance(action, RunSequences) else []

    assert batch_of(1) == []
    assert batch_of(2) == [2, "preferred-size"]
    assert batch_of(3) == [2, "preferred-size"]
    assert batch_of(4) == [4, "preferred-size"]
    assert batch_of(5) == [4, "preferred-size"]
    assert batch_of(8) == [8, "batch-full"]
    assert batch_of(5, rows_max=5) == [5, "batch-full"]


# begin and end


def test_a_sequence_that_was_not_begun_or_has_ended_is_refused() -> None:
    batcher = SequenceBatcher(DIRECT)
    assert add(batcher, 1, 5, now=0.0) == [RefuseItem(1, NOT_STARTED)]
    assert add(batcher, 2, 5, "()", now=0.0) == []
    assert add(batcher, 3, 5, now=0.0) == [RefuseItem(3, NOT_STARTED)]
    batcher.on_timer(now=0.0)[0]
    assert batcher.lane_freed(0, now=0.1) == [FreeSequenceSlot(5, 0, 0, "ended")]
    assert add(batcher, 4, 5, ")", now=0.2) == [RefuseItem(4, NOT_STARTED)]


def test_a_number_and_the_text_of_it_are_two_sequences() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, 5, "(", now=0.0)
    assert add(batcher, 2, "5", now=0.0) == [RefuseItem(2, NOT_STARTED)]


def test_a_sequence_that_begins_again_goes_on_in_its_slot() -> None:
    """Its caller crashed and did not end it: what waits of the first runs before."""
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "a", "(", now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (1,), step("a", 0, "("), waiting=1)]
    batcher.lane_freed(0, now=0.0)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (2,), step("a", 0, "("))]


def test_without_a_free_slot_a_sequence_waits_with_all_its_requests() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=1))
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "b", "(", now=0.0)
    add(batcher, 3, "b", ")", now=0.0)
    add(batcher, 4, "c", "()", now=0.0)
    assert (batcher.open_count, batcher.backlog_count) == (1, 2)
    assert batcher.on_timer(now=0.0)[0] == [run(0, (1,), step("a", 0, "("), waiting=3)]
    batcher.lane_freed(0, now=0.1)
    assert batcher.next_deadline() == 1.1  # it keeps its slot until it ends or is idle
    add(batcher, 5, "a", ")", now=0.2)
    assert batcher.on_timer(now=0.2)[0] == [run(0, (5,), step("a", 0, ")"), waiting=3)]
    assert batcher.lane_freed(0, now=0.3) == [FreeSequenceSlot("a", 0, 0, "ended")]
    assert batcher.on_timer(now=0.3)[0] == [
        run(0, (2,), step("b", 0, "("), waited_s=0.3, waiting=2)
    ]


def test_one_that_begins_again_behind_its_end_goes_behind_the_backlog() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=1))
    add(batcher, 1, "a", "()", now=0.0)
    add(batcher, 2, "b", "()", now=0.0)
    add(batcher, 3, "a", "()", now=0.0)
    batcher.on_timer(now=0.0)[0]
    assert batcher.lane_freed(0, now=1.0) == [FreeSequenceSlot("a", 0, 0, "ended")]
    assert batcher.on_timer(now=1.0)[0] == [
        run(0, (2,), step("b", 0, "()"), waited_s=1.0, waiting=1)
    ]
    assert batcher.lane_freed(0, now=2.0) == [FreeSequenceSlot("b", 0, 0, "ended")]
    assert batcher.on_timer(now=2.0)[0] == [run(0, (3,), step("a", 0, "()"), waited_s=2.0)]


def test_behind_its_end_a_sequence_takes_requests_again_only_once_it_begins_again() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "a", ")", now=0.0)
    assert add(batcher, 3, "a", now=0.0) == [RefuseItem(3, NOT_STARTED)]
    assert add(batcher, 4, "a", "(", now=0.0) == []
    assert add(batcher, 5, "a", now=0.0) == []


def test_the_next_moment_is_the_earliest_of_all() -> None:
    batcher = SequenceBatcher(SequenceSpec(lanes=2, slots=1, idle_s_max=9.0))
    add(batcher, 1, "a", "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    batcher.lane_freed(0, now=1.0)
    assert batcher.next_deadline() == 10.0
    add(batcher, 2, "b", "(", now=2.0)
    assert batcher.next_deadline() == 2.0
    assert batcher.running == 0
    batcher.on_timer(now=2.0)[0]
    assert batcher.running == 1
    assert batcher.next_deadline() == 10.0


def test_a_sequence_is_idle_since_its_last_answer() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=2, idle_s_max=1.0))
    for id, sequence in enumerate("ab", 1):
        add(batcher, id, sequence, "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    batcher.lane_freed(0, now=0.5)
    add(batcher, 3, "a", now=1.0)
    batcher.on_timer(now=1.0)[0]
    batcher.lane_freed(0, now=3.0)
    assert batcher.on_timer(now=3.0)[0] == [FreeSequenceSlot("b", 0, 1, "idle")]
    assert batcher.next_deadline() == 4.0


def test_an_idle_sequence_ends_and_its_slot_goes_to_the_backlog() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=1, idle_s_max=2.0))
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "b", "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    assert batcher.next_deadline() is None  # while it runs it is not idle
    batcher.lane_freed(0, now=5.0)
    assert batcher.next_deadline() == 7.0
    assert batcher.on_timer(now=6.9)[0] == []
    assert batcher.on_timer(now=7.0)[0] == [
        FreeSequenceSlot("a", 0, 0, "idle"),
        run(0, (2,), step("b", 0, "("), waited_s=7.0),
    ]
    assert add(batcher, 3, "a", now=7.1) == [RefuseItem(3, NOT_STARTED)]


# lost


def test_a_lanes_sequences_are_lost_with_its_worker_and_say_so_until_they_begin_again() -> None:
    batcher = SequenceBatcher(SequenceSpec(lanes=2, slots=1))
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "b", "(", now=0.0)
    add(batcher, 3, "a", now=0.0)
    batcher.on_timer(now=0.0)[0]
    assert batcher.lane_lost(0) == [Expire(3, LOST), FreeSequenceSlot("a", 0, 0, "lost")]
    batcher.check_invariants()
    assert batcher.lane_freed(0, now=0.1) == []
    assert add(batcher, 4, "a", now=0.2) == [RefuseItem(4, LOST)]
    assert add(batcher, 5, "a", "(", now=0.3) == []  # it waits: no lane has a slot
    assert batcher.on_timer(now=0.3)[0] == []
    batcher.lane_ready(0)
    batcher.check_invariants()
    assert batcher.on_timer(now=0.5)[0] == [run(0, (5,), step("a", 0, "("), waited_s=0.2)]
    batcher.lane_freed(1, now=0.5)
    add(batcher, 6, "b", now=0.6)  # the other lane's sequence never noticed
    assert batcher.on_timer(now=0.6)[0] == [run(1, (6,), step("b", 0))]


def test_a_request_that_leaves_the_queue_takes_its_sequence_with_it() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    add(batcher, 2, "a", now=0.1)
    add(batcher, 3, "a", now=0.1)
    assert batcher.cancel(2, now=0.2) == (
        True,
        [Expire(3, LOST), FreeSequenceSlot("a", 0, 0, "lost")],
    )
    assert batcher.cancel(1, now=0.2) == (False, [])  # it runs
    assert batcher.lane_freed(0, now=0.3) == []
    batcher.check_invariants()
    assert add(batcher, 4, "a", now=0.4) == [RefuseItem(4, LOST)]


def test_a_request_whose_time_is_over_is_not_run_and_its_sequence_is_lost() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    batcher.on_timer(now=0.0)[0]
    batcher.add(2, sequence="a", start=False, end=False, deadline=1.0, now=0.5)
    batcher.lane_freed(0, now=2.0)
    assert batcher.on_timer(now=2.0)[0] == [
        Expire(2, "deadline-passed"),
        FreeSequenceSlot("a", 0, 0, "lost"),
    ]
    late = batcher.add(3, sequence="b", start=True, end=False, deadline=2.0, now=2.0)
    assert late == [RefuseItem(3, "deadline-passed")]


def test_a_sequence_that_was_lost_and_began_again_is_no_lost_one() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    batcher.cancel(1, now=0.0)
    add(batcher, 2, "a", "()", now=0.0)
    batcher.on_timer(now=0.0)[0]
    batcher.lane_freed(0, now=0.1)
    assert add(batcher, 3, "a", now=0.2) == [RefuseItem(3, NOT_STARTED)]


def test_65536_lost_sequences_are_remembered_and_the_latest_are_kept() -> None:
    batcher = SequenceBatcher(DIRECT)
    for sequence in [*range(65_536), 0, "more"]:
        batcher.add(1, sequence=sequence, start=True, end=False, now=0.0)
        batcher.cancel(1, now=0.0)
    for sequence, reason in ((0, LOST), (1, NOT_STARTED), (2, LOST), ("more", LOST)):
        assert add(batcher, 2, sequence, now=0.0) == [RefuseItem(2, reason)]


def test_slots_of_lanes_that_are_left_go_out_by_their_number() -> None:
    batcher = SequenceBatcher(SequenceSpec(lanes=3, slots=3))
    batcher.lane_lost(0)
    for id, sequence in enumerate("abcdef", 1):
        add(batcher, id, sequence, "(", now=0.0)
    ran = [each.steps for each in batcher.on_timer(now=0.0)[0] if isinstance(each, RunSequences)]
    assert [[each and each.sequence for each in steps] for steps in ran] == [
        ["a", "c", "e"], ["b", "d", "f"],
    ]  # fmt: skip


def test_of_a_request_that_is_late_nothing_is_left() -> None:
    batcher = SequenceBatcher(DIRECT)
    batcher.add(1, sequence="a", start=True, end=False, deadline=1.0, now=0.0)
    add(batcher, 2, "a", now=0.0)
    assert batcher.on_timer(now=1.0)[0] == [
        Expire(1, "deadline-passed"), Expire(2, LOST), FreeSequenceSlot("a", 0, 0, "lost"),
    ]  # fmt: skip
    batcher.check_invariants()
    assert (batcher.waiting(), batcher.queue_rows) == ((), 0)


def test_a_request_that_finds_the_queue_full_changes_nothing() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=1, queue_rows_max=1))
    add(batcher, 1, "a", "(", now=0.0)
    assert add(batcher, 2, "a", now=0.0) == [RefuseItem(2, "queue-full")]
    batcher.on_timer(now=0.0)[0]
    assert add(batcher, 3, "a", now=0.1) == []


def test_a_copy_that_drains_begins_no_sequence_and_goes_on_with_those_it_has() -> None:
    batcher = SequenceBatcher(DIRECT)
    add(batcher, 1, "a", "(", now=0.0)
    assert batcher.drain(now=0.0) == []
    assert add(batcher, 2, "b", "(", now=0.0) == [RefuseItem(2, "draining")]
    assert add(batcher, 3, "a", ")", now=0.0) == []


def test_what_is_given_back_was_never_run_and_its_sequences_are_lost() -> None:
    batcher = SequenceBatcher(SequenceSpec(slots=1))
    add(batcher, 1, "a", "(", now=0.0)
    add(batcher, 2, "b", "(", now=0.0)
    add(batcher, 3, "a", now=0.0)
    assert batcher.give_back(now=0.0) == (1, 2, 3)
    batcher.check_invariants()
    assert add(batcher, 4, "a", now=0.1) == [RefuseItem(4, LOST)]


@pytest.mark.parametrize("spec", [DIRECT, OLDEST, SequenceSpec(lanes=2, slots=1, idle_s_max=0.3)])
@settings(deadline=None)
@given(data=st.data())
def test_nothing_is_lost_or_run_twice_and_a_sequence_runs_in_order(
    spec: SequenceSpec, data: st.DataObject
) -> None:
    batcher = SequenceBatcher(spec)
    now, id = 0.0, 0
    waiting: set[int] = set()
    running: dict[int, tuple[int, ...]] = {}
    last: dict[Hashable, int] = {}

    def carry_out(actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, RunSequences):
                assert action.lane not in running
                running[action.lane] = action.ids
                waiting.difference_update(action.ids)
                steps = [each for each in action.steps if each is not None]
                assert len(steps) == len(action.ids)
                for each, ran in zip(steps, action.ids, strict=True):
                    assert last.get(each.sequence, -1) < ran
                    last[each.sequence] = ran
                    if spec.direct:
                        assert action.steps[each.slot] is each
            elif isinstance(action, RefuseItem | Expire):
                waiting.remove(action.id)

    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 0.1, 0.5]))
        match data.draw(st.sampled_from(["add", "add", "free", "lost", "cancel"])):
            case "add":
                id += 1
                waiting.add(id)
                marks = data.draw(st.sampled_from(["(", "(", "", "", ")", "()"]))
                carry_out(add(batcher, id, data.draw(st.integers(1, 6)), marks, now=now))
            case "free" if running:
                lane = data.draw(st.sampled_from(sorted(running)))
                del running[lane]
                carry_out(list(batcher.lane_freed(lane, now=now)))
            case "lost":
                lane = data.draw(st.integers(0, spec.lanes - 1))
                carry_out(list(batcher.lane_lost(lane)))
                if running.pop(lane, None):
                    carry_out(list(batcher.lane_freed(lane, now=now)))
                batcher.lane_ready(lane)
            case "cancel" if waiting:
                gone = data.draw(st.sampled_from(sorted(waiting)))
                done, actions = batcher.cancel(gone, now=now)
                assert done
                waiting.remove(gone)
                carry_out(list(actions))
        at = batcher.next_deadline()
        if at is not None and now >= at:
            carry_out(list(batcher.on_timer(now=now)[0]))
            after = batcher.next_deadline()
            assert after is None or after > now
        batcher.check_invariants()
    assert waiting == set(batcher.waiting())
