"""What the dispatcher lets in, how it counts what is in flight, and what it tells the metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.gateway.test_retries import lose, two_variants
from tests.kit.gateway import PREFIX, Bench, Recording, reply, routes

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.errors import ModelError, NotNowError
from penstock.gateway.dispatch import dispatcher as module
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.wire import frames


def endpoint_state(bench: Bench) -> dict[str, Any]:
    state: dict[str, Any] = bench.dispatcher.snapshot()["endpoints"]["echo"]
    return state


def told_of(bench: Bench, *names: str) -> list[tuple[Any, ...]]:
    return [row[2:] for row in bench.counting.told if row[2] in names]


# Bodies


def test_bodies_in_flight_have_a_bound_and_count_until_the_answer_is_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BODIES_BYTES_MAX", 10)
    bench = Bench(1)
    first, told = bench.invoke(body=b"123456")
    bench.invoke(body=b"7890")
    assert told.told == []
    refused, told = bench.invoke(body=b"x")
    assert told.told == [("error", "bodies-too-many")]
    assert bench.link(1).take() is first
    bench.dispatcher.on_reply(first, reply())
    _, told = bench.invoke(body=b"x")
    assert told.told == [("error", "bodies-too-many")], "its own bytes are still counted"
    bench.dispatcher.written(refused)
    first.body = b""  # a door may drop it once it has answered
    bench.dispatcher.written(first)
    _, told = bench.invoke(body=b"12345")
    assert told.told == []


# Numbers of requests


def test_requests_in_flight_are_counted_by_endpoint_until_they_are_written() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    refused, _ = bench.invoke(variant="nobody")
    lost, _ = bench.invoke(endpoint="nobody")
    assert (endpoint_state(bench)["in_flight"], bench.dispatcher.in_flight) == (2, 3)
    bench.dispatcher.written(lost)
    bench.dispatcher.written(refused)
    bench.dispatcher.written(refused)
    assert (endpoint_state(bench)["in_flight"], bench.dispatcher.in_flight) == (1, 1)
    bench.dispatcher.written(invocation)
    assert bench.dispatcher.in_flight == 1, "it is not answered yet"
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert (endpoint_state(bench)["in_flight"], bench.dispatcher.in_flight) == (0, 0)


def test_a_request_has_the_number_that_its_door_gave_it_or_the_next() -> None:
    bench = Bench(1)
    first, _ = bench.invoke()
    given = Invocation("echo", b"", b"", Recording(), received=100.0, deadline=None, number=77)
    bench.dispatcher.invoke(given)
    second, _ = bench.invoke()
    assert [first.number, given.number, second.number] == [1, 77, 2]


# Admission


def learn(bench: Bench, *, run_us: int, rows: int, variant: str | None = None) -> None:
    """One answer, from which admission knows how long runs take."""
    invocation, _ = bench.invoke(variant=variant)
    answer = reply()._replace(run_us=run_us, batch_rows=rows, lane_us=run_us // rows)
    bench.dispatcher.on_reply(bench.link(1).take(), answer)
    bench.dispatcher.written(invocation)


def test_admission_learns_from_each_whole_answer() -> None:
    bench = Bench(1)
    learn(bench, run_us=2_000_000, rows=4)
    admission = endpoint_state(bench)["admission"]
    assert (admission["run_s"], admission["lane_s"]) == (2.0, 0.5)


def test_what_can_not_be_answered_in_time_is_refused_with_a_hint_when_to_come_again() -> None:
    """One lane, a second per row: the third in line is answered after three seconds."""
    bench = Bench(1)
    learn(bench, run_us=1_000_000, rows=1)
    for _ in range(2):
        _, told = bench.invoke(deadline_s=2.5)
        assert told.told == []
    invocation, told = bench.invoke(deadline_s=2.5)
    assert told.told == [("error", "deadline-cannot-be-met")]
    assert invocation.error is not None
    assert (invocation.error.status, invocation.error.retry_after_s) == (503, pytest.approx(0.5))
    assert told_of(bench, "refused") == [("refused", "deadline-cannot-be-met", 503, "runtime")]
    _, told = bench.invoke(deadline_s=4.0)
    assert told.told == [], "the refused one is still counted until it is written"


def test_admission_learns_from_streams_as_from_whole_answers() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    link = bench.link(1)
    link.events.on_chunk(invocation, b"a", b"")
    link.events.on_end(link.take(), reply()._replace(run_us=3_000_000, lane_us=3_000_000))
    assert endpoint_state(bench)["admission"]["lane_s"] == 3.0


def test_a_queue_of_one_variant_refuses_nobody_who_asks_for_an_idle_one() -> None:
    """Ten wait on blue's lane for a second each; green has nothing to do."""
    bench = Bench(1, 2)
    bench.dispatcher.publish(two_variants(blue=(1,), green=(2,)))
    learn(bench, run_us=1_000_000, rows=1, variant="blue")
    for _ in range(10):
        bench.invoke(variant="blue")
    refused, told = bench.invoke(variant="blue", deadline_s=2.5)
    assert told.told == [("error", "deadline-cannot-be-met")]
    bench.dispatcher.written(refused)
    _, told = bench.invoke(variant="green", deadline_s=2.5)
    assert told.told == []


