"""`core/routing/rebalance.py`: queues are shared with a copy that comes up beside them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.rebalance import CopyLoad, GiveBack, Rebalancer, evenly, level


def loads(*outstanding: int, outstanding_max: int = 64) -> list[CopyLoad]:
    """Copies 1, 2, ... with that many requests."""
    return [CopyLoad(copy, count, outstanding_max) for copy, count in enumerate(outstanding, 1)]


def test_a_copy_that_comes_up_idle_gets_half_of_the_queue_beside_it() -> None:
    assert level(loads(10, 0)) == (GiveBack(1, 5),)


def test_nothing_moves_for_a_difference_of_one() -> None:
    assert level(loads(1, 0)) == ()
    assert level(loads(3, 2, 2)) == ()
    assert level(loads(2, 0)) == (GiveBack(1, 1),)


def test_a_copy_alone_and_none_at_all_keep_what_they_have() -> None:
    assert level(loads(10)) == ()
    assert level([]) == ()


def test_each_gives_what_it_has_above_its_share_and_who_has_most_keeps_the_odd_one() -> None:
    assert level(loads(7, 4, 0)) == (GiveBack(1, 3),)  # 4, 4, 3
    assert level(loads(9, 8, 0)) == (GiveBack(1, 3), GiveBack(2, 2))  # 6, 6, 5
    assert level(loads(0, 8, 8, 0)) == (GiveBack(2, 4), GiveBack(3, 4))


def test_no_more_is_asked_for_than_others_have_room_for() -> None:
    narrow = [CopyLoad(1, 12, 64), CopyLoad(2, 1, 2)]
    assert level(narrow) == (GiveBack(1, 1),)
    assert level([CopyLoad(1, 12, 64), CopyLoad(2, 2, 2)]) == ()


def test_of_what_waits_every_so_manieth_goes_the_oldest_first() -> None:
    """One queue shared by two is served in the order in which it came."""
    assert evenly("abcdefghij", 5) == ["a", "c", "e", "g", "i"]
    assert evenly("abcdefghi", 3) == ["a", "d", "g"]
    assert evenly("abc", 2) == ["a", "b"]
    assert evenly("abc", 0) == []
    assert evenly("abc", 9) == ["a", "b", "c"]


def test_while_copies_are_asked_nothing_else_is_decided() -> None:
    """Two copies come up one after the other: the second look waits for what the first brings, or
    the same requests would be asked for twice."""
    machine = Rebalancer()
    assert machine.changed(loads(9, 0)) == (GiveBack(1, 4),)
    assert machine.changed(loads(9, 0, 0)) == ()
    assert machine.snapshot() == {"asked": {1: 4}, "again": True}
    assert (machine.expects(1), machine.expects(2)) == (True, False)
    assert machine.answered(1, loads(5, 4, 0)) == (GiveBack(1, 2), GiveBack(2, 1))
    assert machine.answered(2, loads(5, 3, 1)) == ()
    assert machine.answered(1, loads(3, 3, 3)) == ()
    assert machine.snapshot() == {"asked": {}, "again": False}
    assert not machine.expects(1)


def test_a_copy_whose_requests_have_all_begun_is_not_asked_again() -> None:
    """It gives back none: the next look is at the next change."""
    machine = Rebalancer()
    assert machine.changed(loads(8, 0)) == (GiveBack(1, 4),)
    assert machine.answered(1, loads(8, 0)) == ()
    assert machine.answered(1, loads(8, 0)) == ()  # nobody asked
    assert machine.changed(loads(8, 0)) == (GiveBack(1, 4),)


def test_a_copy_that_is_lost_while_it_is_asked_holds_up_nobody() -> None:
    machine = Rebalancer()
    assert machine.changed(loads(8, 8, 0)) == (GiveBack(1, 2), GiveBack(2, 3))
    assert machine.gone([1], loads(0, 12, 4)) == ()  # the other one is still to answer
    assert machine.changed(loads(0, 12, 4)) == ()
    assert machine.answered(2, loads(0, 12, 4)) == (GiveBack(2, 6),)
    assert machine.gone([1], loads(0, 12, 4)) == ()  # it was not asked
    assert machine.changed(loads(0, 12, 4)) == ()
    assert machine.gone([2], loads(0, 0, 16)) == (GiveBack(3, 10),)


@given(
    counts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6),
    outstanding_max=st.integers(40, 60),
)
def test_levelling_moves_no_more_than_it_must_and_never_upside_down(
    counts: list[tuple[int, int]], outstanding_max: int
) -> None:
    before = [CopyLoad(copy, count, outstanding_max) for copy, (count, _) in enumerate(counts)]
    asked = {one.copy: one.requests for one in level(before)}
    total, share = sum(load.outstanding for load in before), 0
    if before:
        share = -(-total // len(before))
    assert all(count > 0 for count in asked.values())
    left = [load.outstanding - asked.get(load.copy, 0) for load in before]
    moved = sum(asked.values())
    assert sum(left) + moved == total
    assert all(count <= share for count in left)
    assert all(left[copy] >= total // len(before) for copy in asked)


@given(seed=st.integers(0, 2**32), copies=st.integers(2, 5))
def test_whatever_happens_no_request_is_lost_doubled_or_moved_once_it_has_begun(
    seed: int, copies: int
) -> None:
    """The machine with queues behind it: requests come, begin, end; copies come up and are lost,
    and answers are late."""
    rng = random.Random(seed)
    machine = Rebalancer()
    queues: dict[int, list[int]] = {0: []}  #: copy -> requests that wait
    begun: dict[int, list[int]] = {0: []}
    asked: list[GiveBack] = []  #: questions on their way
    accepted, ended = 0, []

    def seen() -> list[CopyLoad]:
        return [CopyLoad(copy, len(queues[copy]) + len(begun[copy]), 999) for copy in queues]

    def route(requests: list[int], away_from: int | None = None) -> None:
        for request in requests:
            others = [load for load in seen() if load.copy != away_from] or seen()
            queues[min(others, key=lambda load: load.outstanding).copy].append(request)

    for _ in range(120):
        move = rng.randrange(6)
        if move <= 1:
            route([accepted])
            accepted += 1
        elif move == 2:
            copy = rng.choice(sorted(queues))
            if begun[copy] and rng.random() < 0.5:
                ended.append(begun[copy].pop(0))
            elif queues[copy]:
                begun[copy].append(queues[copy].pop(0))
        elif move == 3 and len(queues) < copies:
            fresh = min(set(range(copies)) - set(queues))
            queues[fresh], begun[fresh] = [], []
            asked += machine.changed(seen())
        elif move == 4 and len(queues) > 1:
            lost = rng.choice(sorted(queues))
            back = [*begun.pop(lost), *queues.pop(lost)]
            asked = [one for one in asked if one.copy != lost]
            route(back)
            asked += machine.gone([lost], seen())
        elif asked:
            one = asked.pop(0)
            given_back = evenly(queues[one.copy], one.requests)
            assert len(given_back) <= one.requests
            queues[one.copy] = [each for each in queues[one.copy] if each not in given_back]
            route(given_back, away_from=one.copy)
            asked += machine.answered(one.copy, seen())
        held = [each for copy in queues for each in (*queues[copy], *begun[copy])]
        assert sorted([*held, *ended]) == list(range(accepted))
