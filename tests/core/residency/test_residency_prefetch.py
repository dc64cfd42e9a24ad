"""Which unloaded models are about to be called."""

from __future__ import annotations

from math import inf

from penstock.core.residency.history import Population
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.prefetch import Foresight


def regular(name: str, period_s: float = 600.0, load_s: float = 2.0) -> TargetModel:
    """Called at 0 and each period, three times more."""
    model = TargetModel(name)
    model.load_s = load_s
    for at in range(4):
        model.history.called(at * period_s, Population())
    return model


def test_the_next_regular_call_is_foreseen_two_loads_and_a_share_of_the_gap_before() -> None:
    foresight, model = Foresight(), regular("a")
    foresight.unloaded(model, now=1900.0)
    assert foresight.next_at() == 2400.0 - 4.0 - 5.0
    foresight, model = Foresight(), regular("a", period_s=32.0)
    foresight.unloaded(model, now=97.0)
    assert foresight.next_at() == 128.0 - 4.0 - 2.0


def test_what_is_due_is_told_once_in_its_order() -> None:
    foresight = Foresight()
    late, early = regular("a", 600.0), regular("b", 599.0)
    foresight.unloaded(late, now=1900.0)
    foresight.unloaded(early, now=1900.0)
    assert foresight.due(now=2386.9) == []
    assert foresight.next_at() == 2387.0
    assert foresight.due(now=2400.0) == [early, late]
    assert foresight.due(now=2400.0) == []
    assert foresight.next_at() == inf


def test_irregular_models_are_not_foreseen() -> None:
    foresight, model = Foresight(), TargetModel("a")
    foresight.unloaded(model, now=0.0)
    assert foresight.next_at() == inf


def test_a_model_that_is_loaded_meanwhile_is_not_foreseen_any_more() -> None:
    foresight, model = Foresight(), regular("a")
    foresight.unloaded(model, now=1900.0)
    foresight.loaded(model)
    assert foresight.next_at() == inf
    foresight.unloaded(model, now=1950.0)
    assert foresight.next_at() == 2391.0


def test_a_model_on_its_way_is_not_due() -> None:
    foresight, model = Foresight(), regular("a")
    foresight.unloaded(model, now=1900.0)
    model.state = State.LOADING
    assert foresight.due(now=2391.0) == []


def test_a_dismissed_model_is_neither_foreseen_nor_due() -> None:
    foresight, model = Foresight(), regular("a")
    foresight.unloaded(model, now=1900.0)
    model.dismissed = True
    assert foresight.due(now=2391.0) == []
    foresight.unloaded(model, now=1900.0)
    assert foresight.next_at() == inf


def test_two_guesses_in_vain_end_guessing_and_a_call_begins_it_again() -> None:
    foresight, model = Foresight(), regular("a")

    def guessed(*, called: bool) -> bool:
        model.prefetched = True
        foresight.loaded(model)
        model.prefetched = False
        model.hits += called
        foresight.unloaded(model, now=1900.0)
        return foresight.next_at() < inf

    assert guessed(called=False)
    assert not guessed(called=False)
    assert model.misguesses == 2
    assert guessed(called=True)
    assert model.misguesses == 0


def test_a_guess_that_callers_came_for_before_it_was_loaded_is_none_in_vain() -> None:
    foresight, model = Foresight(), regular("a")
    model.prefetched = True
    model.parked = [inf]
    foresight.loaded(model)
    model.parked = []
    foresight.unloaded(model, now=1900.0)
    assert model.misguesses == 0


def test_what_is_remembered_is_bounded_by_the_models_foreseen() -> None:
    foresight, model = Foresight(), regular("a")
    for at in range(1000):
        foresight.unloaded(model, now=1800.5 + at / 1000)
        model.load_s = 2.0 + at / 1000
    assert len(foresight._heap) <= 67
    assert len(foresight.due(now=2400.0)) == 1