def test_every_copy_has_the_lanes_that_its_variant_says() -> None:
    bench = Bench(1, 2)
    for model, lanes in (({"lanes": 3}, 6), ({"lanes": 0}, 2), ({"lanes": "3"}, 2), ({}, 2)):
        bench.dispatcher.publish(routes(1, 2, model=model))
        assert bench.dispatcher.table.endpoints["echo"].lanes == lanes
    bench.dispatcher.publish(two_variants(blue=(1, 2), green=(3,)))
    assert bench.dispatcher.table.endpoints["echo"].lanes == 3


def test_new_routes_bring_new_bounds_and_what_was_learned_stays() -> None:
    bench = Bench(1)
    learn(bench, run_us=1_000_000, rows=1)
    bench.dispatcher.publish(routes(1, model={"batching": {"queue_wait_s_max": 0.25}}))
    assert endpoint_state(bench)["admission"] == {
        "in_flight_max": 100_000,
        "queue_wait_s_max": 0.25,
        "run_s": 1.0,
        "lane_s": 1.0,
    }


# Deadlines


@pytest.mark.parametrize(
    ("deadline_s", "left_ms"),
    [(None, 60_000), (60.0, 60_000), (61.0, 60_000), (59.0, 59_000), (0.0004, 1), (0.0015, 1)],
)
def test_an_instance_is_told_the_time_that_is_left_in_whole_milliseconds(
    deadline_s: float | None, left_ms: int
) -> None:
    bench = Bench(1)
    bench.invoke(deadline_s=deadline_s)
    assert [item[2] for item in bench.link(1).sent] == [left_ms]


def test_time_counts_from_when_the_request_was_read() -> None:
    bench = Bench(1)
    told = Recording()
    late = Invocation("echo", b"", b"", told, received=70.0, deadline=None)
    bench.dispatcher.invoke(late)
    bench.timers.advance(29.0)
    assert told.told == []
    bench.timers.advance(1.0)
    assert told.told == [("error", "deadline-passed")]


# Variants


def test_a_copy_and_the_metrics_are_those_of_the_variant_that_was_drawn() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(two_variants())
    invocation, _ = bench.invoke(variant="green")
    assert (invocation.variant, invocation.pinned) == ("green", True)
    bench.link(2).reply()
    bench.dispatcher.written(invocation)
    assert {row[:2] for row in bench.counting.told} == {("echo", "green")}


def test_who_never_met_a_copy_is_counted_with_the_named_variant_or_the_first() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(two_variants())
    lose(bench, 1)
    lose(bench, 2)
    for variant in ("green", "blue", None):
        bench.invoke(variant=variant)
    bench.invoke(variant="nobody")
    refused = ("refused", "no-healthy-copy", 503, "runtime")
    assert bench.counting.told == [
        ("echo", "green", "no_capacity"),
        ("echo", "green", *refused),
        ("echo", "blue", "no_capacity"),
        ("echo", "blue", *refused),
        ("echo", "blue", "no_capacity"),
        ("echo", "blue", *refused),
        ("echo", "blue", "refused", "variant-not-found", 400, "runtime"),
    ]


def test_an_endpoint_without_copies_has_no_capacity_and_a_full_one_has() -> None:
    bench = Bench(1, outstanding_max=1)
    bench.invoke()
    bench.invoke()
    assert told_of(bench, "no_capacity") == []
    bench.dispatcher.publish(routes())
    _, told = bench.invoke()
    assert told.told == [("error", "no-copies")]
    assert told_of(bench, "no_capacity") == [("no_capacity",)]


