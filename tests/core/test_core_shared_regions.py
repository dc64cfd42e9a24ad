"""The table of shared memory regions: names, keys, ranges, counts."""

from __future__ import annotations

import pytest

from penstock.core.request import shared_regions
from penstock.core.request.shared_regions import (
    SharedRegion,
    SharedRegions,
    check_key,
    check_range,
)
from penstock.errors import CallerError


def region(name: str = "in", *, offset: int = 0, byte_size: int = 8) -> SharedRegion:
    return SharedRegion(name=name, key="/k", offset=offset, byte_size=byte_size, device=1, inode=2)


@pytest.mark.parametrize("key", ["/input_simple", "input_simple", "/..a", "/a.b", "/" + "k" * 254])
def test_a_key_is_one_name_as_shm_open_takes(key: str) -> None:
    assert check_key(key) == key.removeprefix("/")


@pytest.mark.parametrize(
    "key", ["", "/", ".", "..", "/..", "/.", "a/b", "//a", "/a/../b", "../etc", "a\0b", "k" * 255]
)
def test_a_key_never_leads_out_of_the_folder(key: str) -> None:
    with pytest.raises(CallerError, match="no key of shared memory"):
        check_key(key)


@pytest.mark.parametrize(
    ("offset", "byte_size"), [(-1, 1), (0, 0), (0, -1), (0, 17), (16, 1), (2**63, 1), (0, 2**64)]
)
def test_a_range_is_inside_its_object(offset: int, byte_size: int) -> None:
    check_range(15, 1, within=16, what="x")
    with pytest.raises(CallerError, match="not inside the 16 bytes of x"):
        check_range(offset, byte_size, within=16, what="x")


def test_a_name_is_one_region_until_it_is_removed() -> None:
    table = SharedRegions()
    table.add(region(), object_bytes=8)
    with pytest.raises(CallerError, match="registered already"):
        table.add(region(), object_bytes=8)
    assert table.find("in") == region()
    table.remove("in")
    table.remove("in")  # as Triton: no error
    with pytest.raises(CallerError) as caught:
        table.find("in")
    assert caught.value.status == 404


def test_all_are_removed_by_the_empty_name() -> None:
    table = SharedRegions()
    for name in ("a", "b"):
        table.add(region(name), object_bytes=8)
    assert [one.name for one in table.listed("")] == ["a", "b"]
    assert [one.name for one in table.listed("b")] == ["b"]
    table.remove("")
    assert table.listed("") == []


@pytest.mark.parametrize("name", ["", "n" * 257])
def test_names_are_bounded(name: str) -> None:
    with pytest.raises(CallerError, match="1 to 256 characters"):
        SharedRegions().add(region(name), object_bytes=8)


def test_a_region_is_inside_its_object() -> None:
    with pytest.raises(CallerError, match="9 bytes from offset 0 are not inside the 8 bytes"):
        SharedRegions().add(region(byte_size=9), object_bytes=8)


def test_regions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_regions, "REGIONS_MAX", 1)
    table = SharedRegions()
    table.add(region("a"), object_bytes=8)
    with pytest.raises(CallerError, match="which is the most"):
        table.add(region("b"), object_bytes=8)
