"""What the router knows of one copy: room beside others, a probe, answers, target models."""

from __future__ import annotations

import pytest

from penstock.core.routing.copies import CopyState, ModelsObserved


def copy(limit: int = 4, **more: str) -> CopyState:
    return CopyState(7, "i-1", "v", limit, **more)


def test_a_new_copy_is_healthy_idle_and_unheard() -> None:
    made = copy()
    assert (made.pool, copy(component="c").pool) == ("v", "c")
    assert (made.healthy, made.paused, made.draining, made.probed) == (True, False, False, False)
    assert (made.outstanding, made.others, made.answers, made.missed) == (0, 0, 0, 0)
    assert (made.took_s_max, made.busy_since, made.cost, made.cache_bytes) == (0.0, 0.0, 1.0, 0)
    assert (made.picked, made.ejected, made.models) == (0, "", None)


@pytest.mark.parametrize(
    ("limit", "others", "room", "probed"),
    [(4, 0, 4, 1), (4, 3, 1, 1), (4, 4, 0, 0), (4, 9, 0, 0), (0, 0, 0, 0), (8, 1, 7, 1)],
)
def test_a_copy_takes_what_others_leave_and_one_while_it_is_probed(
    limit: int, others: int, room: int, probed: int
) -> None:
    made = copy()
    made.bound(limit=limit)
    made.bound(others=others)  # each keeps what was said of the other
    assert (made.limit, made.others, made.room, made.outstanding_max) == (limit, others, room, room)
    made.judge(probed=True)
    assert (made.room, made.outstanding_max, made.probed, made.ejected) == (room, probed, True, "")
    made.judge("no-answers")
    assert (made.outstanding_max, made.probed, made.ejected) == (room, False, "no-answers")
    made.judge()
    assert (made.outstanding_max, made.ejected) == (room, "")


def test_an_answer_ends_what_was_missed_and_the_slowest_is_kept() -> None:
    made = copy()
    made.missed = 3
    made.heard(0.5)
    assert (made.answers, made.missed, made.took_s_max) == (1, 0, 0.5)
    made.heard(0.2)
    made.heard(2.0)
    made.heard()  # a piece of a stream says nothing of time
    assert (made.answers, made.missed, made.took_s_max) == (4, 0, 2.0)
    silent = copy()
    silent.heard()
    assert silent.took_s_max == 0.0


def test_a_hosts_report_changes_what_is_loaded_and_answers_what_was_sent() -> None:
    models = ModelsObserved()
    assert (models.loaded, models.free_bytes, models.sent, models.asked) == (set(), 0, {}, {})
    models.sent = {"a": 1.0, "b": 2.0, "c": 3.0}
    models.told(loaded=["a"], gone=["b"], free_bytes=50)
    assert (models.loaded, models.sent, models.free_bytes) == ({"a"}, {"c": 3.0}, 50)
    models.told(loaded=["b", "c"], gone=["a", "never-sent"], free_bytes=10)
    assert (models.loaded, models.sent, models.free_bytes) == ({"b", "c"}, {}, 10)


def test_a_copy_is_shown_with_what_is_wrong_with_it() -> None:
    made = copy(component="c")
    assert repr(made) == "<copy 7 of v/c: 0 outstanding>"
    made.healthy, made.paused, made.draining, made.ejected = False, True, True, "slow"
    assert repr(made) == "<copy 7 of v/c: 0 outstanding unhealthy paused slow draining>"
    assert repr(copy()) == "<copy 7 of v: 0 outstanding>"
