"""Copies that answer nothing while others do: left out, their requests sent elsewhere, let back."""

from __future__ import annotations

from typing import Any

from tests.kit.gateway import Bench, Recording

from penstock.core.routing import Routed
from penstock.gateway.dispatch.invocation import Invocation


def on(bench: Bench, copy: int) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


def answers(bench: Bench, *copies: int) -> None:
    """These answer all that they have, each with another sign of life of its instance."""
    for copy in copies:
        link = bench.link(copy)
        while link.sent:
            link.heard += 1
            invocation = link.sent[0][0]
            link.reply()
            bench.dispatcher.written(invocation)


def go_on(bench: Bench, seconds: float, *answering: int) -> list[Recording]:
    """Each quarter of a second one request comes, and these copies answer what they have."""
    told = []
    for _ in range(round(seconds / 0.25)):
        told.append(bench.invoke(deadline_s=5.0)[1])
        answers(bench, *answering)
        bench.timers.advance(0.25)
    return told


def outlier(bench: Bench, copy: int) -> dict[str, Any]:
    (variant,) = bench.dispatcher.snapshot()["endpoints"]["echo"]["router"]["variants"]
    found: dict[str, Any] = next(one for one in variant["copies"] if one["copy"] == copy)
    told: dict[str, Any] = found.get("outlier", {})
    return told


def hangs(*others: int) -> tuple[Bench, list[Recording]]:
    """Copy 1's instance hangs with two requests."""
    bench = Bench(1, *others, outstanding_max=16)
    bench.link(1).hangs = True
    told = []
    while len(on(bench, 1)) < 2:
        told.append(bench.invoke(deadline_s=5.0)[1])
    answers(bench, *others)
    return bench, told


def test_what_a_silent_instance_has_is_sent_elsewhere_within_its_deadline() -> None:
    bench, told = hangs(2, 3)
    told += go_on(bench, 2.0, 2, 3)
    answers(bench, 2, 3)
    assert [one.told for one in told] == [[("reply", b"answer")]] * len(told)
    assert bench.link(1).asked > 0
    assert bench.link(2).asked == 0
    assert len(bench.link(1).cancelled) >= 2  # should it go on, it computes none of them
    assert outlier(bench, 1) == {"state": "out", "reason": "instance-silent", "times": 1}
    assert ("echo", "AllTraffic", "ejected", "instance-silent") in bench.counting.told


def test_one_that_is_left_out_gets_nothing_then_one_request_then_its_share() -> None:
    bench, _ = hangs(2)
    go_on(bench, 2.0, 2)
    assert on(bench, 1) == []
    go_on(bench, 20.0, 2)
    assert on(bench, 1) == []  # for as long as it is silent
    bench.link(1).hangs = False
    go_on(bench, 1.5, 2)
    for _ in range(3):
        bench.invoke()
    assert (len(on(bench, 1)), len(on(bench, 2))) == (1, 3)
    answers(bench, 1, 2)
    go_on(bench, 0.5, 1, 2)
    for _ in range(4):
        bench.invoke()
    assert (len(on(bench, 1)), len(on(bench, 2))) == (2, 2)


def test_where_all_hang_nobody_is_left_out() -> None:
    bench = Bench(1, 2, outstanding_max=16)
    bench.link(1).hangs = bench.link(2).hangs = True
    go_on(bench, 4.0)
    assert outlier(bench, 1) == outlier(bench, 2) == {}
    assert len(on(bench, 1)) == len(on(bench, 2)) == 8


def test_a_copy_that_answers_nothing_is_asked_for_what_waits_there() -> None:
    """Its instance lives: it may be computing, so what it has begun stays."""
    bench = Bench(1, 2, outstanding_max=16)
    go_on(bench, 1.0, 1, 2)
    while len(on(bench, 1)) < 2:
        bench.invoke()
    begun, waits = on(bench, 1)
    go_on(bench, 2.5, 2)
    assert outlier(bench, 1)["reason"] == "answers-nothing"
    (asked,) = bench.link(1).told
    assert (asked["op"], asked["copy"]) == ("give-back", 1)
    bench.link(1).sent = [item for item in bench.link(1).sent if item[0] is begun]
    bench.dispatcher.on_returned(waits, "rebalanced")
    assert waits in on(bench, 2)
    bench.link(1).reply()
    bench.timers.advance(0.25)
    assert outlier(bench, 1)["state"] == "in"


def test_what_waited_at_the_copy_that_hung_does_not_make_slow_answers_usual() -> None:
    """Else the second time, when the copy is probed, would take three times as long to see."""
    bench = Bench(1, 2, outstanding_max=16)
    go_on(bench, 1.0, 1, 2)
    while len(on(bench, 1)) < 2:
        bench.invoke()
    _, waits = on(bench, 1)
    go_on(bench, 2.5, 2)
    bench.link(1).sent.pop()
    bench.dispatcher.on_returned(waits, "rebalanced")
    go_on(bench, 10.0, 2)
    assert outlier(bench, 1) == {"state": "out", "reason": "answers-nothing", "times": 2}


def test_a_stream_that_flows_is_an_answer_and_one_that_has_begun_is_not_taken_back() -> None:
    bench = Bench(1, 2, outstanding_max=16)
    bench.link(1).hangs = True
    streamed, told = bench.invoke()
    for _ in range(40):
        bench.dispatcher.on_chunk(streamed, b"token", None)
        bench.link(1).heard += 1
        go_on(bench, 0.25, 2)
    assert outlier(bench, 1) == {}
    go_on(bench, 3.0, 2)
    assert outlier(bench, 1)["reason"] == "instance-silent"
    assert on(bench, 1) == [streamed]
    assert told.final == []


def test_a_request_of_a_session_goes_to_its_copy_whatever_is_said_of_it() -> None:
    """No other copy knows of the session."""
    bench = Bench(1, 2, outstanding_max=16)
    router = bench.dispatcher.table.endpoints["echo"].router
    (state,) = [one for one in router.open_copies() if one.copy == 1]
    router.adopt_session("s", 1, now=bench.clock.monotonic())
    state.judge(probed=True)
    for _ in range(3):
        routed = router.pick(session="s", now=bench.clock.monotonic())
        assert isinstance(routed, Routed)
        assert routed.state is state
    assert state.outstanding_max == 1


def test_deadlines_that_the_instance_itself_says_are_missed_are_no_answers() -> None:
    """A worker that hangs: its instance lives, and says of each request that its time is over."""
    bench = Bench(1, 2, outstanding_max=16)
    for _ in range(16):
        bench.invoke(deadline_s=1.0)
        answers(bench, 2)
        bench.timers.advance(0.25)
    assert outlier(bench, 1)["reason"] in ("deadlines-missed", "answers-nothing")


def test_it_rests_when_nothing_is_in_flight() -> None:
    bench = Bench(1, 2)
    bench.link(1).hangs = bench.link(2).hangs = True
    bench.invoke()
    answers(bench, 1, 2)
    bench.timers.advance(60.0)
    assert (bench.link(1).asked, bench.link(2).asked) == (0, 0)
