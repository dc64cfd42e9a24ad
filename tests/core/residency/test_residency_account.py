"""Memory: what is taken, what is still to come, what nobody is charged with."""

from __future__ import annotations

import pytest
from tests.kit.core_residency import bytes_

from penstock.core.residency.account import Account, fits
from penstock.core.residency.spec import Footprint


def account(host: int = 100, used: int = 0, models_max: int = 0) -> Account:
    return Account(bytes_(host), used=bytes_(used), models_max=models_max)


def test_what_a_load_took_counts_while_another_runs() -> None:
    books = account()
    books.load_begins("a", bytes_(40))
    books.load_begins("b", bytes_(30))
    assert books.committed == bytes_(70)
    books.load_ends("a", taken=bytes_(25), used=bytes_(27))
    assert books.committed == bytes_(55), "25 are taken, 30 to come; 2 of them are seen already"
    books.load_ends("b", taken=bytes_(30), used=bytes_(57))
    assert books.committed == bytes_(57)
    assert books.shared == bytes_(2)


def test_growth_while_another_loads_is_the_model_s_and_not_the_load_s() -> None:
    books = account()
    books.load_begins("a", bytes_(20))
    books.load_ends("a", taken=bytes_(20), used=bytes_(20))
    books.load_begins("b", bytes_(30))
    books.grown("a", bytes_(35))
    books.look(bytes_(40))
    assert books.committed == bytes_(65)
    assert books.charge("a") == bytes_(35)


def test_a_model_that_grows_while_it_leaves_gives_all_of_it_back() -> None:
    books = account()
    books.load_begins("a", bytes_(20))
    books.load_ends("a", taken=bytes_(20), used=bytes_(20))
    books.leaves("a")
    books.grown("a", bytes_(50))
    books.look(bytes_(50))
    assert books.short_of(bytes_(100)) == bytes_(0)
    books.check_invariants()
    books.left("a", used=bytes_(0))
    assert books.committed == bytes_(0)


def test_what_leaves_is_there_until_it_is_gone() -> None:
    books = account()
    books.load_begins("a", bytes_(80))
    books.load_ends("a", taken=bytes_(80), used=bytes_(80))
    books.leaves("a")
    assert not books.has_room(bytes_(30))
    assert books.short_of(bytes_(30)) == bytes_(0)
    books.left("a", used=bytes_(0))
    assert books.has_room(bytes_(100))
    assert not books.has_room(bytes_(101))


def test_a_load_that_failed_took_nothing() -> None:
    books = account(used=5)
    books.load_begins("a", bytes_(80))
    books.load_ends("a", taken=None, used=bytes_(5))
    assert books.committed == bytes_(5)
    assert books.charged() == set()


def test_the_budget_can_hold_what_fits_beside_the_bare_process() -> None:
    books = account(used=5)
    assert books.can_ever_hold(bytes_(95))
    assert not books.can_ever_hold(bytes_(96))


def test_places_are_counted_with_those_that_load_and_those_that_leave() -> None:
    books = account(models_max=2)
    books.load_begins("a", bytes_(1))
    books.load_ends("a", taken=bytes_(1), used=bytes_(1))
    books.load_begins("b", bytes_(1))
    assert books.models == 2
    assert not books.has_room(bytes_(1))
    assert books.models_over(1) == 1
    books.leaves("a")
    assert books.models_over(1) == 0
    assert books.models_over(2) == 1
    assert not books.has_room(bytes_(1))
    assert account().models_over(1000) == 0


def test_books_that_contradict_themselves_are_found() -> None:
    books = account()
    books.load_begins("a", bytes_(1))
    books._needed = bytes_(2)
    with pytest.raises(AssertionError, match="not that of its parts"):
        books.check_invariants()


# loaded ahead of its calls, only into memory that is free

FREE = Footprint(host_bytes=100, accelerator_bytes=10)


def test_what_a_model_took_before_decides_and_not_the_others() -> None:
    large = [Footprint(host_bytes=200)]
    assert fits(FREE, Footprint(host_bytes=100, accelerator_bytes=10), large)
    assert not fits(FREE, Footprint(host_bytes=101), [])
    assert not fits(FREE, Footprint(accelerator_bytes=11), [])


def test_one_that_was_never_loaded_is_taken_to_be_as_large_as_the_largest_of_the_others() -> None:
    others = [Footprint(host_bytes=100), Footprint(host_bytes=1, accelerator_bytes=10)]
    assert fits(FREE, None, others)
    assert not fits(FREE, None, [*others, Footprint(host_bytes=101)])
    assert not fits(FREE, None, [*others, Footprint(accelerator_bytes=11)])


def test_the_first_one_is_loaded_unless_the_budget_is_overdrawn() -> None:
    assert fits(FREE, None, [])
    assert fits(Footprint(), None, [])
    assert not fits(Footprint(host_bytes=-1), None, [])
