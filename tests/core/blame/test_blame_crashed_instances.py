"""Who ended an instance that crashed: a model of a host, a record of a span. Times are seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.blame.crashed_instances import (
    ALONE,
    IN_EVERY_CRASH,
    BlamedModel,
    Crash,
    CrashCase,
    blamed_models,
    is_crash,
)

# Models of hosts: alone at work, or there every time.


def crash(at: float, *working: str) -> Crash:
    return Crash(at, frozenset(working))


def found(*crashes: Crash, now: float) -> list[BlamedModel]:
    return blamed_models(crashes, now=now)


def test_one_crash_accuses_nobody() -> None:
    """A bit may flip once; and who is left alone answers nobody."""
    assert found(crash(100.0, "a"), now=101.0) == []


def test_a_model_alone_at_work_at_two_crashes_is_left_alone_for_a_while() -> None:
    crashes = crash(100.0, "a"), crash(160.0, "a")
    assert found(*crashes, now=160.0) == [BlamedModel("a", 460.0, ALONE, 2)]
    assert found(*crashes, now=459.9) == [BlamedModel("a", 460.0, ALONE, 2)]
    assert found(*crashes, now=460.0) == []  # it gets another chance


def test_every_further_crash_doubles_the_time_until_crashes_are_forgotten() -> None:
    crashes = [crash(100.0, "a"), crash(160.0, "a"), crash(470.0, "a")]
    assert found(*crashes, now=500.0) == [BlamedModel("a", 470.0 + 600.0, ALONE, 3)]
    crashes += [crash(1100.0 + at, "a") for at in range(5)]
    assert found(*crashes, now=1200.0) == [BlamedModel("a", 1104.0 + 3600.0, ALONE, 8)]


def test_what_was_long_ago_says_nothing_of_now() -> None:
    assert found(crash(100.0, "a"), crash(3699.0, "a"), now=3699.0) != []
    assert found(crash(100.0, "a"), crash(3700.0, "a"), now=3700.0) == []


def test_the_one_that_was_at_work_every_time_is_it() -> None:
    crashes = crash(100.0, "a", "b"), crash(160.0, "a", "c")
    assert found(*crashes, now=160.0) == [BlamedModel("a", 460.0, IN_EVERY_CRASH, 2)]


def test_nobody_is_accused_where_no_model_was_there_every_time() -> None:
    assert found(crash(1.0, "a", "b"), crash(2.0, "b", "c"), crash(3.0, "c", "a"), now=3.0) == []


def test_nobody_is_accused_who_was_not_there_at_the_first_crash() -> None:
    crashes = crash(1.0, "z"), crash(2.0, "a", "b"), crash(3.0, "a", "c"), crash(4.0, "a", "d")
    assert found(*crashes, now=4.0) == []


def test_two_that_are_always_together_are_told_apart_by_more_crashes() -> None:
    """Of two busy models one is innocent: it is spared as long as crashes may say which."""
    together = [crash(float(at), "a", "b") for at in (1, 2, 3)]
    assert found(*together, now=3.0) == []
    assert found(*together, crash(4.0, "b", "c"), now=4.0) == [
        BlamedModel("b", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4)
    ]


def test_two_that_nothing_tells_apart_are_both_left_alone_in_the_end() -> None:
    """An instance that crashes for ever answers for no model at all."""
    together = [crash(float(at), "a", "b") for at in (1, 2, 3, 4)]
    assert found(*together, now=4.0) == [
        BlamedModel("a", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4),
        BlamedModel("b", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4),
    ]


def test_a_crash_that_a_blamed_model_explains_accuses_nobody_else() -> None:
    """`busy` is at work at every moment, so also at each crash of the other."""
    crashes = (
        crash(1.0, "bad"), crash(2.0, "bad"), crash(3.0, "bad", "busy"), crash(4.0, "bad", "busy"),
    )  # fmt: skip
    assert found(*crashes, now=4.0) == [BlamedModel("bad", 302.0, ALONE, 2)]


def test_two_that_crash_are_found_each_by_its_own_crashes() -> None:
    crashes = crash(1.0, "a"), crash(2.0, "b"), crash(3.0, "b"), crash(4.0, "a")
    assert found(*crashes, now=4.0) == [
        BlamedModel("a", 304.0, ALONE, 2),
        BlamedModel("b", 303.0, ALONE, 2),
    ]


def test_a_crash_of_an_instance_that_was_idle_accuses_no_model() -> None:
    assert found(crash(1.0), crash(2.0), crash(3.0), now=3.0) == []
    assert found(crash(1.0, "a"), crash(2.0), crash(3.0, "a"), now=3.0) == [
        BlamedModel("a", 303.0, ALONE, 2)
    ]


def test_crashes_may_come_in_any_order() -> None:
    assert found(crash(160.0, "a"), crash(100.0, "a"), now=160.0) == [
        BlamedModel("a", 460.0, ALONE, 2)
    ]


@pytest.mark.parametrize("code", [-11, -6, -7, -8, -4, 1, 134])
def test_signals_of_a_processors_faults_and_exits_of_libraries_are_crashes(code: int) -> None:
    assert is_crash(code)


@pytest.mark.parametrize("code", [0, -9, -15, -2, -1])
def test_a_good_end_and_signals_from_outside_are_none(code: int) -> None:
    """The kernel kills the largest process when memory runs out, whoever took it."""
    assert not is_crash(code)


# Records of a span: what is run after each death, until they are found.

STORY = "signal 8"


def test_of_a_span_that_was_not_noted_nobody_is_suspected() -> None:
    case = CrashCase().died(None, STORY)
    assert case == CrashCase(tries=1)
    assert case.parts() == ()  # the whole span again


def test_a_record_from_its_first_death_to_its_refusal() -> None:
    case = CrashCase().died(None, STORY)
    case = case.died((3, 7, 9), STORY)
    assert case.parts() == ((3,), (7,), (9,))
    case = case.died((7,), STORY)
    assert case.parts() == ((7,), (3,), (9,))  # first, so that chance hardly can hit it again
    case = case.died((7,), STORY)
    assert case.parts() == ((7,), (3,), (9,))  # and a third time
    case = case.died((7,), STORY)
    assert case == CrashCase(suspects=(3, 9), refused=((7, STORY),))
    assert case.parts() == ((3,), (9,))  # there may be more in the same batch
    assert case.passed() == CrashCase(refused=((7, STORY),))


def test_an_instance_that_was_killed_by_chance_costs_no_record() -> None:
    case = CrashCase().died(None, STORY).died((1, 2), STORY).died((2,), STORY)
    assert case.suspects == (2, 1)
    case = case.passed()
    assert (case.suspects, case.refused, case.deaths) == ((), (), 1)


def test_chance_that_hits_two_records_once_each_refuses_neither() -> None:
    case = CrashCase().died((1, 2, 3), STORY).died((2,), STORY).died((3,), STORY)
    assert (case.suspects, case.first_deaths, case.refused) == ((3, 2, 1), 1, ())


def test_one_that_was_alone_at_work_needs_as_many_deaths_as_any() -> None:
    case = CrashCase().died((5,), STORY)
    assert case.parts() == ((5,),)
    case = case.died((5,), STORY)
    assert (case.parts(), case.refused) == (((5,),), ())
    assert case.died((5,), STORY).refused == ((5, STORY),)


def whole_runs(*at_work: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Each ends an instance, and its suspects pass: (deaths, what they have in common) after it."""
    case, seen = CrashCase().died(None, STORY), []
    for records in at_work:
        case = case.died(records, STORY)
        seen.append((case.deaths, case.common))
        case = case.passed()
    return seen


