"""The dispatcher under a manual clock: each request ends exactly once, whatever happens."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.kit.gateway import PREFIX, Bench, reply, routes


def test_an_answer_goes_to_the_responder_and_the_slot_is_free_once_it_is_written() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    assert bench.link(1).sent == [(invocation, 1, 60_000)]
    bench.link(1).reply(b"42")
    assert told.told == [("reply", b"42")]
    assert bench.outstanding() == {1: 1}, "in flight until the last byte is written"
    bench.dispatcher.written(invocation)
    bench.dispatcher.written(invocation)
    assert bench.outstanding() == {1: 0}
    assert bench.dispatcher.in_flight == 0
    assert bench.counting.told == [
        ("echo", "AllTraffic", "started"),
        (
            "echo",
            "AllTraffic",
            "finished",
            200,
            0.0,
            3e-4,
            pytest.approx(4e-3),
            2,
            "runtime",
            0,
            pytest.approx(2e-3),
        ),
    ]


def test_a_request_that_a_copy_gives_back_goes_to_another_one() -> None:
    bench = Bench(1, 2)
    invocation, told = bench.invoke()
    bench.link(1).give_back()
    assert bench.link(2).sent == [(invocation, 2, 60_000)]
    assert bench.outstanding() == {1: 0, 2: 1}
    assert invocation.route is not None
    assert invocation.route.reason == "retry"
    bench.link(2).reply()
    assert told.told == [("reply", b"answer")]


def test_what_the_only_copy_gives_back_is_held_and_sent_again_when_it_is_back() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.link(1).give_back()
    bench.timers.advance(5.0)
    assert (bench.link(1).sent, told.told) == ([], [])
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert bench.link(1).sent == [(invocation, 1, 55_000)]
    bench.link(1).reply()
    assert told.told == [("reply", b"answer")]


def test_a_copy_that_gives_back_without_further_news_is_tried_again_after_a_pause() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.link(1).give_back()
    assert bench.link(1).sent == []
    bench.timers.advance(0.05)
    assert bench.link(1).sent == [(invocation, 1, 59_950)]


def test_new_requests_are_refused_while_accepted_ones_are_held() -> None:
    bench = Bench(1)
    bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.link(1).give_back()
    _, told = bench.invoke()
    assert told.told == [("error", "no-healthy-copy")]
    assert ("echo", "AllTraffic", "no_capacity") in bench.counting.told
    assert ("echo", "AllTraffic", "refused", "no-healthy-copy", 503, "runtime") in (
        bench.counting.told
    )


def test_a_request_that_ends_each_worker_it_meets_ends_two() -> None:
    bench = Bench(1, 2, 3, 4)
    invocation, told = bench.invoke()
    for _ in range(2):
        assert told.told == []
        [link] = [link for link in bench.links.values() if link.sent]
        link.give_back("worker-died")
    assert told.told == [("error", "model-worker-died")]
    assert invocation.error is not None
    assert invocation.error.status == 424
    assert set(bench.outstanding().values()) == {0}


def test_what_never_began_is_sent_as_often_as_its_deadline_allows() -> None:
    bench = Bench(1, 2)
    invocation, told = bench.invoke(deadline_s=30.0)
    for _ in range(100):
        [link] = [link for link in bench.links.values() if link.sent]
        link.give_back("copy-lost")
        bench.timers.advance(0.05)
    assert told.told == []
    [link] = [link for link in bench.links.values() if link.sent]
    link.reply()
    assert told.told == [("reply", b"answer")]
    assert invocation.attempts == 101


def test_a_lost_connection_retries_what_was_unanswered_but_not_what_was_streamed() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(routes(1))
    plain, told_plain = bench.invoke()
    streamed, told_streamed = bench.invoke()
    bench.dispatcher.publish(routes(1, 2))
    bench.dispatcher.on_chunk(streamed, b"first", b"")
    bench.link(1).lose()
    assert told_streamed.told == [("chunk", b"first"), ("error", "stream-broken")]
    assert [item[0] for item in bench.link(2).sent] == [plain]
    assert told_plain.told == []
    bench.dispatcher.written(streamed)
    assert bench.outstanding() == {1: 0, 2: 1}


def test_the_copies_behind_a_lost_connection_can_not_be_picked_until_it_is_back() -> None:
    bench = Bench(1)
    bench.dispatcher.on_unusable("i1", [])
    _, told = bench.invoke()
    assert told.told == [("error", "no-healthy-copy")]
    bench.dispatcher.on_usable("i1", fresh=False)
    invocation, _ = bench.invoke()
    assert bench.link(1).sent == [(invocation, 1, 60_000)]


def test_at_the_servers_limit_the_instance_is_told_and_the_caller_gets_deadline_passed() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.timers.advance(59.9)
    assert told.told == []
    bench.timers.advance(0.2)
    assert told.told == [("error", "deadline-passed")]
    assert bench.link(1).cancelled == [invocation]
    assert bench.outstanding() == {1: 0}


def test_a_callers_own_deadline_comes_first_and_may_not_exceed_the_servers() -> None:
    bench = Bench(1)
    _, told_short = bench.invoke(deadline_s=0.25)
    _, told_long = bench.invoke(deadline_s=1000.0)
    assert [item[2] for item in bench.link(1).sent] == [250, 60_000]
    bench.timers.advance(0.25)
    assert told_short.told == [("error", "deadline-passed")]
    bench.timers.advance(60.0)
    assert told_long.told == [("error", "deadline-passed")]


def test_a_deadline_that_is_over_on_arrival_is_refused_at_once() -> None:
    bench = Bench(1)
    _, told = bench.invoke(deadline_s=0.0)
    assert told.told == [("error", "deadline-passed")]
    assert bench.link(1).sent == []


def test_a_held_request_ends_at_its_deadline() -> None:
    bench = Bench(1)
    _, told = bench.invoke(deadline_s=1.0)
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.link(1).give_back()
    bench.timers.advance(2.0)
    assert told.told == [("error", "deadline-passed")]


def test_a_cancelled_request_frees_its_slot_and_nobody_hears_of_it() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.dispatcher.cancel(invocation)
    bench.dispatcher.cancel(invocation)
    assert bench.link(1).cancelled == [invocation]
    assert (told.told, bench.outstanding(), bench.dispatcher.in_flight) == ([], {1: 0}, 0)
    assert bench.counting.told[-1] == ("echo", "AllTraffic", "cancelled", "runtime")


def test_a_held_request_can_be_cancelled() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.link(1).give_back()
    bench.dispatcher.cancel(invocation)
    bench.timers.advance(1.0)
    assert (told.told, bench.link(1).sent, bench.dispatcher.in_flight) == ([], [], 0)


def test_full_copies_refuse_with_a_hint_when_to_come_again() -> None:
    bench = Bench(1, outstanding_max=2)
    bench.invoke()
    bench.invoke()
    invocation, told = bench.invoke()
    assert told.told == [("error", "all-copies-full")]
    assert invocation.error is not None
    assert (invocation.error.status, invocation.error.retry_after_s) == (503, 0.1)


def test_unknown_endpoints_and_variants_are_the_callers_errors() -> None:
    bench = Bench(1)
    _, told = bench.invoke(endpoint="nobody")
    assert told.told == [("error", "endpoint-not-found")]
    _, told = bench.invoke(variant="nobody")
    assert told.told == [("error", "variant-not-found")]


def test_an_update_lets_old_copies_finish_and_says_when_they_have() -> None:
    async def main() -> tuple[bool, bool]:
        early = await asyncio.wait_for(
            asyncio.gather(bench.dispatcher.drained([1], 5.0), time_out()), 5
        )
        waiting = asyncio.ensure_future(bench.dispatcher.drained([1], 5.0))
        await asyncio.sleep(0)
        bench.link(1).reply()
        bench.dispatcher.written(old)
        return early[0], await waiting

    async def time_out() -> None:
        await asyncio.sleep(0)
        bench.timers.advance(5.0)

    bench = Bench(1)
    old, told = bench.invoke()
    bench.connect("i2")
    bench.dispatcher.publish(routes(2))
    new, _ = bench.invoke()
    assert [item[0] for item in bench.link(2).sent] == [new]
    assert asyncio.run(main()) == (False, True)
    assert told.told == [("reply", b"answer")]


def test_a_request_whose_variant_left_with_an_update_is_retried_on_the_new_one() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.connect("i2")
    bench.dispatcher.publish(routes(2, variant="New"))
    bench.link(1).lose()
    assert bench.link(2).take() is invocation
    assert invocation.variant == "New"
    assert told.told == []


def test_withdrawing_an_endpoint_ends_what_is_held_and_not_what_is_running() -> None:
    bench = Bench(1, 2)
    _, told_running = bench.invoke()
    _, told_held = bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    bench.link(2).give_back()
    bench.dispatcher.withdraw("echo")
    assert told_held.told == [("error", "endpoint-not-found")]
    bench.link(1).reply()
    assert told_running.told == [("reply", b"answer")]


def test_draining_refuses_what_is_new_and_waits_for_what_is_in_flight() -> None:
    async def main() -> bool:
        waiting = asyncio.ensure_future(bench.dispatcher.drain(10.0))
        await asyncio.sleep(0)
        _, told = bench.invoke()
        assert told.told == [("error", "stopping")]
        for number in list(bench.dispatcher._live):
            if number != invocation.number:
                bench.dispatcher.written(bench.dispatcher._live[number])
        assert not waiting.done()
        bench.link(1).reply()
        bench.dispatcher.written(invocation)
        return await waiting

    bench = Bench(1)
    invocation, _ = bench.invoke()
    assert asyncio.run(main()) is True


def test_explain_tells_why_a_request_went_where_it_did() -> None:
    bench = Bench(1, 2)
    invocation, _ = bench.invoke()
    bench.link(1).give_back()
    bench.timers.advance(0.5)
    bench.link(2).reply()
    bench.dispatcher.written(invocation)
    assert bench.dispatcher.explain(PREFIX + "000000000001") == {
        "request_id": PREFIX + "000000000001",
        "endpoint": "echo",
        "door": "runtime",
        "status": 200,
        "error": None,
        "received": 1_700_000_000.0,
        "total_ms": 500.0,
        "attempts": 2,
        "route": {
            "variant": "AllTraffic",
            "copy": 2,
            "instance_id": "i2",
            "reason": "retry",
            "outstanding": 1,
        },
        "batch": {"rows": 2, "reason": "batch-full", "queue_ms": 0.3, "run_ms": 4.0},
    }
    assert bench.dispatcher.explain(PREFIX + "000000000002") is None
    assert bench.dispatcher.explain("nonsense") is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_request_ends_once_and_no_slot_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(1, 2, 3, outstanding_max=3)
    told = []
    for _ in range(300):
        link = bench.link(rng.choice((1, 2, 3)))
        action = rng.choice(
            ("invoke", "invoke", "invoke", "reply", "back", "lose", "event", "time")
        )
        if action == "invoke":
            told.append(bench.invoke(deadline_s=rng.choice((None, 0.2))))
        elif action == "reply" and link.sent:
            invocation = link.take()
            bench.dispatcher.on_reply(invocation, reply())
        elif action == "back" and link.sent:
            link.give_back(rng.choice(("worker-died", "worker-died-in-company", "draining")))
        elif action == "lose":
            link.lose() if link.usable else link.come_back()
        elif action == "event":
            kind = rng.choice(("copy-lost", "copy-ready"))
            bench.dispatcher.on_event(link.instance_id, {"event": kind, "copy": 1})
        elif action == "time":
            bench.timers.advance(0.03)
        if rng.random() < 0.3 and told:
            invocation, recording = rng.choice(told)
            if rng.random() < 0.5:
                bench.dispatcher.cancel(invocation)
            else:
                bench.dispatcher.written(invocation)
    bench.timers.advance(200.0)
    for invocation, recording in told:
        assert len(recording.final) <= 1
        bench.dispatcher.written(invocation)
    assert bench.dispatcher.in_flight == 0
    assert set(bench.outstanding().values()) == {0}
    bench.dispatcher.table.endpoints["echo"].router.check_invariants()
    assert bench.dispatcher._bodies_bytes == 0
    started = sum(entry[2] == "started" for entry in bench.counting.told)
    ended = sum(entry[2] in ("finished", "cancelled") for entry in bench.counting.told)
    assert started == ended
