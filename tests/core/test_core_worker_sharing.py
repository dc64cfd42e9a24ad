"""Which models share a worker, and who is moved, split, or given up when one ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.residency.worker_sharing import (
    Action,
    EndWorker,
    FailModel,
    LoadModel,
    SharingSpec,
    StartWorker,
    UnloadModel,
    WorkerSharing,
)


def sharing(models: int = 0, **spec: int) -> WorkerSharing:
    """With models 1, 2, ... of kind k loaded, each with one lane."""
    made = WorkerSharing(SharingSpec(**spec))
    for number in range(1, models + 1):
        made.add(number, "k", lanes=1)
    return made


def loads(actions: list[Action]) -> dict[int, list[int]]:
    """worker -> models that are loaded there."""
    found: dict[int, list[int]] = {}
    for each in actions:
        if isinstance(each, LoadModel):
            found.setdefault(each.worker, []).append(each.model)
    return found


def test_the_first_model_starts_a_worker_and_the_next_join_it() -> None:
    made = sharing()
    assert made.add(1, "k", lanes=1) == [
        StartWorker(1, "k", "lanes-wanted"),
        LoadModel(1, 1, 0, "requested"),
    ]
    assert made.add(2, "k", lanes=1) == [LoadModel(1, 2, 0, "requested")]


def test_models_of_another_kind_have_a_worker_of_their_own() -> None:
    assert loads(sharing(1).add(2, "other", lanes=1)) == {2: [2]}


def test_there_are_as_many_workers_as_lanes_are_wanted_and_cores_there() -> None:
    """Then the least crowded takes the next."""
    made = sharing(workers_max=2)
    told = [loads(made.add(number, "k", lanes=1)) for number in (1, 2, 3, 4)]
    assert told == [{1: [1]}, {2: [2]}, {1: [3]}, {2: [4]}]


def test_a_full_worker_takes_no_more() -> None:
    made = sharing(2, models_max=2)
    assert loads(made.add(3, "k", lanes=1)) == {2: [3]}


def test_lanes_of_one_model_are_in_different_workers_no_more_than_there_are_cores() -> None:
    made = sharing(workers_max=2)
    assert made.add(1, "k", lanes=3) == [
        StartWorker(1, "k", "lanes-wanted"),
        LoadModel(1, 1, 0, "requested"),
        StartWorker(2, "k", "lanes-wanted"),
        LoadModel(2, 1, 1, "requested"),
    ]
    assert made.lanes_of(1) == 2


def test_there_is_a_worker_and_a_lane_in_any_case() -> None:
    made = sharing(workers_max=0)
    assert loads(made.add(1, "k", lanes=0)) == {1: [1]}
    assert made.lanes_of(1) == 1
    assert loads(made.add(2, "k", lanes=3)) == {1: [2]}


def test_a_worker_holds_thirty_two_models_unless_said_otherwise() -> None:
    assert loads(sharing(31).add(32, "k", lanes=1)) == {1: [32]}
    assert loads(sharing(32).add(33, "k", lanes=1)) == {2: [33]}


def test_a_model_is_unloaded_and_the_last_one_ends_its_worker() -> None:
    made = sharing(2)
    assert made.remove(1) == [UnloadModel(1, 1, "unloaded")]
    assert made.remove(2) == [EndWorker(1, "empty")]
    assert made.remove(2) == []


def test_who_was_computing_goes_apart_and_the_others_are_together_again_at_once() -> None:
    made = sharing(3)
    assert made.died(1, suspect=2) == [
        StartWorker(2, "k", "mate-ended-worker"),
        LoadModel(2, 1, 0, "mate-ended-worker"),
        LoadModel(2, 3, 0, "mate-ended-worker"),
        StartWorker(3, "k", "ended-its-worker", 0.1),
        LoadModel(3, 2, 0, "ended-its-worker"),
    ]
    assert loads(made.add(4, "k", lanes=1)) == {2: [4]}  # nobody joins the suspect


def test_one_whose_load_ended_its_worker_is_loaded_apart_when_it_is_wanted_again() -> None:
    made = sharing(2)
    made.remove(2)
    made.died(1, suspect=2)
    assert made.add(3, "k", lanes=1, apart=True) == [
        StartWorker(3, "k", "ended-its-worker"),
        LoadModel(3, 3, 0, "requested"),
    ]
    assert loads(made.add(4, "k", lanes=1)) == {2: [4]}, "and stays there alone"


def test_a_model_that_dies_in_a_row_has_failed_and_waits_longer_each_time() -> None:
    made = sharing(2)
    waits = []
    worker = 1
    for _ in range(4):
        *_, start, _load = made.died(worker, suspect=1)
        assert isinstance(start, StartWorker)
        waits.append(start.wait_s)
        worker = start.worker
    assert waits == [0.1, 0.2, 0.4, 0.8]
    assert made.died(worker, suspect=1) == [FailModel(1, "died-too-often")]
    assert made.snapshot()["workers"] == {
        2: {"kind": "k", "models": [2], "apart": False, "searched": False}
    }


def test_an_answer_makes_deaths_before_it_not_count() -> None:
    made = sharing(1, deaths_max=2)
    made.died(1, suspect=1)
    made.served(1)
    assert made.died(2, suspect=1) == [
        StartWorker(3, "k", "ended-its-worker", 0.1),
        LoadModel(3, 1, 0, "ended-its-worker"),
    ]
    assert made.died(3, suspect=1) == [FailModel(1, "died-too-often")]


def test_of_one_that_is_alone_every_end_is_its_own() -> None:
    made = sharing(1, deaths_max=1)
    assert made.died(1, suspect=None) == [FailModel(1, "died-too-often")]


def test_a_suspect_that_was_removed_meanwhile_leaves_innocents() -> None:
    made = sharing(2)
    made.remove(1)
    assert loads(made.died(1, suspect=1)) == {2: [2]}


def test_an_end_that_nobody_was_computing_at_is_nobodys_once_and_splits_at_the_second() -> None:
    made = sharing(4)
    assert loads(made.died(1, suspect=None)) == {2: [1, 2, 3, 4]}
    assert loads(made.died(2, suspect=None)) == {3: [1, 2], 4: [3, 4]}
    assert loads(made.died(3, suspect=None)) == {5: [1, 2]}
    assert loads(made.died(5, suspect=None)) == {6: [1], 7: [2]}
    assert made.died(6, suspect=None) == [  # alone: its own
        StartWorker(8, "k", "ended-its-worker", 0.1),
        LoadModel(8, 1, 0, "ended-its-worker"),
    ]


def test_an_outgrown_worker_is_split_until_the_leak_is_alone_and_that_alone_fails() -> None:
    """Model 3 of five leaks; whoever holds it is outgrown again."""
    made = sharing(5)
    assert made.outgrew(1) == [
        StartWorker(2, "k", "worker-outgrown"),
        LoadModel(2, 1, 0, "worker-outgrown"),
        LoadModel(2, 2, 0, "worker-outgrown"),
        LoadModel(2, 3, 0, "worker-outgrown"),
        StartWorker(3, "k", "worker-outgrown"),
        LoadModel(3, 4, 0, "worker-outgrown"),
        LoadModel(3, 5, 0, "worker-outgrown"),
    ]
    assert loads(made.outgrew(2)) == {4: [1, 2], 5: [3]}
    assert made.outgrew(5) == [FailModel(3, "model-outgrew-worker")]
    assert [each["models"] for each in made.snapshot()["workers"].values()] == [[4, 5], [1, 2]]


def test_nobody_joins_a_worker_that_is_searched_until_the_leak_is_found() -> None:
    made = sharing(2)
    made.outgrew(1)
    assert loads(made.add(3, "k", lanes=1)) == {4: [3]}
    made.outgrew(2)  # model 1, alone
    assert loads(made.add(4, "k", lanes=1)) == {3: [4]}


def test_one_search_that_is_over_leaves_another_going_on() -> None:
    made = sharing(2)
    for number in (3, 4):
        made.add(number, "other", lanes=1)
    made.outgrew(1)
    made.outgrew(2)
    assert [each["searched"] for each in made.snapshot()["workers"].values()] == [True] * 4
    made.outgrew(3)  # model 1, alone
    assert [each["searched"] for each in made.snapshot()["workers"].values()] == [False, True, True]
    assert loads(made.add(5, "other", lanes=1)) == {7: [5]}


def test_a_search_is_over_as_well_when_one_that_is_alone_ends_its_worker() -> None:
    made = sharing(2)
    made.outgrew(1)
    made.died(2, suspect=None)  # model 1, alone
    assert loads(made.add(3, "k", lanes=1)) == {3: [3]}


def test_a_model_that_can_be_loaded_no_more_leaves_its_mates_where_they_are() -> None:
    made = sharing(2, deaths_max=2)
    assert made.not_loaded(1, 2) == [
        StartWorker(2, "k", "not-loaded", 0.1),
        LoadModel(2, 2, 0, "not-loaded"),
    ]
    assert made.not_loaded(2, 2) == [EndWorker(2, "empty"), FailModel(2, "died-too-often")]
    assert made.models_of(1) == (1,)


def test_what_is_not_there_any_more_changes_nothing() -> None:
    made = sharing(1)
    assert made.died(7, suspect=1) == []
    assert made.outgrew(7) == []
    assert made.not_loaded(7, 1) == []
    assert made.not_loaded(1, 7) == []
    made.served(7)
    assert made.models_of(7) == ()
    assert made.snapshot()["deaths"] == {}


@pytest.mark.parametrize("workers_max", [1, 3])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "remove", "died", "outgrew", "not_loaded"]),
                  st.integers(0, 9), st.integers(0, 9)),
        max_size=60,
    )
)  # fmt: skip
def test_every_lane_of_every_model_is_in_one_worker_whatever_happens(
    workers_max: int, steps: list[tuple[str, int, int]]
) -> None:
    made = WorkerSharing(SharingSpec(models_max=3, workers_max=workers_max, deaths_max=2))
    seats: set[tuple[int, int]] = set()  #: (worker, model), as a driver has them
    models: set[int] = set()
    added = 0
    for what, first, second in steps:
        workers = sorted({worker for worker, _ in seats})
        worker = workers[first % len(workers)] if workers else 0
        here = sorted(model for at, model in seats if at == worker)
        model = here[second % len(here)] if here else 0
        if what == "add":
            added += 1
            models.add(added)
            actions = made.add(added, "ab"[first % 2], lanes=1 + second % 4)
        elif what == "remove":
            models.discard(model)
            actions = made.remove(model)
        elif what == "not_loaded":
            seats.discard((worker, model))
            actions = made.not_loaded(worker, model)
        else:
            seats = {each for each in seats if each[0] != worker}
            suspect = model if second % 2 else None
            outgrew = what == "outgrew"
            actions = made.outgrew(worker) if outgrew else made.died(worker, suspect=suspect)
        for each in actions:
            if isinstance(each, LoadModel):
                seats.add((each.worker, each.model))
            elif isinstance(each, UnloadModel):
                seats.remove((each.worker, each.model))
            elif isinstance(each, EndWorker):
                seats = {seat for seat in seats if seat[0] != each.worker}
            elif isinstance(each, FailModel):
                models.remove(each.model)
        made.check_invariants()
        told = made.snapshot()["workers"]
        assert {(at, one) for at, row in told.items() for one in row["models"]} == seats
        assert {one for _, one in seats} == models