def test_deaths_that_have_records_in_common_are_counted() -> None:
    """Two that end an instance together are at work at each of them."""
    assert whole_runs((1, 2, 3, 4), (2, 3, 4, 5), (1, 2, 3)) == [
        (1, (1, 2, 3, 4)),
        (2, (2, 3, 4)),
        (3, (2, 3)),
    ]


def test_deaths_that_have_nothing_in_common_are_chance() -> None:
    assert whole_runs((1, 2), (2, 3), (8, 9), (9,)) == [
        (1, (1, 2)),
        (2, (2,)),
        (1, (8, 9)),  # no record was there each time: the count begins anew
        (2, (9,)),
    ]


def test_to_end_before_any_record_was_at_work_is_something_in_common() -> None:
    """The reading of a span may be what ends instances."""
    assert whole_runs((), (), (4,), ()) == [(1, (-1,)), (2, (-1,)), (1, (4,)), (1, (-1,))]


def test_many_suspects_are_run_in_parts_and_a_death_leaves_one_of_them() -> None:
    records = tuple(range(1000, 1000 + 10 * 256))
    case = CrashCase().died(records, STORY)
    parts = case.parts()
    assert len(parts) == 256
    assert tuple(one for part in parts for one in part) == records
    assert case.died(parts[3], STORY).parts() == tuple((one,) for one in parts[3])


def test_of_at_most_256_suspects_each_is_run_by_itself() -> None:
    assert len(CrashCase(suspects=tuple(range(256))).parts()) == 256
    assert len(CrashCase(suspects=tuple(range(257))).parts()) == 129


def test_one_that_was_alone_stays_alone_among_many_who_are_run_in_parts() -> None:
    case = CrashCase(suspects=tuple(range(1000))).died((500,), STORY)
    assert case.parts()[:2] == ((500,), (0, 1, 2, 3))
    case = case.died((0, 1), STORY)  # chance, then: it was not what ended that one
    assert (case.suspects, case.first_deaths) == ((0, 1), 0)


@pytest.mark.parametrize("at_work", [None, ()])
def test_a_death_between_two_parts_names_nobody(at_work: tuple[int, ...] | None) -> None:
    case = CrashCase().died((1, 2), STORY)
    after = case.died(at_work, STORY)
    assert after == replace(case, tries=2)


def test_nobody_is_suspected_again_who_is_refused_or_was_not_suspected() -> None:
    case = CrashCase(suspects=(1, 2), refused=((7, STORY),))
    assert case.died((7, 9), STORY).suspects == (1, 2)
    assert CrashCase(refused=((7, STORY),)).died((7, 9), STORY).suspects == (9,)


@given(
    guilty=st.sets(st.integers(0, 59), min_size=1, max_size=5),
    batch=st.integers(1, 60),
)
def test_whoever_ends_instances_every_time_is_found_and_nobody_else(
    guilty: set[int], batch: int
) -> None:
    """The instance runs its records in batches, in order, and dies at the first guilty one."""
    case = CrashCase().died(None, STORY)
    for _ in range(10 * len(guilty) + 1):
        cleared = {record for record, _ in case.refused}
        whole = [one for one in range(60) if one not in cleared]
        parts = case.parts() or tuple(
            tuple(whole[at : at + batch]) for at in range(0, len(whole), batch)
        )
        dead = next((part for part in parts if guilty & set(part)), None)
        if dead is not None:
            case = case.died(dead, STORY)
            assert case.tries <= 7  # well below what a job puts up with
            assert case.deaths <= 2
        elif case.suspects:
            case = case.passed()
        else:
            break
    assert {record for record, _ in case.refused} == guilty
