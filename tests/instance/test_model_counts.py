"""What is counted of one target model, on literal timelines."""

from __future__ import annotations

from penstock.core.residency import Footprint
from penstock.errors import ModelError, NotNowError
from penstock.instance import replies
from penstock.instance.models.counts import ModelCounts
from penstock.metrics.models.model_delta import ModelDelta
from penstock.wire import frames

MEGABYTE = 1 << 20


def delta_of(told: dict[str, object] | None) -> ModelDelta:
    assert told is not None
    return ModelDelta.from_dict(told)


def answer(queue_us: int, run_us: int, kind: int = frames.REPLY) -> bytes:
    return frames.encode_reply(3, kind=kind, queue_us=queue_us, run_us=run_us, body=b"{}")


def test_what_never_happened_is_not_told() -> None:
    assert ModelCounts().take(0, 10.0, use=True) is None


def test_requests_are_told_once_as_hits_misses_and_how_they_ended() -> None:
    counts = ModelCounts()
    counts.hits += 3
    counts.misses += 1
    counts.took("wait", 0.5)
    counts.answered(answer(queue_us=500, run_us=1500))
    counts.answered(answer(queue_us=0, run_us=4000, kind=frames.END))
    counts.answered(replies.error_frame(3, ModelError("broken", "no")))
    counts.answered(replies.error_frame(3, replies.not_now("queue-full")))
    counts.answered(replies.returned_frame(3, "copy-lost"))  # another copy will answer it
    counts.refused(NotNowError("target-model-not-ready", "no", status=429))
    delta = delta_of(counts.take(0, 10.0, use=False))
    assert (delta.hits, delta.misses, delta.answered) == (3, 1, 2)
    assert (delta.model_errors, delta.other_errors) == (1, 2)
    assert delta.latency_us is not None
    assert (delta.latency_us.count, delta.latency_us.total) == (2, 6000.0)
    assert delta.wait_us is not None
    assert (delta.wait_us.count, delta.wait_us.total) == (1, 500_000.0)
    assert counts.take(0, 11.0, use=False) is None


def test_rows_runs_and_the_cache_are_counted_by_what_the_replies_say() -> None:
    """Two requests of two rows share a run; one comes from the cache."""
    counts = ModelCounts()
    counts.cached = True
    for _ in range(2):
        counts.answered(
            frames.encode_reply(3, batch_rows=4, queue_us=500, run_us=2000, lane_us=1000)
        )
    counts.answered(frames.encode_reply(3, reason=frames.BATCH_REASON_CODES["cache-hit"]))
    delta = delta_of(counts.take(0, 10.0, use=False))
    assert (delta.inferences, delta.executions) == (4.0, 1.0)
    assert (delta.queue_s, delta.model_s) == (0.001, 0.004)
    assert (delta.cache_hits, delta.cache_misses) == (1, 2)


def test_memory_and_idle_time_are_counted_while_it_is_loaded_and_no_longer() -> None:
    counts = ModelCounts()
    counts.took("download", 2.0)
    counts.loaded(Footprint(host_bytes=10 * MEGABYTE, accelerator_bytes=MEGABYTE), 0.25, 100.0)
    counts.busy(101.0)
    first = counts.take(1_000_000, 102.0, use=False)
    assert first is not None
    assert (first["resident"], first["host_bytes"]) == (True, 10 * MEGABYTE)
    delta = delta_of(first)
    # loaded for two seconds, the second of them busy; its lanes for one
    assert (delta.resident_s, delta.idle_s, delta.run_s) == (2.0, 1.0, 1.0)
    assert (delta.byte_s, delta.accelerator_byte_s) == (20.0 * MEGABYTE, 2.0 * MEGABYTE)
    assert (delta.loads, delta.load_s) == (1, 2.25)
    counts.idle(102.5)
    counts.unloading("least-recently-used", 1_400_000, 104.0)
    counts.took("unload", 0.125)
    last = counts.take(0, 110.0, use=False)
    assert last is not None
    assert (last["resident"], last["host_bytes"]) == (False, 0)
    delta = delta_of(last)
    assert (delta.resident_s, delta.idle_s, delta.run_s) == (2.0, 1.5, 0.4)
    assert delta.unloads == {"least-recently-used": 1}
    assert delta.load_s == 0.125
    assert counts.take(0, 200.0, use=True) is None


def test_a_model_that_is_loaded_and_not_called_is_told_when_its_use_is_asked_for() -> None:
    counts = ModelCounts()
    counts.loaded(Footprint(host_bytes=5), 0.0, 0.0)
    assert counts.take(0, 0.0, use=False) is not None
    assert counts.take(0, 1.0, use=False) is None
    delta = delta_of(counts.take(0, 10.0, use=True))
    assert (delta.resident_s, delta.idle_s, delta.byte_s) == (10.0, 10.0, 50.0)


def test_a_model_that_is_loaded_again_counts_its_new_copy_from_nothing() -> None:
    counts = ModelCounts()
    counts.loaded(Footprint(host_bytes=5), 0.0, 0.0)
    counts.unloading("dismissed", 3_000_000, 5.0)
    counts.loaded(Footprint(host_bytes=7), 0.0, 8.0)
    delta = delta_of(counts.take(500_000, 10.0, use=False))
    assert (delta.run_s, delta.resident_s) == (3.5, 7.0)
    assert delta.byte_s == 5 * 5.0 + 7 * 2.0
    assert delta.loads == 2


def test_a_model_that_could_not_be_loaded_has_no_unload() -> None:
    counts = ModelCounts()
    counts.misses += 1
    counts.load_failed()
    counts.unloading("host-ended", 0, 4.0)
    delta = delta_of(counts.take(0, 5.0, use=True))
    assert (delta.loads, delta.loads_failed, delta.unloads) == (0, 1, {})


def test_a_model_that_grows_is_counted_with_what_it_takes_at_each_time() -> None:
    counts = ModelCounts()
    counts.loaded(Footprint(host_bytes=10), 0.0, 0.0)
    counts.resized(Footprint(host_bytes=30), 500_000, 2.0)
    told = counts.take(500_000, 3.0, use=True)
    delta = delta_of(told)
    assert (delta.byte_s, delta.run_s) == (10 * 2.0 + 30 * 1.0, 0.5)
    assert told is not None
    assert told["host_bytes"] == 30
    counts.unloading("dismissed", 500_000, 4.0)
    counts.resized(Footprint(host_bytes=50), 0, 5.0)
    assert delta_of(counts.take(0, 6.0, use=True)).byte_s == 30.0
