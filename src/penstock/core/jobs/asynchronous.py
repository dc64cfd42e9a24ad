"""Which of an endpoint's asynchronous requests are sent now, and what happens to failed ones.

A request is accepted into a record that outlives every process. This machine holds only the first
few of the record (`window_max`), each with a number, in the order in which they were accepted. It
returns actions for them, and the driver reports the results. A request is in one of these states:

    waiting    it is sent when it is the oldest and there is room
    put off    its input or the place of its output did not answer, or the workers that had it
               died: it waits for its time, and others go on; then its number gives its turn
    sent       a copy has it, or soon will
    answered   its output is being written; it takes no copy's time, and no other is sent while
               many outputs are being written
    unwritten  the place of its output can't be written for now (a full disk, an unreachable store):
               its answer is kept and written again later. It counts as answered: where outputs
               can't be written, no more are computed than are kept
    ending     it failed, and the driver writes that down

It leaves with `ended`, once it is deleted from the record. A process that dies before that finds it
in the record and sends it again: whoever writes outputs makes sure that the result is the same.

An outcome is written again and again until it succeeds, with the pauses of `QueueSpec.retry`: the
request's time to live limits only sending, and no longer counts. Only `outcome_s_max` after that
time the outcome is given up, so that a place that never comes back does not fill the record for
good.

At most `concurrency_max` requests are sent at once for each ready copy. Without a copy nothing is
sent, and capacity is requested. A refusal for lack of capacity puts no single request off: the
whole endpoint pauses for a moment, longer each time. A request not sent by its time to live has
expired.

A request that lost its copy again and again, more often than chance makes likely, fails: it may be
the cause. One whose workers died is put off before it is tried again, alone: another cause (a lack
of memory, an operator) may have passed by then, and those behind it are not held up. `now` is wall
seconds: times to live must survive a restart.

Invariants (`check_invariants`): a request is in one state; waiting requests are older than those
not loaded yet, except for those that are put off.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

from penstock.core.blame.death_limits import ASYNC_LOSSES_MAX
from penstock.core.jobs.asynchronous_actions import (
    Accepted,
    Action,
    FailRequest,
    Fetch,
    FetchOverdue,
    QueueSpec,
    Send,
    Wake,
    Write,
)

#: The place of an output can't be written for now.
UNWRITTEN_CODE: Final = "output-unreachable"
#: Codes of refusals that concern the request's own input or output, not copies.
OWN_CODES: Final = frozenset({"input-unreachable", UNWRITTEN_CODE})
#: The dispatcher gave the request up after its instances were lost several times.
LOST_CODES: Final = frozenset({"copies-lost", "stream-broken"})
#: The dispatcher blames the request for the deaths of its workers. A waiting caller gets this
#: error; an asynchronous request has time for further tests.
DIED_CODE: Final = "model-worker-died"
#: Its deadline passed while a copy had it, or would have passed.
LATE_CODES: Final = frozenset({"deadline-passed", "deadline-cannot-be-met"})
#: Neither the request's nor a copy's fault: the endpoint may not be known yet.
ENDPOINT_CODES: Final = frozenset({"endpoint-not-found"})
NOT_NOW: Final = "not-now"

#: Windows of requests that may be put off: a store that does not answer must not fill the memory.
_PUT_OFF_WINDOWS_MAX: Final = 8
_WAITS: Final = ("waiting", "put-off")
_STATES: Final = ("waiting", "put-off", "sent", "answered", "unwritten", "ending")


class AsyncQueue:
    """The requests of one endpoint. Each method returns the actions to carry out now."""

    def __init__(self, spec: QueueSpec, *, backlog: int) -> None:
        """`backlog`: number of requests in the record. Call `on_timer` to begin."""
        self._spec = spec
        self._ready = 0  #: number of ready copies
        self._waiting: list[int] = []  #: heap of numbers
        self._put_off: list[tuple[float, int]] = []  #: heap of (due in wall s, number)
        self._unwritten: list[tuple[float, int]] = []  #: the same, for kept answers
        #: heap of (time to live, number); may contain requests that are gone
        self._expiries: list[tuple[float, int]] = []
        self._known: dict[int, Accepted] = {}
        self._state: dict[int, str] = {}
        self._tries: dict[int, tuple[int, int]] = {}  #: number -> (refusals of its own, losses)
        self._suspects: set[int] = set()  #: numbers of requests whose workers died
        self._computed: set[int] = set()  #: numbers of requests whose output could not be written
        self._sent = 0
        self._answered = 0  #: includes unwritten ones
        self._paused_until = 0.0
        self._pauses = 0  #: pauses of the endpoint in a row
        self._loaded_to = 0  #: the highest loaded number
        self._in_record = backlog
        self._unloaded = backlog > 0  #: the record may have more
        self._fetching = False
        self._news = False  #: something was accepted since the last `Fetch`
        self._looking = False  #: a `FetchOverdue` is under way
        self._look_at = 0.0  #: when to look for overdue requests again, wall s
        self._gone: set[int] = set()  #: numbers that ended since the oldest fetch under way began
        #: number -> reason, of requests that are put off and will not be sent
        self._doomed: dict[int, str] = {}
        self._woken = False
        self._over = ""  #: reason for which the endpoint takes no more requests; empty: it does

    @property
    def backlog(self) -> int:
        """Number of requests without an outcome."""
        return self._in_record

    # inputs

    def configure(self, spec: QueueSpec, *, ready: int, now: float) -> list[Action]:
        """Sets the number of ready copies and the endpoint's bounds."""
        if ready > self._ready:
            self._paused_until = 0.0  # requests refused for lack of capacity may pass now
            self._pauses = 0
        self._spec, self._ready = spec, ready
        return self._turn(now)

    def accepted(self, count: int, *, now: float) -> list[Action]:
        """So many more requests are in the record."""
        self._in_record += count
        self._unloaded = self._news = True
        return self._turn(now)

    def loaded(self, found: Iterable[Accepted], *, whole: bool, now: float) -> list[Action]:
        """The result of a `Fetch`. `whole`: the record had as many as the action asked for."""
        self._fetching = False
        self._unloaded = whole or self._news
        for one in found:
            self._loaded_to = max(self._loaded_to, one.number)
            self._take(one)
        self._forget_gone()
        return self._turn(now)

    def overdue(self, found: Iterable[Accepted], *, now: float) -> list[Action]:
        """The result of a `FetchOverdue`: requests beyond the window whose time is over."""
        self._looking = False
        self._look_at = now + self._spec.overdue_s
        for one in found:
            self._take(one)
        self._forget_gone()
        return self._turn(now)

    def answered(self, number: int, *, now: float) -> list[Action]:
        """A copy answered; the output must still be written."""
        assert self._state[number] == "sent"
        self._state[number] = "answered"
        self._sent -= 1
        self._answered += 1
        self._pauses = 0
        return self._turn(now)

    def ended(self, number: int, *, now: float) -> list[Action]:
        """Its outcome is written and the record no longer has it."""
        self._leave(number)
        del self._known[number], self._state[number]
        self._doomed.pop(number, None)
        self._tries.pop(number, None)
        self._suspects.discard(number)
        self._computed.discard(number)
        self._in_record -= 1
        if self._fetching or self._looking:
            self._gone.add(number)
        return self._turn(now)

    def unwritten(self, number: int, *, kept: bool, now: float) -> list[Action]:
        """The place of its output can't be written for now.

        Args:
            kept: its answer is kept and is written again; else it is computed again.
        """
        refusals, losses = self._tries.get(number, (0, 0))
        assert self._state[number] == "answered"
        self._tries[number] = (refusals + 1, losses)
        self._computed.add(number)
        due = now + self._wait_s(refusals, None)
        if now >= self._give_up_at(number):
            return [self._fail(number, "output-unwritten", now), *self._turn(now)]
        if kept:
            self._state[number] = "unwritten"
            heapq.heappush(self._unwritten, (due, number))
        else:
            self._put_off_until(due, number)
        return self._turn(now)

    def failed(
        self, number: int, *, family: str, code: str, retry_after_s: float | None, now: float
    ) -> list[Action]:
        """It was refused, or ended with an error; or its failure could not be written down.

        Args:
            family: of the error, as `errors.py` has it.
            retry_after_s: when the same may succeed; None = not known.
        """
        refusals, losses = self._tries.get(number, (0, 0))
        ending = self._state[number] == "ending"
        reason = "" if ending else self._final(family, code, losses)
        if reason:
            return [self._fail(number, reason, now), *self._turn(now)]
        if ending or code in OWN_CODES:
            self._tries[number] = (refusals + 1, losses)
            self._put_off_until(now + self._wait_s(refusals, retry_after_s), number)
            return self._turn(now)
        if code == DIED_CODE:
            self._tries[number] = (refusals, losses + 1)
            self._suspects.add(number)
            self._put_off_until(now + self._wait_s(losses, retry_after_s), number)
            return self._turn(now)
        self._tries[number] = (refusals, losses + (code in LOST_CODES))
        self._leave(number)
        self._queue(number)
        if now >= self._paused_until:  # otherwise it was sent before the pause began
            self._paused_until = now + self._wait_s(self._pauses, retry_after_s)
            self._pauses += 1
        return self._turn(now)

    def close(self, reason: str, *, now: float) -> list[Action]:
        """The endpoint is gone: waiting requests fail now, and sent ones when they come back."""
        self._over = reason
        return self._turn(now)

    def on_timer(self, *, now: float) -> list[Action]:
        """Call at the moment of `next_deadline`."""
        return self._turn(now)

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, in wall s; None: nothing to wait for."""
        while self._expiries and not self._may_expire(self._expiries[0][1]):
            heapq.heappop(self._expiries)
        moments = [each[0][0] for each in (self._expiries, self._put_off, self._unwritten) if each]
        if self._waiting and self._paused_until and self._has_room():
            moments.append(self._paused_until)
        if self._may_be_overdue():
            moments.append(self._look_at)
        return min(moments, default=None)

    # decisions

    def _turn(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._put_off and now >= self._put_off[0][0]:
            number = heapq.heappop(self._put_off)[1]
            self._queue(number)
            if number in self._doomed:
                actions.append(self._fail(number, self._doomed[number], now))
        while self._unwritten and now >= self._unwritten[0][0]:
            number = heapq.heappop(self._unwritten)[1]
            self._state[number] = "answered"
            actions.append(Write(number, "tried-again"))
        if self._over:
            waits = (one for one, state in self._state.items() if state in _WAITS)
            waiting = sorted(one for one in waits if one not in self._doomed)
            actions += [self._fail(number, self._over, now) for number in waiting]
        while self._expiries and now >= self._expiries[0][0]:
            number = heapq.heappop(self._expiries)[1]
            if self._may_expire(number):
                actions.append(self._fail(number, "expired", now))
        if now >= self._paused_until:
            self._paused_until = 0.0
            while self._waiting and self._has_room():
                actions.append(self._send(heapq.heappop(self._waiting)))
        room_max = self._spec.window_max
        room = room_max - len(self._waiting)
        if self._unloaded and not self._fetching and not self._is_full() and 2 * room >= room_max:
            self._fetching, self._news = True, False
            actions.append(Fetch(self._loaded_to, room))
        if self._may_be_overdue() and now >= self._look_at:
            self._looking = True
            actions.append(FetchOverdue(room_max))
        return [*actions, *self._wake()]

    def _send(self, number: int) -> Send:
        self._state[number] = "sent"
        self._sent += 1
        again = number in self._tries
        timeout_s = self._known[number].timeout_s
        reason = "tried-again" if again else "copy-free"
        return Send(number, timeout_s, reason, suspect=number in self._suspects)

    def _fail(self, number: int, reason: str, now: float) -> FailRequest:
        self._leave(number)
        self._state[number] = "ending"
        self._doomed[number] = reason
        return FailRequest(number, reason, last=now >= self._give_up_at(number))

    def _give_up_at(self, number: int) -> float:
        """When writing its outcome is given up; the same time after any restart."""
        return self._known[number].expires + self._spec.outcome_s_max

    def _final(self, family: str, code: str, losses: int) -> str:
        """The reason for which there is no retry; empty: there is. `losses`: before this one."""
        last = losses + 1 >= ASYNC_LOSSES_MAX
        if family == "model":
            return "model-failed" if last or code != DIED_CODE else ""
        if code in LATE_CODES:
            return "invocation-timeout"
        if family == "internal":
            return "internal"
        if family != NOT_NOW and code not in ENDPOINT_CODES:
            return "refused"
        return "copies-lost" if last and code in LOST_CODES else ""

    def _wait_s(self, times: int, retry_after_s: float | None) -> float:
        """s to wait after `times` earlier waits: at least `retry_after_s`, within the bound."""
        retry = self._spec.retry
        return min(max(retry.pause_s(times + 1), retry_after_s or 0.0), retry.pause_s_max)

    def _has_room(self) -> bool:
        at_once = self._spec.concurrency_max * self._ready
        return self._sent < at_once and self._answered < 2 * at_once

    def _wake(self) -> list[Action]:
        wanted = not self._ready and self._in_record > 0 and not self._over
        if wanted == self._woken:
            return []
        self._woken = wanted
        if wanted:
            return [Wake(self._in_record, "no-capacity")]
        return [Wake(0, "capacity-there" if self._ready else "nothing-waits")]

    def _take(self, one: Accepted) -> None:
        """Adds a request of the record, if it is new and did not end since the record was read."""
        if one.number not in self._known and one.number not in self._gone:
            self._known[one.number] = one
            self._queue(one.number)

    def _queue(self, number: int) -> None:
        self._state[number] = "waiting"
        heapq.heappush(self._waiting, number)
        heapq.heappush(self._expiries, (self._known[number].expires, number))

    def _put_off_until(self, due: float, number: int) -> None:
        self._leave(number)
        self._state[number] = "put-off"
        heapq.heappush(self._put_off, (due, number))

    def _may_expire(self, number: int) -> bool:
        """Whether it still waits for its first answer."""
        waits = self._state.get(number) in _WAITS
        return waits and number not in self._doomed and number not in self._computed

    def _is_full(self) -> bool:
        """Whether one endpoint has put off as many requests as memory may hold."""
        return len(self._put_off) >= _PUT_OFF_WINDOWS_MAX * self._spec.window_max

    def _may_be_overdue(self) -> bool:
        """Whether the record has requests that do not fit into the window."""
        under_way = self._looking or self._fetching
        return not under_way and not self._is_full() and self._in_record > len(self._known)

    def _forget_gone(self) -> None:
        if not (self._fetching or self._looking):
            self._gone.clear()

    def _leave(self, number: int) -> None:
        """Removes it from its state; the caller sets the next one."""
        state = self._state[number]
        if state == "sent":
            self._sent -= 1
        elif state == "answered":
            self._answered -= 1
        elif state == "waiting":
            self._waiting.remove(number)
            heapq.heapify(self._waiting)
        elif state == "put-off":
            self._put_off = [entry for entry in self._put_off if entry[1] != number]
            heapq.heapify(self._put_off)

    # views

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready, for people."""
        states = list(self._state.values())
        return {
            "backlog": self._in_record,
            "ready": self._ready,
            "paused_until": self._paused_until or None,
            **{state: states.count(state) for state in _STATES},
        }

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        states = list(self._state.values())
        assert set(self._state) == set(self._known)
        assert sorted(self._waiting) == sorted(
            number for number, state in self._state.items() if state == "waiting"
        )
        assert len(self._put_off) == states.count("put-off")
        assert self._sent == states.count("sent")
        assert self._answered == states.count("answered") + states.count("unwritten")
        assert len(self._unwritten) == states.count("unwritten")
        assert self._in_record >= len(self._known)
        marked = {*self._tries, *self._doomed, *self._suspects, *self._computed}
        assert marked <= set(self._known)
        assert not self._gone or self._fetching or self._looking
