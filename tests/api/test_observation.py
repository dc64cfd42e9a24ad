"""Utilization of instances out of what their processes say."""

from __future__ import annotations

from pathlib import Path

from penstock.api.observation import engines, held, memory_percent
from penstock.control.instances.instance_status import cpu_percent, cpu_seconds
from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType
from penstock.metrics.utilization.cost import InstanceHeld

VIEW = InstanceView(
    instance_id="i-1",
    variant="all",
    generation=1,
    phase="running",
    instance_type="ml.local.small",
    resources=ComputeResources(cores=1.0, memory_bytes=1000),
    memory_bytes=250,
    pid=1,
    log_path=Path("/nowhere"),
    copies=(CopyView(copy=1, component="all", phase="ready", load_s=0.5, model_memory_bytes=100),),
)


def test_memory_is_a_share_of_what_the_instance_was_given() -> None:
    assert memory_percent({"memory_bytes": 250}, VIEW) == 25.0


def test_cost_and_energy_are_those_of_the_instance_type() -> None:
    kind = InstanceType(
        name="ml.g5.xlarge",
        resources=ComputeResources(cores=1.0, memory_bytes=1000, accelerators=1),
        price_per_hour=1.408,
        watts=326.4,
    )
    assert held("shop", VIEW, kind, 4000) == InstanceHeld(
        endpoint="shop",
        variant="all",
        instance_id="i-1",
        cores=1.0,
        accelerators=1,
        watts=326.4,
        price_per_hour=1.408,
        load_s=0.5,
        instance_type="ml.local.small",
        memory_bytes=1000,
    )


def test_processor_time_counts_the_workers_too() -> None:
    status = {"cpu_s": 1.0, "copies": [{"workers": [{"cpu_s": 2.0}, {"cpu_s": 0.5}]}]}
    assert cpu_seconds(status) == 3.5


def test_a_core_that_is_always_busy_is_100_percent() -> None:
    assert cpu_percent((10.0, 5.0), (12.0, 7.0)) == 100.0


def test_nothing_is_said_of_processor_time_at_first_and_after_a_worker_was_replaced() -> None:
    assert cpu_percent(None, (12.0, 7.0)) is None
    assert cpu_percent((10.0, 5.0), (12.0, 1.0)) is None


def test_engines_add_up_and_the_fullest_cache_counts() -> None:
    first = {"sequences_running": 3, "sequences_waiting": 1, "cache_use": 0.25}
    second = {"sequences_running": 2, "sequences_waiting": 0, "cache_use": 0.5}
    status = {"copies": [{"generation": first}, {"workers": []}, {"generation": second}]}
    assert engines(status) == {
        "sequences_running": 5,
        "sequences_waiting": 1,
        "cache_percent": 50.0,
    }
    assert engines({"copies": [{"workers": []}]}) == {}
