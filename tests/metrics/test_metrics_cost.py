"""What serving costs: who bears which joules and dollars, idle time included."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import (
    ESTIMATED,
    NVML_ESTIMATED,
    RAPL,
    RAPL_NVML,
    Accounts,
    Charge,
    InstanceHeld,
    InstanceTime,
    MachineRead,
    divided,
)
from penstock.metrics.utilization.instances import InstanceSample

T0 = 1_700_000_000


def instance(
    name: str, *, cores: float = 2.0, accelerators: int = 0, load_s: float = 0.0
) -> InstanceHeld:
    """16 W and 0.036 dollars an hour: 0.00001 dollars a second."""
    return InstanceHeld(
        endpoint="shop",
        variant=name,
        instance_id=name,
        cores=cores,
        accelerators=accelerators,
        watts=16.0,
        price_per_hour=0.036,
        load_s=load_s,
    )


def machine(
    *, boards: int = 0, host_j: float | None = None, boards_j: float | None = None
) -> MachineRead:
    return MachineRead(interval_s=10.0, cores=4.0, boards=boards, host_j=host_j, boards_j=boards_j)


def test_idle_core_seconds_are_borne_by_those_that_hold_cores() -> None:
    """40 core seconds: a used 20, b none; the 20 idle ones are shared by 1 core against 3."""
    held = [
        InstanceTime(instance("a", cores=1.0), 10.0, busy_s=20.0),
        InstanceTime(instance("b", cores=3.0), 10.0),
    ]
    assert divided(held, machine(host_j=400.0)) == [(250.0, RAPL), (150.0, RAPL)]


def test_a_machine_that_serves_nobody_is_charged_to_nobody() -> None:
    assert divided([], machine(host_j=400.0)) == []


def test_an_instance_that_was_held_for_half_the_time_bears_less_idleness() -> None:
    held = [InstanceTime(instance("a"), 10.0), InstanceTime(instance("b"), 5.0)]
    [(a, _), (b, _)] = divided(held, machine(host_j=300.0))
    assert (a, b) == (pytest.approx(200.0), pytest.approx(100.0))


def test_boards_are_divided_by_how_many_an_instance_holds() -> None:
    held = [
        InstanceTime(instance("a", accelerators=3), 10.0),
        InstanceTime(instance("b", accelerators=1), 10.0),
        InstanceTime(instance("c"), 10.0),
    ]
    found = divided(held, machine(boards=4, host_j=300.0, boards_j=4000.0))
    assert found == [
        (pytest.approx(3100.0), RAPL_NVML),
        (pytest.approx(1100.0), RAPL_NVML),
        (pytest.approx(100.0), RAPL_NVML),
    ]


def test_boards_that_nobody_holds_idle_with_the_host() -> None:
    held = [
        InstanceTime(instance("a", cores=3.0), 10.0),
        InstanceTime(instance("b", cores=1.0), 10.0),
    ]
    found = divided(held, machine(boards=1, host_j=100.0, boards_j=800.0))
    assert found == [(675.0, RAPL_NVML), (225.0, RAPL_NVML)]


def test_with_boards_measured_alone_the_host_is_estimated_by_its_cores() -> None:
    """8 W a core: 2 cores for 10 s are 160 J."""
    held = [InstanceTime(instance("a", accelerators=1), 10.0), InstanceTime(instance("b"), 10.0)]
    found = divided(held, machine(boards=1, boards_j=3000.0))
    assert found == [(3160.0, NVML_ESTIMATED), (160.0, ESTIMATED)]


def test_the_host_alone_says_nothing_of_an_instance_that_computes_on_boards() -> None:
    held = [InstanceTime(instance("a", accelerators=1), 10.0), InstanceTime(instance("b"), 10.0)]
    found = divided(held, machine(boards=1, host_j=200.0))
    assert found == [(160.0, ESTIMATED), (100.0, RAPL)]


def test_nothing_measured_is_the_watts_of_the_type() -> None:
    assert divided([InstanceTime(instance("a"), 10.0)], machine()) == [(160.0, ESTIMATED)]


def test_money_is_charged_for_each_second_from_the_cold_start_on() -> None:
    accounts = Accounts()
    accounts.note([instance("a", load_s=5.0)], 0.0)
    for _ in range(10):
        accounts.note([instance("a", load_s=5.0)], 1.0)
    assert accounts.charge({}, machine()) == [
        Charge("shop", "a", 80.0, pytest.approx(0.00005), ESTIMATED),
        Charge("shop", "a", 160.0, pytest.approx(0.0001), ESTIMATED),
    ]
    accounts.note([instance("a", load_s=5.0)], 1.0)
    assert accounts.charge({}, machine()) == [
        Charge("shop", "a", 16.0, pytest.approx(0.00001), ESTIMATED)
    ]


def test_an_instance_that_left_before_the_charge_still_pays() -> None:
    accounts = Accounts()
    for held in ([instance("a")], [instance("a")], []):
        accounts.note(held, 2.0)
    [cold, charged] = accounts.charge({}, machine())
    assert (cold.joules, charged.joules) == (0.0, 32.0)
    assert accounts.charge({}, machine()) == []


def test_cores_kept_busy_count_for_the_seconds_they_were_held() -> None:
    accounts = Accounts()
    pair = [instance("a"), instance("b")]
    accounts.note(pair, 0.0)
    accounts.charge({}, machine())
    accounts.note(pair, 10.0)
    charges = accounts.charge({"a": 2.0}, machine(host_j=400.0))
    assert [one.joules for one in charges] == [300.0, 100.0]


class CostSite:
    """One variant whose answers and charges are told literally."""

    def __init__(self) -> None:
        self.store = MetricStore()
        self.registry = MetricRegistry(self.store)
        self.recorder = self.registry.recorder("shop", "main")

    def interval(
        self, at: int, *, answers: int = 0, failures: int = 0, tokens: int = 0, dollars: float = 0.6
    ) -> None:
        """One charge of 300 measured joules and `dollars`; half of each answer's tokens are in."""
        for number in range(answers + failures):
            self.recorder.started()
            self.recorder.finished(200 if number < answers else 503, 0.1, 0.0, 0.1)
            if tokens:
                self.recorder.generated(tokens // 2, tokens // 2, 0.01, 0.01)
        self.registry.collect(T0 + at)
        self.registry.add_charges(
            [Charge("shop", "main", 300.0, dollars, RAPL, "ml.m5.large")], T0 + at
        )

    def read(self, name: str, source: str = "") -> StatisticSet:
        """All of two minutes."""
        dimensions = {"EndpointName": "shop", "VariantName": "main"}
        key = metric_key("Penstock", name, dimensions | ({"Source": source} if source else {}))
        whole = StatisticSet()
        for stats in self.store.read_merged(key.metric, T0 - 60, T0 + 120, 60).values():
            whole.merge(stats)
        return whole

    def page(self) -> dict[str, float]:
        body, _ = PrometheusPage(self.registry, self.store).render()
        return {
            f"{sample.name}{sorted(sample.labels.values())}": sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }


def test_what_idle_time_cost_is_borne_by_the_answers_around_it() -> None:
    site = CostSite()
    site.interval(0, answers=1)
    site.interval(10)
    site.interval(20, answers=2)
    assert site.read("Cost").total == pytest.approx(1.8)
    assert site.read("CostPerRequest").average == pytest.approx(0.6)
    assert site.read("EnergyPerRequest").average == pytest.approx(300.0)


def test_what_failed_answered_nothing_and_is_borne_by_the_rest() -> None:
    site = CostSite()
    site.interval(0, answers=2, failures=4)
    assert site.read("CostPerRequest").average == pytest.approx(0.3)
    assert site.page()["penstock_request_cost_dollars['main', 'shop']"] == pytest.approx(0.3)


def test_tokens_in_and_out_bear_the_same_cost_as_another_division_of_it() -> None:
    site = CostSite()
    site.interval(0, answers=3, tokens=200)
    assert site.read("CostPerThousandTokens").average == pytest.approx(1.0)
    assert site.read("EnergyPerThousandTokens").average == pytest.approx(500.0)
    page = site.page()
    assert page["penstock_thousand_tokens_cost_dollars['main', 'shop']"] == pytest.approx(1.0)
    assert page["penstock_thousand_tokens_energy_joules['main', 'shop']"] == pytest.approx(500.0)


def test_a_variant_without_answers_has_a_cost_and_no_cost_per_answer() -> None:
    site = CostSite()
    site.interval(0)
    page = site.page()
    assert page["penstock_cost_dollars_total['main', 'shop']"] == pytest.approx(0.6)
    assert page["penstock_energy_joules_total['main', 'rapl', 'shop']"] == pytest.approx(300.0)
    assert not any(name.startswith("penstock_request_cost") for name in page)
    assert site.read("CostPerRequest").count == 0


def test_energy_says_where_it_is_from() -> None:
    site = CostSite()
    site.interval(0)
    site.registry.add_charges([Charge("shop", "main", 50.0, 0.1, ESTIMATED)], T0 + 10)
    assert site.read("Energy").total == 350.0
    assert site.read("Energy", RAPL).total == 300.0
    assert site.read("Energy", ESTIMATED).total == 50.0


def test_the_gauges_forget_what_is_older_than_an_hour() -> None:
    site = CostSite()
    site.interval(0, answers=1, dollars=9.0)
    site.interval(3000, answers=1, dollars=1.0)
    assert site.page()["penstock_request_cost_dollars['main', 'shop']"] == pytest.approx(5.0)
    site.interval(3660, answers=1, dollars=2.0)
    assert site.page()["penstock_request_cost_dollars['main', 'shop']"] == pytest.approx(1.5)


def test_a_variant_that_is_gone_is_charged_a_last_time_and_stays_gone() -> None:
    site = CostSite()
    site.registry.keep((), (), T0 - KEPT_S)
    site.registry.collect(T0)
    site.registry.add_charges([Charge("shop", "main", 1.0, 0.5, RAPL)], T0)
    assert site.read("Cost").total == 0.5
    assert site.registry.totals == {}


def test_busy_cores_are_those_of_the_last_sample() -> None:
    registry = MetricRegistry()
    for name, percent in (("i-1", 150.0), ("i-2", None)):
        sample = InstanceSample(
            endpoint="shop", variant="main", instance_id=name, cpu_percent=percent, cpu_cores=2
        )
        registry.add_instance_sample(sample, T0)
    assert registry.busy_cores() == {"i-1": 1.5}


def test_an_account_can_be_read_as_json() -> None:
    site = CostSite()
    site.interval(0, answers=2)
    assert site.registry.costs() == [
        {
            "endpoint": "shop",
            "variant": "main",
            "dollars": 0.6,
            "dollars_by_type": {"ml.m5.large": 0.6},
            "joules": {"rapl": 300.0},
            "dollars_per_request": 0.3,
            "joules_per_request": 150.0,
            "dollars_per_thousand_tokens": None,
            "joules_per_thousand_tokens": None,
        }
    ]