def test_an_endpoint_of_no_variants_counts_nothing() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(EndpointRoutes(endpoint="bare", variants=()))
    invocation, told = bench.invoke(endpoint="bare")
    assert told.told == [("error", "no-copies")]
    bench.dispatcher.written(invocation)
    assert (bench.counting.told, bench.dispatcher.in_flight) == ([], 0)


# How a request ends, as metrics and `explain` see it


def explained(bench: Bench, invocation: Invocation) -> dict[str, Any]:
    story = bench.dispatcher.explain(bench.dispatcher.ids.text(invocation.number))
    assert story is not None
    return story


def test_a_request_that_its_client_left_is_counted_as_that_and_not_as_finished() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.timers.advance(0.25)
    bench.dispatcher.cancel(invocation)
    assert bench.counting.told == [
        ("echo", "AllTraffic", "started"),
        ("echo", "AllTraffic", "cancelled", "runtime"),
    ]
    story = explained(bench, invocation)
    assert (story["status"], story["error"], story["total_ms"]) == (499, "cancelled", 250.0)


def test_a_client_that_leaves_behind_an_answer_ends_it_as_if_it_were_written() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.link(1).reply()
    bench.dispatcher.cancel(invocation)
    assert (bench.link(1).cancelled, bench.dispatcher.in_flight) == ([], 0)
    assert explained(bench, invocation)["status"] == 200
    assert told_of(bench, "cancelled") == []


def test_a_client_that_leaves_while_it_waits_costs_no_instance_a_word() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.link(1).give_back("draining")
    bench.dispatcher.cancel(invocation)
    assert (bench.link(1).cancelled, bench.outstanding()) == ([], {1: 0})
    assert told_of(bench, "cancelled") == [("cancelled", "runtime")]


def test_a_request_that_is_over_can_not_be_cancelled() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    told = list(bench.counting.told)
    bench.dispatcher.cancel(invocation)
    assert (bench.counting.told, bench.outstanding()) == (told, {1: 0})


def test_an_error_of_the_model_is_counted_with_the_models_own_status() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    error = ModelError("model-failed", "no", original_status=422, original_message="no")
    answer = reply(orjson.dumps(error.to_dict()))
    bench.link(1).events.on_error(bench.link(1).take(), answer)
    assert told.told == [("error", "model-failed")]
    bench.timers.advance(0.5)
    bench.dispatcher.written(invocation)
    [finished] = told_of(bench, "finished")
    assert finished == (
        "finished", 424, 0.5, pytest.approx(3e-4), pytest.approx(4e-3), 2, "runtime", 422,
    )  # fmt: skip
    story = explained(bench, invocation)
    assert (story["status"], story["error"]) == (424, "model-failed")
    assert story["batch"] == {"rows": 2, "reason": "batch-full", "queue_ms": 0.3, "run_ms": 4.0}


def test_a_deadline_that_passed_is_counted_without_times_of_a_run() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke(deadline_s=1.0)
    bench.timers.advance(1.0)
    bench.dispatcher.written(invocation)
    assert told_of(bench, "finished") == [("finished", 503, 1.0, 0.0, 0.0, 0, "runtime", 0)]
    assert explained(bench, invocation)["batch"] is None


def test_an_error_that_can_not_be_read_is_ours() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.link(1).events.on_error(bench.link(1).take(), reply(b"{torn"))
    assert told.told == [("error", "internal")]
    assert invocation.error is not None
    assert invocation.error.status == 500


@pytest.mark.parametrize("door", ["runtime", "oip"])
def test_the_front_door_is_told_with_each_count(door: str) -> None:
    bench = Bench(1)
    for step in ("finished", "cancelled", "refused"):
        invocation = Invocation(
            "echo", b"", b"", Recording(), received=100.0, deadline=None, door=door,
            variant="nobody" if step == "refused" else None,
        )  # fmt: skip
        bench.dispatcher.invoke(invocation)
        if step == "finished":
            bench.link(1).reply()
            bench.dispatcher.written(invocation)
        elif step == "cancelled":
            bench.dispatcher.cancel(invocation)
    assert [door in row for row in told_of(bench, "finished", "cancelled", "refused")] == [True] * 3


def test_a_stream_that_breaks_at_its_first_piece_is_no_refusal_whatever_broke_it() -> None:
    bench = Bench(1)
    invocation, told = bench.invoke()
    bench.timers.advance(1.0)
    bench.link(1).events.on_chunk(invocation, b"one", b"[]")
    bench.link(1).lose()
    assert told.told == [("chunk", b"one"), ("error", "stream-broken")]
    bench.dispatcher.written(invocation)
    assert told_of(bench, "streamed", "broken") == [("streamed", 1.0), ("broken",)]
    assert [row[-1] for row in told_of(bench, "finished")] == [500]


