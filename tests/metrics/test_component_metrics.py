"""Metrics of inference components: by component, by copy, and added up by variant."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.store import MetricStore

T0 = 1_700_000_000
V = {"EndpointName": "shop", "VariantName": "main"}
C = {"InferenceComponentName": "chat"}


def answer(recorder: VariantRecorder) -> None:
    recorder.started()
    recorder.finished(200, 0.010, 0.002, 0.006, 4, "runtime")


class ComponentMetricsSite:
    def __init__(self) -> None:
        self.store = MetricStore()
        self.registry = MetricRegistry(self.store)
        self.chat = self.registry.recorder("shop", "main", "chat")
        self.search = self.registry.recorder("shop", "main", "search")

    def copies(self, component: str, **states: int) -> None:
        self.registry.set_copies("shop", "main", states)
        self.registry.set_component_copies(("shop", "main", component), states)

    def read(self, name: str, dimensions: dict[str, str], period_s: int = 10) -> list[object]:
        """(samples, sum) of each period."""
        metric = metric_key("AWS/SageMaker", name, dimensions).metric
        found = self.store.read_merged(metric, T0, T0 + 60, period_s)
        return [(stats.count, stats.total) for _, stats in sorted(found.items())]

    def collect(self) -> None:
        for second in range(11):
            self.registry.collect(T0 + second)

    def rows(self, family: str) -> dict[tuple[str, ...], float]:
        """Values of the labels but the endpoint -> value."""
        body, _ = PrometheusPage(self.registry).render()
        return {
            tuple(value for name, value in sample.labels.items() if name != "endpoint"): (
                sample.value
            )
            for one in text_string_to_metric_families(body.decode())
            for sample in one.samples
            if one.name == family and sample.name in (family, f"{family}_total")
        }


def test_a_components_requests_are_its_own_and_its_variants() -> None:
    site = ComponentMetricsSite()
    site.registry.collect(T0)
    for recorder in (site.chat, site.chat, site.search):
        answer(recorder)
    site.chat.no_capacity()
    site.registry.collect(T0 + 10)
    for name, of_chat, of_all in (
        ("Invocations", (2, 2), (3, 3)),
        ("NoCapacityInvocationFailures", (2, 1), (3, 1)),
        ("Invocation5XXErrors", (2, 0), (3, 0)),
    ):
        assert site.read(name, C) == site.read(name, C | V) == [of_chat]
        assert site.read(name, V) == [of_all]
    assert site.read("InvocationsPerInstance", C) == site.read("InvocationsPerCopy", V) == []


def test_invocations_are_shared_by_the_copies_that_are_ready() -> None:
    site = ComponentMetricsSite()
    site.copies("chat", ready=4, loading=2)
    site.registry.collect(T0)
    for _ in range(6):
        answer(site.chat)
    site.registry.collect(T0 + 10)
    assert site.read("InvocationsPerCopy", C) == [(6, 1.5)]


def test_concurrency_per_copy_is_what_one_of_them_has_in_flight_on_average() -> None:
    """Six requests on two copies: in each second two samples of three. What waits in a copy's
    queue is in flight, and so is what has streamed a part of its answer."""
    site = ComponentMetricsSite()
    site.copies("chat", ready=2)
    for _ in range(6):
        site.chat.started()
    site.chat.streamed(0.1)
    site.search.started()
    site.collect()
    per_copy = site.read("ConcurrentRequestsPerCopy", C, period_s=1)
    assert per_copy == [(2, 6.0)] * 10
    assert site.read("ConcurrentRequestsPerCopy", C | V) == [(20, 60.0)]
    assert site.read("ConcurrentRequestsPerModel", V, period_s=1) == [(1, 7.0)] * 10


def test_requests_that_wait_at_zero_copies_are_seen_whole() -> None:
    site = ComponentMetricsSite()
    site.copies("chat")
    for _ in range(3):
        site.chat.started()
    site.collect()
    assert site.read("ConcurrentRequestsPerCopy", C, period_s=1) == [(1, 3.0)] * 10


def test_concurrency_of_a_variant_is_per_instance() -> None:
    registry = MetricRegistry(MetricStore())
    store = registry._store
    assert store is not None
    recorder = registry.recorder("shop", "main")
    registry.set_instance_count("shop", "main", 4)
    for _ in range(10):
        recorder.started()
    for second in range(11):
        registry.collect(T0 + second)
    metric = metric_key("AWS/SageMaker", "ConcurrentRequestsPerModel", V).metric
    (stats,) = store.read_merged(metric, T0, T0 + 60, 10).values()
    assert (stats.average, stats.total) == (2.5, 100.0)


def test_processes_add_up_by_component() -> None:
    site = ComponentMetricsSite()
    gateway = MetricRegistry()
    recorder = gateway.recorder("shop", "main", "chat")
    site.chat.started()
    for _ in range(2):
        recorder.started()
    site.registry.add_delta("a", gateway.take_delta(T0))
    assert site.registry.in_flight("shop", "main", "chat") == 3
    assert site.registry.in_flight("shop", "main", "search") == 0
    assert site.registry.in_flight("shop", "main") == 3
    site.registry.forget("a")
    assert site.registry.in_flight("shop", "main") == 1


def test_prometheus_rows_add_up_to_the_variant_and_name_the_component() -> None:
    site = ComponentMetricsSite()
    other = site.registry.recorder("shop", "main")
    other.refused("component-required", 400)
    site.copies("chat", ready=2, loading=1)
    answer(site.chat)
    site.chat.started()
    answer(site.search)
    site.registry.collect(T0)
    requests = {frozenset(key): value for key, value in site.rows("penstock_requests").items()}
    assert requests == {
        frozenset({"main", "runtime", "ok", "chat"}): 1,
        frozenset({"main", "runtime", "ok", "search"}): 1,
        frozenset({"main", "runtime", "refused"}): 1,
    }
    in_flight = {frozenset(key): value for key, value in site.rows("penstock_in_flight").items()}
    assert in_flight == {
        frozenset({"main", "chat"}): 1,
        frozenset({"main", "search"}): 0,
        frozenset({"main"}): 0,
    }
    copies = {frozenset(key): value for key, value in site.rows("penstock_copies").items()}
    assert copies == {
        frozenset({"main", "chat", "ready"}): 2,
        frozenset({"main", "chat", "loading"}): 1,
    }


def test_a_component_that_is_gone_leaves_no_gauges() -> None:
    site = ComponentMetricsSite()
    site.copies("chat", ready=1)
    site.registry.collect(T0)
    shop = "shop", "main"
    site.registry.keep({shop}, {(*shop, "search")}, T0)
    site.registry.collect(T0 + KEPT_S)
    assert [set(key) for key in site.rows("penstock_in_flight")] == [{"main", "search"}]
    site.registry.keep((), (), T0)
    site.registry.collect(T0 + KEPT_S)
    assert site.rows("penstock_in_flight") == {}


def test_an_adapters_requests_are_load_of_its_base_and_count_once_for_the_variant() -> None:
    """What scales the base sees them; what counts answers has them under their own name."""
    site = ComponentMetricsSite()
    adapter = site.registry.recorder("shop", "main", "lora")
    adapter.base = "chat"
    for recorder in (site.chat, adapter, adapter):
        recorder.started()
    site.collect()
    assert site.read("ConcurrentRequestsPerCopy", C) == [(10, 30.0)]
    lora = {"InferenceComponentName": "lora"}
    assert site.read("ConcurrentRequestsPerCopy", lora) == [(10, 20.0)]
    assert site.read("ConcurrentRequestsPerModel", V) == [(10, 30.0)]
    assert site.registry.in_flight("shop", "main", "chat") == 3
    assert site.registry.in_flight("shop", "main", "lora") == 2
    assert site.registry.in_flight("shop", "main") == 3


def test_load_of_an_adapter_that_another_process_tells_of_is_its_bases_too() -> None:
    """Only the gateways have recorders then, and know whose copies an adapter shares."""
    site, other = ComponentMetricsSite(), MetricRegistry()
    adapter = other.recorder("shop", "main", "lora")
    adapter.base = "chat"
    adapter.started()
    site.registry.add_delta("gateway-2", other.take_delta(T0))
    assert site.registry.in_flight("shop", "main", "chat") == 1
    site.collect()
    assert site.read("ConcurrentRequestsPerCopy", C) == [(10, 1.0)]


def test_pairs_of_answers_are_counted_by_rollout_and_component() -> None:
    """Two components may be updated in the same millisecond."""
    site = ComponentMetricsSite()
    for recorder, outcome, count in (
        (site.chat, "agree", 3), (site.chat, "differ", 1), (site.search, "agree", 5),
    ):  # fmt: skip
        for _ in range(count):
            recorder.compared(7, outcome)
    site.chat.compared(8, "agree")
    site.registry.collect(T0)
    assert site.registry.compared("shop", 7, "chat") == {"agree": 3, "differ": 1}
    assert site.registry.compared("shop", 7, "search") == {"agree": 5}
    assert site.registry.compared("shop", 7, "none") == site.registry.compared("x", 7, "chat") == {}
    assert site.registry.compared("shop", 8) == {"agree": 1}
