"""Several processes count, one holds the store: what they tell him, and what he makes of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import CallerError
from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.recorder import (
    MetricDelta,
    PoolDelta,
    VariantDelta,
    VariantRecorder,
    decode,
    encode,
)
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.totals import VariantTotals
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.sketch import RELATIVE_ERROR
from penstock.metrics.series.store import MetricStore

T0 = 1_700_000_000
SHOP = ("shop", "main")


def answer(recorder: VariantRecorder, run_s: float = 0.006, status: int = 200) -> None:
    recorder.started()
    recorder.finished(status, run_s + 0.004, 0.002, run_s, 4)


def whole(registry: MetricRegistry) -> VariantTotals:
    return registry.totals[SHOP]


def filled() -> MetricDelta:
    counted = VariantDelta()
    counted.outcomes = {(200, 0, "runtime"): 3, (424, 500, "oip"): 1}
    counted.refusals = {("queue-full", 503, "runtime"): 2}
    counted.no_capacity = 1
    counted.broken = 1
    counted.batch_rows = {4: 3}
    counted.captures = {("taken", ""): 2, ("dropped", "queue-full"): 1}
    counted.compared = {(1_700_000_000_000, "agree"): 5, (1_700_000_000_000, "differ"): 1}
    counted.concurrency = {T0: 7}
    counted.total_s.add(0.010)
    counted.tokens_out.add(11)
    return MetricDelta(
        T0 - 1.0,
        None,
        [
            PoolDelta(("shop", "main", ""), "", "shop-1", 7, {T0: 7}, counted),
            PoolDelta(("shop", "main", "lora"), "chat", "shop-1", 0, {T0: 0}, None),
        ],
    )


def test_a_delta_comes_back_as_it_was_told() -> None:
    sent = filled()
    found = decode(encode(sent))
    assert (found.since, found.lag) == (T0 - 1.0, None)
    first, second = found.pools
    assert second == sent.pools[1]
    assert (first.pool, first.in_flight, first.concurrency) == (("shop", "main", ""), 7, {T0: 7})
    mine, theirs = sent.pools[0].counted, first.counted
    assert mine is not None
    assert theirs is not None
    for name in (
        "outcomes",
        "refusals",
        "no_capacity",
        "broken",
        "batch_rows",
        "concurrency",
        "captures",
    ):
        assert getattr(theirs, name) == getattr(mine, name), name
    for name in VariantDelta.SKETCHES:
        assert getattr(theirs, name) == getattr(mine, name), name
        assert getattr(theirs, name).total == getattr(mine, name).total, name


def test_a_variant_with_nothing_to_tell_costs_less_than_a_hundred_bytes() -> None:
    gateway = MetricRegistry()
    few = len(gateway.take_delta(T0))
    for number in range(1000):
        gateway.recorder(f"endpoint-{number}", "AllTraffic")
    assert len(gateway.take_delta(T0 + 1)) - few < 100_000


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 40, -1])
def test_a_torn_delta_is_refused_whole(cut: int) -> None:
    registry = MetricRegistry()
    with pytest.raises(CallerError) as caught:
        registry.add_delta("a", encode(filled())[:cut])
    assert caught.value.code == "metrics-delta-unreadable"
    assert (registry.totals, registry.lags) == ({}, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\x01" + data[1:],
        lambda data: data + b"\x00",
        lambda data: data.replace(b"pools", b"poles"),
        lambda data: data.replace(b"total_s", b"total_x"),
        lambda data: data.replace(b"no_capacity\x01", b"no_capacity\xc0"),
        lambda data: data.replace(b"outcomes\x82\x93\xcc", b"outcomes\x82\x93\xd9"),
    ],
    ids=["version", "trailing", "no-pools", "unknown-sketch", "no-number", "no-key"],
)
def test_what_is_no_delta_of_this_version_is_refused_whole(
    change: Callable[[bytes], bytes],
) -> None:
    registry = MetricRegistry()
    sound = encode(filled())
    assert change(sound) != sound
    with pytest.raises(CallerError) as caught:
        registry.add_delta("a", change(sound))
    assert caught.value.code == "metrics-delta-unreadable"
    assert (registry.totals, registry.lags) == ({}, {})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_delta_or_an_error_of_the_callers(data: bytes) -> None:
    for sent in (data, encode(filled())[:1] + data):
        try:
            decode(sent)
        except CallerError as error:
            assert error.code == "metrics-delta-unreadable"  # noqa: PT017


@given(
    parts=st.lists(
        st.lists(st.floats(min_value=1e-6, max_value=1e4), max_size=40), min_size=1, max_size=5
    ),
    seed=st.integers(0, 1 << 30),
)
def test_percentiles_over_processes_are_those_of_all_requests_together(
    parts: list[list[float]], seed: int
) -> None:
    """Whichever process answered which request, and however often each of them told."""
    rng = random.Random(seed)
    gathered, alone = MetricRegistry(), MetricRegistry()
    everything = sorted(itertools.chain(*parts))
    recorder = alone.recorder(*SHOP)
    for value in everything:
        answer(recorder, value)
    alone.collect(T0)
    for number, values in enumerate(parts):
        gateway = MetricRegistry()
        recorder = gateway.recorder(*SHOP)
        for value in values:
            answer(recorder, value)
            if rng.random() < 0.2:
                gathered.add_delta(f"gateway-{number}", gateway.take_delta(T0))
        gathered.add_delta(f"gateway-{number}", gateway.take_delta(T0))
    assert whole(gathered).requests == whole(alone).requests
    for name in ("total_s", "queue_s", "run_s"):
        assert getattr(whole(gathered), name) == getattr(whole(alone), name)
    for q in (0.5, 0.9, 0.99):
        if everything:
            exact = everything[int(q * (len(everything) - 1))]
            assert whole(gathered).run_s.quantile(q) == pytest.approx(exact, rel=RELATIVE_ERROR)


def test_counts_of_a_process_that_died_stay_and_its_gauges_leave() -> None:
    registry = MetricRegistry()
    seen: list[tuple[int, float, int]] = []

    def look() -> None:
        totals = whole(registry)
        seen.append((totals.answers, totals.total_s.count, registry.in_flight(*SHOP)))

    for _ in range(2):  # the second one has the name of the first
        gateway = MetricRegistry()
        recorder = gateway.recorder(*SHOP)
        answer(recorder)
        recorder.started()
        registry.add_delta("gateway-1", gateway.take_delta(T0))
        look()
        registry.forget("gateway-1")
        look()
    assert seen == [(1, 1, 1), (1, 1, 0), (2, 2, 1), (2, 2, 0)]
    assert registry.lags == {}


def test_the_process_that_tells_keeps_totals_of_its_own() -> None:
    gateway = MetricRegistry()
    recorder = gateway.recorder(*SHOP)
    for second in range(30):
        answer(recorder)
        gateway.take_delta(T0 + second)
    assert whole(gateway).answers == 30
    assert len(whole(gateway).windows) <= 2  # windows are of use where the store is


def test_what_is_not_taken_waits_for_the_next_delta() -> None:
    """A process whose listener is away tells everything once he is back."""
    gateway, registry = MetricRegistry(), MetricRegistry()
    recorder = gateway.recorder(*SHOP)
    for _ in range(3):
        answer(recorder)
        gateway.drain()
    registry.add_delta("a", gateway.take_delta(T0 + 60))
    assert whole(registry).answers == 3
    assert whole(registry).run_s.count == 3


def test_the_last_words_about_a_variant_that_is_gone_do_not_bring_it_back() -> None:
    registry, gateway = MetricRegistry(), MetricRegistry()
    registry.set_instance_count(*SHOP, 1)
    answer(gateway.recorder(*SHOP))
    registry.add_delta("a", gateway.take_delta(T0))
    registry.keep((), (), T0)
    registry.collect(T0 + KEPT_S)
    answer(gateway.recorder(*SHOP))
    registry.add_delta("a", gateway.take_delta(T0 + 1))
    assert registry.totals == {}
    registry.set_instance_count(*SHOP, 1)  # another endpoint of the same name
    answer(gateway.recorder(*SHOP))
    registry.add_delta("a", gateway.take_delta(T0 + 2))
    assert whole(registry).answers == 1


def test_the_last_words_about_a_component_that_is_gone_count_for_nothing() -> None:
    registry, gateway = MetricRegistry(), MetricRegistry()
    pool = (*SHOP, "chat")
    registry.set_component_copies(pool, {"ready": 1})
    registry.keep({SHOP}, (), T0)
    registry.collect(T0 + KEPT_S)
    answer(gateway.recorder(*pool))
    registry.add_delta("a", gateway.take_delta(T0))
    assert registry.components[SHOP] == {}
    registry.set_component_copies(pool, {"ready": 1})
    answer(gateway.recorder(*pool))
    registry.add_delta("a", gateway.take_delta(T0 + 1))
    assert registry.components[SHOP]["chat"].answers == 1


def test_loops_of_all_processes_are_seen_by_name() -> None:
    registry, gateway = MetricRegistry(process="control"), MetricRegistry()
    gateway.loop_lag.note(0.2, now=0.0)
    registry.add_delta("gateway-2", gateway.take_delta(T0))
    assert registry.lags["gateway-2"].max_s == 0.2
    body, _ = PrometheusPage(registry).render()
    names = {
        sample.labels["process"]
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if family.name == "penstock_loop_lag_max_seconds"
    }
    assert names == {"control", "gateway-2"}


def test_series_of_cloudwatch_are_made_of_what_all_told() -> None:
    """Ten seconds' invocations and their P99 over two processes, one fast and one slow."""
    store = MetricStore()
    registry = MetricRegistry(store, lag_s=2)
    fast, slow = MetricRegistry(), MetricRegistry()
    for second in range(13):
        for name, gateway, run_s in (("fast", fast, 0.010), ("slow", slow, 1.0)):
            for _ in range(9 if name == "fast" else 1):
                if second < 10:
                    answer(gateway.recorder(*SHOP), run_s)
            registry.add_delta(name, gateway.take_delta(T0 + second))
        registry.collect(T0 + second)
    key = metric_key(
        "AWS/SageMaker", "ModelLatency", {"EndpointName": "shop", "VariantName": "main"}
    )
    points = store.read_merged(key.metric, T0, T0 + 20, 20)
    (stats,) = points.values()
    assert stats.count == 100
    assert stats.quantile(0.5) == pytest.approx(12_000, rel=0.02)
    assert stats.quantile(0.95) == pytest.approx(1_002_000, rel=0.02)
