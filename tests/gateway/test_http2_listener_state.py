"""What HTTP/2 connections share: how many there may be, and their half of the budget for bodies."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.gateway import run

from penstock.clock import ManualClock
from penstock.core.request.body_budget import SLOW_S, BodyBudget
from penstock.gateway.http.listener_state import TURNED_AWAY_MAX
from penstock.gateway.http2.listener_state import Http2ListenerState
from penstock.wire.http2.spec import Http2Spec

pytestmark = pytest.mark.loop(by=run)

CONNECTIONS_MAX = 3
BYTES_MAX = 100


class OneConnection:
    """Notes what is done with it."""

    unread_bytes = 0

    def __init__(self) -> None:
        self.aborted = False
        self.flushed = 0

    def check(self, now: float) -> None: ...
    def drain(self) -> None: ...
    def stop(self) -> None: ...

    def flush(self) -> None:
        self.flushed += 1

    def abort(self) -> None:
        self.aborted = True


class Sender:
    """An unfinished body of a client."""

    def __init__(self, peer: str, state: Http2ListenerState) -> None:
        self.peer = peer
        self.refused = False
        self._state = state
        self._size = 0

    def take(self, size: int) -> bool:
        """`size` more bytes have come."""
        taken = self._state.take(self, size)
        if taken:
            self._size += size
            self._state.unfinished(self, self._size)
        return taken

    def refuse_for_room(self) -> None:
        self.refused = True
        self._state.finished(self, self.peer)
        self._state.give(self._size)


def state_with(bodies: BodyBudget) -> tuple[Http2ListenerState, ManualClock]:
    clock = ManualClock()
    spec = Http2Spec()
    state = Http2ListenerState(
        clock, bodies, spec=spec, connections_max=CONNECTIONS_MAX, head_timeout_s=5.0
    )
    return state, clock


class PendingHandshakes:
    """Stands for a `TlsAcceptor` with so many handshakes under way."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


def test_connections_beyond_the_bound_are_turned_away_and_then_cut() -> None:
    """The first so many get a GOAWAY; where even those are too many, there is no time for it."""
    state, _ = state_with(BodyBudget(BYTES_MAX))
    accepted = [OneConnection() for _ in range(CONNECTIONS_MAX)]
    assert all(state.admit(one) for one in accepted)
    assert state.room() == TURNED_AWAY_MAX
    turned_away = [OneConnection() for _ in range(TURNED_AWAY_MAX)]
    assert not any(state.admit(one) for one in turned_away)
    assert not any(one.aborted for one in accepted + turned_away)
    assert state.room() == 0
    late = OneConnection()
    assert not state.admit(late)
    assert late.aborted
    for one in (accepted[0], late, *turned_away):
        state.forget(one)
    assert state.admit(OneConnection())


def test_handshakes_count_as_connections() -> None:
    state, _ = state_with(BodyBudget(BYTES_MAX))
    state.tls = PendingHandshakes(2)  # type: ignore[assignment]
    assert state.admit(OneConnection())
    assert state.room() == CONNECTIONS_MAX + TURNED_AWAY_MAX - 1 - 2


def test_a_server_that_drains_admits_nobody_and_says_when_the_last_one_has_gone() -> None:
    state, _ = state_with(BodyBudget(BYTES_MAX))
    first, second = OneConnection(), OneConnection()
    assert state.admit(first)
    assert state.admit(second)
    state.forget(first)
    state.forget(second)
    assert not state.empty.is_set()
    state.admit(first)
    state.draining = True
    late = OneConnection()
    assert not state.admit(late)
    state.forget(late)
    assert not state.empty.is_set()
    state.forget(first)
    assert state.empty.is_set()


async def test_connections_are_flushed_once_at_the_end_of_a_turn() -> None:
    state, _ = state_with(BodyBudget(BYTES_MAX))
    first, second = OneConnection(), OneConnection()
    state.flush_soon(first)
    state.flush_soon(second)
    assert (first.flushed, second.flushed) == (0, 0)
    await asyncio.sleep(0)
    assert (first.flushed, second.flushed) == (1, 1)
    state.flush_soon(second)
    await asyncio.sleep(0)
    assert (first.flushed, second.flushed) == (1, 2)


def test_bodies_take_half_of_the_budget_at_most() -> None:
    bodies = BodyBudget(BYTES_MAX)
    state, _ = state_with(bodies)
    one = Sender("a", state)
    assert one.take(50)
    assert not Sender("a", state).take(1)
    assert bodies.bytes_taken == 50
    state.give(50)
    assert bodies.bytes_taken == 0
    assert Sender("a", state).take(50)


def test_bodies_of_other_doors_count_as_well() -> None:
    bodies = BodyBudget(BYTES_MAX)
    state, _ = state_with(bodies)
    assert bodies.take(70)
    assert not Sender("a", state).take(31)
    assert Sender("a", state).take(30)


def test_who_holds_most_makes_room_and_no_more_than_is_missing() -> None:
    """Three bodies of one client, of 15 bytes each; another one wants 10, and then 15 more."""
    state, _ = state_with(BodyBudget(BYTES_MAX))
    many = [Sender("a", state) for _ in range(3)]
    assert all(each.take(15) for each in many)
    other = Sender("b", state)
    assert other.take(5)  # it fits: nobody is cut for it
    assert [each.refused for each in many] == [False, False, False]
    assert other.take(15)
    assert [each.refused for each in many] == [True, False, False]
    assert other.take(1)
    assert [each.refused for each in many] == [True, True, False]


@pytest.mark.parametrize(
    ("elsewhere", "wanted", "refused"),
    [(0, 14, 0), (0, 15, 1), (0, 26, 1), (0, 27, 2), (60, 4, 0), (60, 16, 1), (60, 17, 2)],
)
def test_as_many_bodies_are_cut_as_the_missing_bytes_take(
    elsewhere: int, wanted: int, refused: int
) -> None:
    """Three bodies of 12 bytes. This door has 14 left of its half, and all have 64, or 4 where
    other doors hold much."""
    bodies = BodyBudget(BYTES_MAX)
    state, _ = state_with(bodies)
    many = [Sender("a", state) for _ in range(3)]
    assert all(each.take(12) for each in many)
    assert bodies.take(elsewhere)
    assert Sender("b", state).take(wanted)
    assert [each.refused for each in many] == [True] * refused + [False] * (3 - refused)


def test_an_old_body_makes_room_for_others_of_its_own_client() -> None:
    state, clock = state_with(BodyBudget(BYTES_MAX))
    old, young = Sender("a", state), Sender("a", state)
    assert old.take(30)
    assert not young.take(30)
    assert not old.refused
    clock.advance(SLOW_S)
    assert young.take(30)
    assert old.refused


def test_a_body_that_is_finished_is_not_cut() -> None:
    state, clock = state_with(BodyBudget(BYTES_MAX))
    old = Sender("a", state)
    assert old.take(30)
    state.finished(old, "a")
    state.finished(old, "a")
    clock.advance(SLOW_S)
    assert not Sender("b", state).take(30)
    assert not old.refused
