"""Continuous batching: who joins and who leaves between two decode steps, and why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.batching.stepping import DecodeStep, Drop, Move, Prefill, Stepper, SteppingSpec
from penstock.errors import CallerError


def stepper(rows_max: int = 4, **spec: object) -> Stepper:
    return Stepper(SteppingSpec(rows_max, **spec))  # type: ignore[arg-type]


def test_an_empty_machine_has_nothing_to_do() -> None:
    machine = stepper()
    assert machine.plan(now=0.0) == []
    assert not machine.busy


def test_requests_that_came_together_are_encoded_together_and_step_together() -> None:
    machine = stepper()
    machine.add(1, now=0.0)
    machine.add(2, now=0.0)
    assert machine.plan(now=0.0) == [
        Prefill((1, 2), ((0,), (1,)), 0, reason="batch-empty"),
        DecodeStep(2, reason="rows-free"),
    ]
    assert machine.plan(now=0.1) == [DecodeStep(2, reason="rows-free")]


def test_a_newcomer_is_encoded_before_the_next_step_and_joins_it() -> None:
    machine = stepper(rows_max=2)
    machine.add(1, now=0.0)
    machine.plan(now=0.0)
    machine.add(2, now=0.1)
    assert machine.plan(now=0.1) == [
        Prefill((2,), ((1,),), 0, reason="prefill-first"),
        DecodeStep(2, reason="all-rows"),
    ]


def test_who_finds_no_row_waits_and_takes_the_first_that_falls_free() -> None:
    machine = stepper(rows_max=2)
    for id in (1, 2, 3):
        machine.add(id, now=0.0)
    machine.plan(now=0.0)
    assert machine.plan(now=0.1) == [DecodeStep(2, reason="all-rows")]
    assert machine.snapshot()["held_up"] == "rows-busy"
    machine.finish(1)
    assert machine.plan(now=0.2) == [
        Prefill((3,), ((0,),), 0, reason="prefill-first"),
        DecodeStep(2, reason="all-rows"),
    ]


def test_the_last_row_fills_a_hole_that_nobody_takes() -> None:
    machine = stepper()
    for id in (1, 2, 3):
        machine.add(id, now=0.0)
    machine.plan(now=0.0)
    machine.finish(1)
    assert machine.plan(now=0.1) == [
        Move(2, 0, reason="compact"),
        DecodeStep(2, reason="rows-free"),
    ]
    assert machine.snapshot()["running"] == {2: [1], 3: [0]}
    machine.add(4, now=0.2)
    assert machine.plan(now=0.2) == [
        Prefill((4,), ((2,),), 0, reason="prefill-first"),
        DecodeStep(3, reason="rows-free"),
    ]


def test_a_beam_search_takes_its_rows_at_once_and_is_not_overtaken() -> None:
    machine = stepper(rows_max=4)
    machine.add(1, rows=2, now=0.0)
    machine.add(2, rows=3, now=0.0)
    machine.add(3, rows=1, now=0.0)
    assert machine.plan(now=0.0)[0] == Prefill((1,), ((0, 1),), 0, reason="batch-empty")
    assert machine.plan(now=0.1) == [DecodeStep(2, reason="rows-free")]
    machine.finish(1)
    assert machine.plan(now=0.2) == [
        Prefill((2, 3), ((0, 1, 2), (3,)), 0, reason="batch-empty"),
        DecodeStep(4, reason="all-rows"),
    ]


def test_more_beams_than_rows_are_refused() -> None:
    assert stepper(rows_max=2).add(1, rows=3, now=0.0) == [Drop(1, "too-many-rows")]


def test_sources_of_one_bucket_are_encoded_together() -> None:
    machine = stepper(rows_max=4, buckets=(16, 64))
    for id, tokens in ((1, 9), (2, 40), (3, 16), (4, 500)):
        machine.add(id, tokens=tokens, now=0.0)
    assert machine.plan(now=0.0) == [
        Prefill((1, 3), ((0,), (2,)), 16, reason="batch-empty"),
        Prefill((2, 4), ((1,), (3,)), 64, reason="batch-empty"),
        DecodeStep(4, reason="all-rows"),
    ]


def test_a_crowd_of_long_sources_holds_up_the_running_rows_by_one_limit_at_most() -> None:
    machine = stepper(rows_max=4, prefill_tokens_max=100)
    for id in (1, 2, 3):
        machine.add(id, tokens=60, now=0.0)
    assert machine.plan(now=0.0)[0] == Prefill((1,), ((0,),), 0, reason="batch-empty")
    assert machine.snapshot()["held_up"] == "prefill-limit"
    assert machine.plan(now=0.1)[0] == Prefill((2,), ((1,),), 0, reason="prefill-first")


def test_unless_said_otherwise_4096_tokens_are_encoded_between_two_steps() -> None:
    machine = stepper()
    machine.add(1, tokens=2048, now=0.0)
    machine.add(2, tokens=2048, now=0.0)
    machine.add(3, tokens=2048, now=0.0)
    machine.add(4, tokens=2049, now=0.0)
    assert machine.plan(now=0.0)[0] == Prefill((1, 2), ((0,), (1,)), 0, reason="batch-empty")
    assert machine.plan(now=0.1)[0] == Prefill((3,), ((2,),), 0, reason="prefill-first")
    assert machine.plan(now=0.2)[0] == Prefill((4,), ((3,),), 0, reason="prefill-first")


def test_a_request_of_unknown_length_counts_as_one_token() -> None:
    machine = stepper(rows_max=4, prefill_tokens_max=2)
    for id in (1, 2, 3):
        machine.add(id, now=0.0)
    assert machine.plan(now=0.0)[0] == Prefill((1, 2), ((0,), (1,)), 0, reason="batch-empty")


def test_what_held_up_the_last_who_waited_is_not_said_of_a_newcomer() -> None:
    machine = stepper(rows_max=1)
    machine.add(1, now=0.0)
    machine.add(2, now=0.0)
    machine.plan(now=0.0)
    assert machine.snapshot()["held_up"] == "rows-busy"
    machine.finish(1)
    machine.plan(now=0.1)
    machine.add(3, now=0.2)
    assert machine.snapshot()["held_up"] == ""
    machine.plan(now=0.2)
    assert machine.snapshot()["held_up"] == "rows-busy"


def test_a_machine_is_busy_from_the_first_request_to_the_end_of_the_last() -> None:
    machine = stepper()
    machine.add(1, now=0.0)
    assert machine.busy  # it waits
    machine.plan(now=0.0)
    assert machine.busy  # it runs
    machine.finish(1)
    assert not machine.busy


def test_a_cancelled_request_leaves_before_the_next_step() -> None:
    machine = stepper(rows_max=1)
    machine.add(1, now=0.0)
    machine.add(2, now=0.0)
    machine.plan(now=0.0)
    assert machine.cancel(1)
    assert machine.plan(now=0.1) == [
        Drop(1, "cancelled"),
        Prefill((2,), ((0,),), 0, reason="batch-empty"),
        DecodeStep(1, reason="all-rows"),
    ]
    assert machine.cancel(2)
    assert machine.plan(now=0.2) == [Drop(2, "cancelled")]
    assert not machine.cancel(2)


def test_nothing_is_computed_after_its_deadline() -> None:
    machine = stepper()
    assert machine.add(1, deadline=5.0, now=5.0) == [Drop(1, "deadline-passed")]
    machine.add(2, deadline=6.0, now=5.0)
    machine.plan(now=5.0)
    assert machine.plan(now=5.9) == [DecodeStep(1, reason="rows-free")]
    assert machine.plan(now=6.0) == [Drop(2, "deadline-passed")]


def test_what_cannot_be_met_is_dropped_before_it_is_computed() -> None:
    """Ten steps at a tenth of a second do not fit into half a second."""
    machine = stepper()
    machine.add(1, now=0.0)
    machine.plan(now=0.0)
    machine.stepped(0.1)
    machine.finish(1)
    machine.add(2, steps_min=10, deadline=1.5, now=1.0)
    assert machine.plan(now=1.0) == [Drop(2, "deadline-cannot-be-met")]
    machine.add(3, steps_min=4, deadline=1.5, now=1.0)
    assert DecodeStep(1, "rows-free") in machine.plan(now=1.0)


def test_a_request_whose_length_is_unknown_takes_one_step_at_least() -> None:
    machine = stepper()
    machine.stepped(1.0)
    machine.add(1, deadline=11.0, now=10.0)
    machine.add(2, deadline=10.5, now=10.0)
    assert machine.plan(now=10.0) == [
        Drop(2, "deadline-cannot-be-met"),
        Prefill((1,), ((0,),), 0, reason="batch-empty"),
        DecodeStep(1, reason="rows-free"),
    ]


def test_steps_that_are_made_are_no_longer_ahead() -> None:
    """Two of three steps of a second are left: from 1.0 on that just fits, from 1.5 on it does
    not."""
    machine = stepper()
    machine.add(1, steps_min=3, deadline=3.0, now=0.0)
    machine.plan(now=0.0)
    machine.stepped(1.0)
    assert machine.plan(now=1.0) == [DecodeStep(1, reason="rows-free")]
    assert machine.plan(now=1.5) == [Drop(1, "deadline-cannot-be-met")]


def test_who_has_made_the_steps_that_it_needs_may_go_on_until_its_deadline() -> None:
    machine = stepper()
    machine.add(1, steps_min=1, deadline=3.0, now=0.0)
    machine.plan(now=0.0)
    machine.stepped(1.0)
    machine.stepped(1.0)
    assert machine.plan(now=2.5) == [DecodeStep(1, reason="rows-free")]
    assert machine.plan(now=3.0) == [Drop(1, "deadline-passed")]


def test_the_duration_of_a_step_follows_slowly() -> None:
    machine = stepper()
    machine.stepped(0.8)
    machine.stepped(1.6)
    assert machine.snapshot()["step_s"] == pytest.approx(0.9)


def test_a_step_that_a_neighbour_held_up_counts_as_four() -> None:
    machine = stepper()
    machine.stepped(0.8)
    machine.stepped(80.0)
    assert machine.snapshot()["step_s"] == pytest.approx(1.1)


def test_impossible_specs_and_known_ids_are_refused() -> None:
    for rows_max, tokens_max in ((0, 1), (1, 0)):
        with pytest.raises(CallerError) as caught:
            SteppingSpec(rows_max, prefill_tokens_max=tokens_max)
        assert caught.value.code == "step-spec"
    assert SteppingSpec(1, prefill_tokens_max=1).rows_max == 1
    machine = stepper()
    machine.add(1, now=0.0)
    with pytest.raises(ValueError, match="here already"):
        machine.add(1, now=0.0)


_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5), st.integers(1, 90)),
        st.tuples(st.just("finish"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("plan"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(_OPERATIONS)
def test_rows_are_dense_owned_once_and_nobody_is_lost(
    operations: list[tuple[str, int, int]],
) -> None:
    """Every request is dropped, finished, running or waiting; a step's rows are 0 .. n-1, and the
    moves alone say where each row went."""
    machine = stepper(rows_max=4, prefill_tokens_max=100, buckets=(16, 64))
    here: set[int] = set()
    where: dict[int, list[int]] = {}
    now = 0.0
    for at, (operation, first, tokens) in enumerate(operations):
        now += 0.5
        if operation == "add":
            deadline = now + tokens / 10 if tokens % 3 == 0 else None
            if not machine.add(at, rows=first, tokens=tokens, deadline=deadline, now=now):
                here.add(at)
        elif operation == "finish" and where:
            id = sorted(where)[first % len(where)]
            machine.finish(id)
            here.discard(id)
            del where[id]
        elif operation == "cancel" and here:
            assert machine.cancel(sorted(here)[first % len(here)])
        else:
            actions = machine.plan(now=now)
            for action in actions:
                if isinstance(action, Drop):
                    here.remove(action.id)
                    where.pop(action.id, None)
                elif isinstance(action, Prefill):
                    for id, rows in zip(action.ids, action.rows, strict=True):
                        where[id] = list(rows)
                elif isinstance(action, Move):
                    owner = next(rows for rows in where.values() if action.source in rows)
                    owner[owner.index(action.source)] = action.target
                else:
                    used = sorted(row for rows in where.values() for row in rows)
                    assert used == list(range(action.rows))
            assert bool(where) == any(isinstance(action, DecodeStep) for action in actions)
            eldest = next(iter(machine.snapshot()["waiting"]), None)
            if eldest is not None and not any(isinstance(action, Prefill) for action in actions):
                free = 4 - sum(map(len, where.values()))
                assert operations[eldest][1] > free, "there was room, and nobody joined"
        machine.check_invariants()
        seen = machine.snapshot()
        assert here == {*seen["waiting"], *seen["running"]}
        assert seen["running"] == where
    for _ in range(len(operations) + 1):
        for id in seen_running(machine):
            machine.finish(id)
            here.discard(id)
        here -= {action.id for action in machine.plan(now=now) if isinstance(action, Drop)}
    assert not here, "everybody is computed or dropped in the end"
    assert not machine.busy


def seen_running(machine: Stepper) -> list[int]:
    return list(machine.snapshot()["running"])
