"""What is charged to models that were loaded beside one another."""

from __future__ import annotations

from penstock.core.models.load_group import LoadGroup


def group(before: int = 1000) -> LoadGroup:
    made = LoadGroup()
    assert made.is_quiet
    assert not made.is_open
    made.opens(before)
    assert made.is_open
    return made


def test_a_load_alone_took_what_came_on_top_whatever_was_expected() -> None:
    alone = group()
    alone.begins()
    assert not alone.is_quiet
    alone.loaded("a", 10)
    assert alone.is_quiet
    assert alone.was_one
    assert alone.closes(1700) == {"a": 700}


def test_what_came_on_top_of_several_is_divided_as_was_expected() -> None:
    two = group()
    two.begins()
    two.begins()
    two.loaded("a", 100)
    assert not two.is_quiet
    two.loaded("b", 300)
    assert not two.was_one
    assert two.closes(1480) == {"a": 120, "b": 360}


def test_a_group_lasts_as_long_as_loads_overlap() -> None:
    chain = group()
    chain.begins()
    chain.begins()
    chain.loaded("a", 100)
    chain.begins()
    chain.loaded("b", 100)
    assert not chain.is_quiet
    chain.loaded("c", 100)
    assert chain.closes(1300) == {"a": 100, "b": 100, "c": 100}


def test_what_models_had_that_were_ended_meanwhile_is_not_what_the_others_lack() -> None:
    both = group()
    both.begins()
    both.begins()
    both.ended("old", 200)
    both.loaded("a", 100)
    assert both.closes(920) == {"a": 120}


def test_one_that_was_loaded_and_ended_in_one_group_leaves_nothing() -> None:
    both = group()
    both.begins()
    both.begins()
    both.loaded("a", 100)
    both.begins()
    both.ended("a", 100)
    both.loaded("b", 100)
    assert both.closes(1110) == {"b": 110}


def test_a_load_that_failed_beside_others_takes_no_share() -> None:
    both = group()
    both.begins()
    both.begins()
    both.failed()
    both.loaded("a", 100)
    assert both.closes(1120) == {"a": 120}


def test_no_share_is_less_than_half_of_what_was_expected_nor_more_than_a_quarter_above() -> None:
    for used, share in ((900, 50), (5000, 125)):
        both = group()
        both.begins()
        both.begins()
        both.loaded("a", 100)
        both.loaded("b", 100)
        assert both.closes(used) == {"a": share, "b": share}


def test_a_load_alone_that_seems_to_have_given_memory_back_took_none() -> None:
    alone = group()
    alone.begins()
    alone.loaded("a", 100)
    assert alone.closes(900) == {"a": 0}


def test_an_end_alone_tells_of_nobody_else() -> None:
    alone = group()
    alone.begins()
    alone.ended("a", 100)
    assert alone.closes(900) == {}


def test_a_new_group_knows_nothing_of_the_last() -> None:
    again = group()
    again.begins()
    again.begins()
    again.loaded("a", 100)
    again.ended("old", 50)
    again.closes(1050)
    again.opens(1050)
    again.begins()
    again.loaded("b", 10)
    assert again.closes(1090) == {"b": 40}


def test_one_that_begins_before_the_group_was_closed_belongs_to_it() -> None:
    """Both are over when it is asked what they took: neither is taken for one that was alone."""
    chain = group()
    chain.begins()
    chain.loaded("a", 100)
    assert chain.is_quiet
    assert chain.is_open
    chain.begins()
    chain.ended("old", 50)
    assert not chain.was_one
    assert chain.closes(1070) == {"a": 120}
    assert not chain.is_open
