"""`fleet/catalogue.py`: what a name asks for, and what this machine gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.placement import MachineCapacity
from penstock.errors import CallerError
from penstock.fleet.base import InstanceType
from penstock.fleet.catalogue import InstanceCatalogue
from penstock.fleet.machine import this_machine

GIB = 2**30
LAPTOP = InstanceCatalogue(MachineCapacity(cores=8.0, memory_bytes=16 * GIB))


def test_a_local_type_is_what_it_says() -> None:
    kind = LAPTOP.resolve("ml.local.medium")
    assert (kind.cores, kind.memory_bytes, kind.accelerators) == (2.0, 2 * GIB, 0)


def test_the_machine_type_is_all_of_the_machine() -> None:
    catalogue = InstanceCatalogue(MachineCapacity(cores=6, memory_bytes=9 * GIB, accelerators=2))
    kind = catalogue.resolve("ml.local.machine")
    assert (kind.cores, kind.memory_bytes, kind.accelerators) == (6.0, 9 * GIB, 2)


def test_a_small_aws_type_keeps_its_size_price_and_watts() -> None:
    assert LAPTOP.resolve("ml.c5.large") == InstanceType(
        name="ml.c5.large",
        cores=2.0,
        memory_bytes=4 * GIB,
        accelerators=0,
        price_per_hour=0.102,
        watts=11.6,
    )


def test_a_large_aws_type_shrinks_to_the_cores_and_to_half_the_memory() -> None:
    """Half: an update must find room for the new generation beside the old one."""
    kind = LAPTOP.resolve("ml.p4d.24xlarge")
    assert (kind.cores, kind.memory_bytes, kind.accelerators) == (8.0, 8 * GIB, 0)
    assert kind.price_per_hour == 37.69


def test_accelerators_are_those_that_the_machine_has() -> None:
    catalogue = InstanceCatalogue(MachineCapacity(cores=64, memory_bytes=999 * GIB, accelerators=1))
    assert catalogue.resolve("ml.g5.12xlarge").accelerators == 1
    assert catalogue.resolve("ml.m5.large").accelerators == 0


def test_a_name_that_aws_may_bring_out_one_day_is_accepted() -> None:
    kind = InstanceCatalogue(MachineCapacity(cores=99, memory_bytes=999 * GIB)).resolve(
        "ml.z9q.4xlarge"
    )
    assert (kind.cores, kind.memory_bytes) == (16.0, 64 * GIB)


@pytest.mark.parametrize("name", ["", "m5.large", "ml.m5", "ml.m5.large; rm", "ML.M5.LARGE"])
def test_what_is_no_instance_type_is_refused(name: str) -> None:
    with pytest.raises(CallerError) as raised:
        LAPTOP.resolve(name)
    assert raised.value.code == "unknown-instance-type"


def test_every_listed_type_resolves_with_a_price_and_watts() -> None:
    for name in LAPTOP.names():
        kind = LAPTOP.resolve(name)
        assert kind.price_per_hour > 0, name
        assert kind.watts > 0, name
        assert 0 < kind.cores <= 8.0, name
        assert 0 < kind.memory_bytes <= 16 * GIB, name


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{4 * GIB}\n")
    assert this_machine((limit,)).memory_bytes == 4 * GIB - int(4 * GIB * 0.1)
    limit.write_text("max\n")
    assert this_machine((limit,)).memory_bytes == this_machine(()).memory_bytes


def test_a_slip_in_a_name_of_our_own_family_is_told_and_not_guessed() -> None:
    """AWS's list grows faster than ours, so its unknown names pass; our own list is complete."""
    catalogue = InstanceCatalogue(MachineCapacity(cores=8, memory_bytes=32 << 30))
    with pytest.raises(CallerError, match=r"ml\.local\.smal"):
        catalogue.resolve("ml.local.smal")
    assert catalogue.resolve("ml.m99.large").cores > 0
