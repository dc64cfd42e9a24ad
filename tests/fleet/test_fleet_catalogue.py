"""`fleet/catalogue.py`: what a name asks for, and what this machine gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.resources import ComputeResources
from penstock.errors import CallerError
from penstock.fleet.base import InstanceType
from penstock.fleet.catalogue import InstanceCatalogue
from penstock.fleet.machine import available_bytes, memory_groups, this_machine

GIB = 2**30
LAPTOP = InstanceCatalogue(ComputeResources(cores=8.0, memory_bytes=16 * GIB))


def test_a_local_type_is_what_it_says() -> None:
    kind = LAPTOP.resolve("ml.local.medium")
    assert kind.resources == ComputeResources(cores=2.0, memory_bytes=2 * GIB)


def test_the_machine_type_is_all_of_the_machine() -> None:
    catalogue = InstanceCatalogue(ComputeResources(cores=6, memory_bytes=9 * GIB, accelerators=2))
    kind = catalogue.resolve("ml.local.machine")
    assert kind.resources == ComputeResources(cores=6.0, memory_bytes=9 * GIB, accelerators=2)


def test_of_many_machines_none_is_the_machine() -> None:
    cluster = ComputeResources(cores=1e6, memory_bytes=2**60, accelerators=10**6)
    catalogue = InstanceCatalogue(cluster, strict=True, many_machines=True)
    assert "ml.local.machine" not in catalogue.names()
    with pytest.raises(CallerError, match=r"ml\.local\.machine"):
        catalogue.resolve("ml.local.machine")
    kind = catalogue.resolve("ml.m5.xlarge")  # whole, and promised
    assert kind.resources == ComputeResources(cores=4.0, memory_bytes=16 * GIB)
    assert kind.promised


def test_a_small_aws_type_keeps_its_size_price_and_watts() -> None:
    assert LAPTOP.resolve("ml.c5.large") == InstanceType(
        name="ml.c5.large",
        resources=ComputeResources(cores=2.0, memory_bytes=4 * GIB),
        promised=False,
        share_bytes=4 * GIB,
        price_per_hour=0.102,
        watts=11.6,
    )


def test_a_large_aws_type_shrinks_to_the_machine() -> None:
    """It reserves nothing, so one instance may grow to all that there is."""
    kind = LAPTOP.resolve("ml.p4d.24xlarge")
    assert kind.resources == ComputeResources(cores=8.0, memory_bytes=16 * GIB)
    assert kind.share_bytes == 8 * GIB  # caches: those of two generations fit
    assert kind.price_per_hour == 37.69


def test_where_aws_types_are_reserved_they_get_half_of_the_memory_at_most() -> None:
    """Half: an update must find room for the new generation beside the old one."""
    strict = InstanceCatalogue(LAPTOP.machine, strict=True)
    assert strict.resolve("ml.p4d.24xlarge").resources.memory_bytes == 8 * GIB
    assert strict.resolve("ml.c5.large").resources.memory_bytes == 4 * GIB


def test_what_else_could_have_been_bought_is_of_the_same_house_and_kind() -> None:
    """A bill compares a shared instance with what one would buy for a model alone."""
    small, *others = [kind.name for kind in LAPTOP.offers(["ml.local.large"])]
    assert small == "ml.local.small"
    assert all(name.startswith("ml.local.") for name in others)
    without = LAPTOP.offers(["ml.m5.xlarge"])
    assert [kind.price_per_hour for kind in without] == sorted(k.price_per_hour for k in without)
    names = {kind.name for kind in without}
    assert "ml.c5.large" in names
    assert not any(name.startswith(("ml.local.", "ml.g4dn.", "ml.p4d.")) for name in names)
    boards = {kind.name for kind in LAPTOP.offers(["ml.m5.xlarge", "ml.g4dn.xlarge"])}
    assert {"ml.g4dn.xlarge", "ml.p4d.24xlarge"} <= boards
    assert "ml.c5.large" not in boards
    with_boards = InstanceCatalogue(
        ComputeResources(cores=6, memory_bytes=9 * GIB, accelerators=2)
    ).offers(["ml.local.machine"])
    assert [kind.name for kind in with_boards] == ["ml.local.machine"]


def test_own_types_are_promises_and_names_of_aws_are_bounds() -> None:
    strict = InstanceCatalogue(LAPTOP.machine, strict=True)
    for name in LAPTOP.names():
        assert LAPTOP.resolve(name).promised == name.startswith("ml.local."), name
        assert strict.resolve(name).promised, name
    assert not LAPTOP.resolve("ml.z9q.4xlarge").promised


def test_accelerators_are_those_that_the_machine_has() -> None:
    catalogue = InstanceCatalogue(
        ComputeResources(cores=64, memory_bytes=999 * GIB, accelerators=1)
    )
    assert catalogue.resolve("ml.g5.12xlarge").resources.accelerators == 1
    assert catalogue.resolve("ml.m5.large").resources.accelerators == 0


def test_a_name_that_aws_may_bring_out_one_day_is_accepted() -> None:
    kind = InstanceCatalogue(ComputeResources(cores=99, memory_bytes=999 * GIB)).resolve(
        "ml.z9q.4xlarge"
    )
    assert kind.resources == ComputeResources(cores=16.0, memory_bytes=64 * GIB)


@pytest.mark.parametrize("name", ["", "m5.large", "ml.m5", "ml.m5.large; rm", "ML.M5.LARGE"])
def test_what_is_no_instance_type_is_refused(name: str) -> None:
    with pytest.raises(CallerError) as raised:
        LAPTOP.resolve(name)
    assert raised.value.code == "unknown-instance-type"


def test_every_listed_type_resolves_with_a_price_and_watts() -> None:
    assert len(LAPTOP.names()) > 3
    for name in LAPTOP.names():
        kind = LAPTOP.resolve(name)
        assert kind.price_per_hour > 0, name
        assert kind.watts > 0, name
        assert 0 < kind.resources.cores <= 8.0, name
        assert 0 < kind.resources.memory_bytes <= 16 * GIB, name


def cgroup(folder: Path, limit: str, current: int, stat: str = "", *, first: bool = False) -> Path:
    """A control group's files, of the second kind or of the first."""
    folder.mkdir(parents=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else (
        "memory.max", "memory.current")  # fmt: skip
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{current}\n")
    (folder / "memory.stat").write_text(stat)
    return folder


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    limited = cgroup(tmp_path / "a", str(4 * GIB), 0)
    assert this_machine([limited]).memory_bytes == 4 * GIB - int(4 * GIB * 0.1)
    unlimited = cgroup(tmp_path / "b", "max", 0)
    assert this_machine([unlimited]).memory_bytes == this_machine([]).memory_bytes
    assert this_machine([unlimited, limited]).memory_bytes == 4 * GIB - int(4 * GIB * 0.1)


def memory_info(folder: Path, available_bytes: int) -> Path:
    path = folder / "meminfo"
    path.write_text(
        f"MemTotal:       16000000 kB\nMemAvailable:   {available_bytes // 1024} kB\nSwap: 0 kB\n"
    )
    return path


def test_what_is_free_is_what_the_kernel_says(tmp_path: Path) -> None:
    assert available_bytes([], memory_info(tmp_path, 3 * GIB)) == 3 * GIB
    assert available_bytes([], tmp_path / "not there") is None


def test_a_container_has_free_what_its_limit_leaves(tmp_path: Path) -> None:
    """Pages of files are charged to it, and go when memory is short."""
    info = memory_info(tmp_path, 30 * GIB)
    stat = f"anon {2 * GIB}\ninactive_file {GIB}\nactive_file {GIB // 2}\n"
    second = cgroup(tmp_path / "2", str(4 * GIB), 3 * GIB + GIB // 2, stat)
    assert available_bytes([second], info) == 2 * GIB
    stat = f"inactive_file 5\ntotal_inactive_file {GIB}\ntotal_active_file {GIB // 2}\n"
    first = cgroup(tmp_path / "1", str(4 * GIB), 4 * GIB, stat, first=True)
    assert available_bytes([second, first], info) == GIB + GIB // 2
    assert available_bytes([second], memory_info(tmp_path, GIB)) == GIB  # the machine has less


def test_a_service_is_bound_by_its_own_group_and_by_those_around_it(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/system.slice/penstock.service\n")
    mount = tmp_path / "fs"
    assert memory_groups(mount, own) == [
        mount / "system.slice" / "penstock.service", mount / "system.slice", mount,
    ]  # fmt: skip
    own.write_text("9:cpu:/x\n4:memory:/docker/abc\n")
    assert memory_groups(mount, own) == [
        mount / "memory" / "docker" / "abc", mount / "memory" / "docker", mount / "memory",
    ]  # fmt: skip
    assert memory_groups(mount, tmp_path / "not there") == []


def test_a_slip_in_a_name_of_our_own_family_is_told_and_not_guessed() -> None:
    """AWS's list grows faster than ours, so its unknown names pass; our own list is complete."""
    catalogue = InstanceCatalogue(ComputeResources(cores=8, memory_bytes=32 << 30))
    with pytest.raises(CallerError, match=r"ml\.local\.smal"):
        catalogue.resolve("ml.local.smal")
    assert catalogue.resolve("ml.m99.large").resources.cores > 0
    with pytest.raises(CallerError) as caught:
        catalogue.resolve("ml.m5.xlrge")
    assert caught.value.hint == "Did you mean ml.m5.xlarge?"
