"""The states of a target model: which may follow which, and that nobody else writes its fields."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from penstock.core import residency
from penstock.core.residency.model import KNOWN_MAX, NEXT, RoomState, State, Table, TargetModel
from penstock.core.residency.spec import Footprint

UNLOADED, QUEUED, PREPARING, PREPARED, LOADING, LOADED, DRAINING, LEAVING = State
#: The shortest way to each state.
WAYS = {
    UNLOADED: (),
    QUEUED: (QUEUED,),
    PREPARING: (QUEUED, PREPARING),
    PREPARED: (QUEUED, PREPARING, PREPARED),
    LOADING: (QUEUED, PREPARING, PREPARED, LOADING),
    LOADED: (QUEUED, PREPARING, PREPARED, LOADING, LOADED),
    DRAINING: (QUEUED, PREPARING, PREPARED, LOADING, LOADED, DRAINING),
    LEAVING: (QUEUED, PREPARING, PREPARED, LOADING, LOADED, LEAVING),
}


def moved(*states: State) -> tuple[Table, TargetModel]:
    table = Table()
    model = table.of("m")
    for state in states:
        table.move(model, state, now=0.0, reason=f"because-{state}")
    return table, model


@pytest.mark.parametrize("state", State)
def test_a_state_is_followed_by_those_of_the_table_and_by_no_other(state: State) -> None:
    for to in State:
        table, model = moved(*WAYS[state])
        if to in NEXT[state]:
            table.move(model, to, now=1.0)
            assert model.state is to
        else:
            with pytest.raises(ValueError, match=f"model m: {to} can't follow {state}"):
                table.move(model, to, now=1.0)
            assert model.state is state


@pytest.mark.parametrize("state", State)
def test_a_model_is_listed_where_its_state_belongs(state: State) -> None:
    table, _ = moved(*WAYS[state])
    assert ("m" in table.queue) == (state in (QUEUED, PREPARING, PREPARED))
    assert ("m" in table.loading) == (state is LOADING)
    assert ("m" in table.resident) == (state in (LOADED, DRAINING))
    assert table.is_loaded("m") == (state is LOADED)
    assert [model.name for model in table.in_state(state)] == ["m"]
    assert not table.is_loaded("other")


def test_why_it_was_loaded_drains_and_leaves_is_kept_until_that_is_over() -> None:
    table, model = moved(*WAYS[DRAINING])
    assert (model.load_reason, model.leaves_because) == ("because-loading", "because-draining")
    table.move(model, DRAINING, now=1.0, reason="outgrown")
    assert model.leaves_because == "outgrown"
    table.move(model, LOADED, now=1.0)
    assert (model.leaves_because, model.loads) == ("", 1)
    table.move(model, LEAVING, now=2.0, reason="dismissed")
    table.move(model, UNLOADED, now=3.0)
    assert model.leaves_because == "dismissed"


def test_what_was_found_out_of_its_room_is_for_one_try() -> None:
    for way in ((QUEUED,), (LOADING,), (UNLOADED,)):
        table, model = moved(*WAYS[PREPARED])
        model.has_room(RoomState.PROMISED)
        table.move(model, *way, now=1.0)
        assert model.room is RoomState.UNKNOWN
    table, model = moved(*WAYS[QUEUED])
    model.has_room(RoomState.BLOCKED)
    table.move(model, PREPARING, now=1.0)
    assert model.room is RoomState.BLOCKED


def test_times_are_those_of_the_moves() -> None:
    table, model = moved(*WAYS[QUEUED])
    for state, now in ((PREPARING, 1.0), (PREPARED, 2.0), (LOADING, 3.0), (LOADED, 5.0)):
        table.move(model, state, now=now)
        assert model.phase_at == min(now, 3.0) - (state is PREPARED)
    assert model.loaded_at == 5.0


def test_those_passed_over_are_counted_anew_when_it_is_queued_anew() -> None:
    table, model = moved(*WAYS[PREPARED])
    model.passed()
    model.hold(9.0)
    table.move(model, QUEUED, now=1.0)
    assert (model.overtaken, model.held_until) == (1, 9.0)
    model.hold(None)
    assert (model.overtaken, model.held_until) == (0, None)
    model.passed()
    table.move(model, UNLOADED, now=1.0)
    table.move(model, QUEUED, now=2.0)
    assert (model.overtaken, model.held_until) == (0, None)


def test_of_requests_that_were_parked_each_begins_once_without_being_counted_again() -> None:
    table, model = moved(*WAYS[LOADED])
    assert not model.begin()
    model.admit(2)
    model.admit(1)
    assert [model.begin() for _ in range(4)] == [True, True, True, False]
    model.admit(2)
    table.move(model, UNLOADED, now=1.0)
    assert (model.busy, model.begin()) == (False, False)


@pytest.mark.parametrize(
    ("state", "given_up_at"),
    [(UNLOADED, 7.0), (QUEUED, 7.0), (PREPARING, 8.0), (PREPARED, 8.0), (LOADING, 10.0)],
)
def test_a_deadline_can_not_be_met_any_more_when_what_is_left_to_do_takes_longer(
    state: State, given_up_at: float
) -> None:
    _, model = moved(*WAYS[state])
    model.learn_prepare(1.0)
    assert model.given_up_at(2.0) == float("inf")
    model.park(10.0)
    model.park(None)
    assert model.given_up_at(2.0) == given_up_at
    assert model.unpark_late(given_up_at, 2.0) == [10.0]
    assert model.parked == [float("inf")]


@pytest.mark.parametrize(
    ("state", "ready_at"),
    [
        (UNLOADED, 103.0), (QUEUED, 103.0), (PREPARING, 102.5), (PREPARED, 102.0),
        (LOADING, 101.5),
    ],
)  # fmt: skip
def test_it_is_ready_when_what_is_left_to_do_is_done(state: State, ready_at: float) -> None:
    """1 s to prepare, 2 s to load; what is under way began half a second ago."""
    table = Table()
    model = table.of("m")
    for each in WAYS[state]:
        table.move(model, each, now=99.5)
    model.learn_prepare(1.0)
    assert model.ready_at(100.0, 2.0) == ready_at
    late = {PREPARING: 502.0, LOADING: 500.0}.get(state)
    assert late is None or model.ready_at(500.0, 2.0) == late


def test_a_request_that_is_gone_is_the_one_with_its_deadline_else_the_first() -> None:
    model = TargetModel("m")
    for deadline in (5.0, 3.0, None, 7.0):
        model.park(deadline)
    model.unpark(5.0)
    assert model.parked == [3.0, 7.0, float("inf")]
    model.unpark(None)
    assert model.parked == [3.0, 7.0]
    model.unpark(4.0)
    assert model.parked == [7.0]
    model.unpark(8.0)
    assert model.parked == []


def test_times_are_learned_by_halves() -> None:
    model = TargetModel("m")
    assert model.reload_s == 1e-3
    model.learn_load(4.0)
    model.learn_load(2.0)
    model.learn_prepare(1.0)
    model.learn_prepare(2.0)
    assert (model.load_s, model.prepare_s, model.reload_s) == (3.0, 1.5, 4.5)


def test_one_slow_load_counts_as_four_times_the_expected_and_the_fourth_in_a_row_is_believed() -> (
    None
):
    model = TargetModel("m")
    assert model.learn_load(2.0) == 2.0
    assert model.learn_load(100.0) == 8.0
    assert model.load_s == 5.0
    seen = [model.learn_load(900.0) for _ in range(3)]
    assert (seen, model.load_s) == ([20.0, 50.0, 100.0], 100.0)


def test_a_slow_fetch_is_no_slow_load() -> None:
    """Fetches and loads have counts of their own."""
    model = TargetModel("m")
    model.learn_load(1.0)
    model.learn_prepare(1.0)
    for _ in range(3):
        model.learn_prepare(1000.0)
    model.learn_load(1000.0)
    assert (model.load_s, model.prepare_s) == (2.5, 15.625)
    model.learn_prepare(1000.0)
    assert (model.load_s, model.prepare_s) == (2.5, 1000.0)


def test_evictions_and_dismissals_are_remembered() -> None:
    model = TargetModel("m")
    model.evicted()
    model.evicted()
    assert (model.evictions, model.dismissed) == (2, False)
    model.wish()
    model.dismiss()
    assert (model.wished, model.dismissed) == (False, True)
    model.undismiss()
    assert not model.dismissed


@pytest.mark.parametrize(
    ("measured", "sized", "need"),
    [(False, False, 5), (True, False, 7), (False, True, 7), (True, True, 7)],
)
def test_what_it_took_here_is_believed_over_an_estimate_and_nothing_over_what_is_known(
    measured: bool, sized: bool, need: int
) -> None:
    model = TargetModel("m")
    taken, estimated = Footprint(host_bytes=5), Footprint(host_bytes=7)
    assert model.prepared(estimated, artifact="one", measured=measured, sized=sized) == estimated
    assert (model.need_measured, model.need_known) == (measured, measured or sized)
    model.measure(taken)
    again = model.prepared(estimated, artifact="one", measured=measured, sized=sized)
    assert again == Footprint(host_bytes=need)
    assert (model.need_measured, model.need_known) == (True, True)
    model.replace()
    assert (model.size, model.need_measured, model.need_known) == (None, False, False)


def test_those_that_were_not_called_for_longest_are_forgotten_an_eighth_at_once() -> None:
    table = Table()
    names = [f"m-{at:04}" for at in range(KNOWN_MAX)]
    for name in names:
        table.of(name)
    for at, name in enumerate(reversed(names)):
        table.of(name).called(float(at))
    for name in ("m-4000", "m-4001"):
        table.models[name].called_at = None
    table.models["m-4095"].pin(True)
    assert table.of("m-0000") is table.models["m-0000"]
    assert len(table.models) == KNOWN_MAX
    table.of("new")
    assert len(table.models) == KNOWN_MAX - KNOWN_MAX // 8 + 1
    kept = sorted(table.models)
    assert kept == [*names[: KNOWN_MAX - KNOWN_MAX // 8 - 1], "m-4095", "new"]


def test_no_other_file_writes_a_field_of_a_model() -> None:
    folder = Path(residency.__file__).parent
    fields = set(TargetModel.__slots__)
    wrote = [
        f"{file.name}:{target.lineno}: {ast.unparse(target)}"
        for file in sorted(folder.glob("*.py"))
        if file.name != "model.py"
        for node in ast.walk(ast.parse(file.read_text()))
        for target in _targets(node)
        if isinstance(target, ast.Attribute)
        and target.attr in fields
        and ast.unparse(target.value) != "self"
    ]
    assert wrote == []


def _targets(node: ast.AST) -> list[ast.expr]:
    """What is assigned to, those of `a, b = ...` each for itself."""
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    return [part for one in found for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