def test_a_stream_that_never_began_is_not_counted_as_one() -> None:
    bench = Bench(1)
    invocation = Invocation("echo", b"", b"", Recording(), received=100.0, deadline=None)
    invocation.stream = StreamObserved()
    bench.dispatcher.invoke(invocation)
    bench.link(1).lose()
    asyncio.run(bench.dispatcher.close())
    bench.dispatcher.written(invocation)
    assert told_of(bench, "streamed", "broken") == []
    assert [row[-1] for row in told_of(bench, "finished")] == [0]
    assert "stream" not in explained(bench, invocation)


def test_an_error_behind_pieces_still_says_what_the_engine_did() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    events = bench.link(1).events
    bench.timers.advance(1.0)
    events.on_chunk(invocation, b"one", b"[]")
    bench.timers.advance(2.0)
    meta = frames.ReplyMeta(generation='{"tokens_in": 3, "tokens_out": 5}')
    body = orjson.dumps(NotNowError("stream-broken", "x").to_dict())
    events.on_error(invocation, reply(body, frames.encode_reply_meta(meta)))
    bench.dispatcher.written(invocation)
    assert told_of(bench, "generated") == [("generated", 3, 5, 1.0, 0.5)]


def test_what_a_whole_error_says_of_tokens_is_not_counted() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    meta = frames.encode_reply_meta(frames.ReplyMeta(generation='{"tokens_in": 3}'))
    bench.link(1).events.on_error(bench.link(1).take(), reply(b"{}", meta))
    bench.dispatcher.written(invocation)
    assert told_of(bench, "generated") == []


def test_the_last_requests_are_explained_and_those_before_them_no_more() -> None:
    bench = Bench(1)
    first, _ = bench.invoke()
    assert bench.dispatcher.explain(PREFIX + "000000000001") is None, "it is under way"
    bench.link(1).reply()
    bench.dispatcher.written(first)
    assert explained(bench, first)["request_id"] == PREFIX + "000000000001"
    later = Invocation("echo", b"", b"", Recording(), received=100.0, deadline=None, number=16_385)
    bench.dispatcher.invoke(later)
    bench.link(1).reply()
    bench.dispatcher.written(later)
    assert bench.dispatcher.explain(PREFIX + "000000000001") is None
    assert explained(bench, later)["attempts"] == 1


def test_a_reason_that_is_not_known_is_told_as_that() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.dispatcher.on_reply(
        bench.link(1).take(), reply()._replace(reason=len(frames.BATCH_REASONS))
    )
    bench.dispatcher.written(invocation)
    assert explained(bench, invocation)["batch"]["reason"] == "unknown"


# Reading


def test_what_is_known_of_endpoints_can_be_read() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(routes(2, endpoint="another"))
    assert bench.dispatcher.endpoint_names() == ["another", "echo"]
    assert bench.dispatcher.routes("echo") == routes(1)
    assert bench.dispatcher.routes("nobody") is None
    ready = [bench.dispatcher.is_ready(name) for name in ("echo", "another", "nobody")]
    assert ready == [True, False, False]
    snapshot = bench.dispatcher.snapshot()
    assert list(snapshot["endpoints"]) == ["another", "echo"]
    assert (snapshot["in_flight"], snapshot["waiting"], snapshot["stopping"]) == (0, 0, False)
    assert bench.dispatcher.accepting
    assert asyncio.run(bench.dispatcher.drain(1.0)) is True
    assert (bench.dispatcher.accepting, bench.dispatcher.snapshot()["stopping"]) == (False, True)


def test_answers_of_an_endpoint_that_makes_tokens_are_looked_into_and_others_are_not() -> None:
    bench = Bench(1)
    meta = frames.encode_reply_meta(
        frames.ReplyMeta(generation='{"tokens_in": 2, "tokens_out": 1, "first_token_s": 0.001}')
    )
    for task, counted in (("text-classification", []), ("text-generation", [2])):
        bench.dispatcher.publish(routes(1, model={"task": task}))
        invocation, _ = bench.invoke()
        bench.dispatcher.on_reply(bench.link(1).take(), reply(b"{}", meta))
        bench.dispatcher.written(invocation)
        assert [row[1] for row in told_of(bench, "generated")] == counted
