"""Reading and writing objects of shared memory that their owner may change at any moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from penstock.core.request.shared_regions import RegionRange, SharedRegion
from penstock.errors import CallerError
from penstock.gateway import shared_memory

WHOLE = RegionRange("r", 0, 8)


@pytest.fixture
def made() -> Iterator[SharedMemory]:
    memory = SharedMemory(create=True, size=16)
    memory.buf[:16] = bytes(range(16))
    yield memory
    memory.close()
    memory.unlink()


def registered(made: SharedMemory, offset: int = 4, byte_size: int = 8) -> SharedRegion:
    region, object_bytes = shared_memory.look("r", f"/{made.name}", offset, byte_size)
    assert object_bytes == 16
    return region


def test_bytes_go_both_ways_at_their_offsets(made: SharedMemory) -> None:
    region = registered(made)
    assert shared_memory.read(region, RegionRange("r", 2, 3)) == bytes([6, 7, 8])
    shared_memory.write(region, RegionRange("r", 1, 4), b"ab")
    assert bytes(made.buf[4:8]) == bytes([4]) + b"ab" + bytes([7])


@pytest.mark.parametrize("place", [RegionRange("r", 5, 4), RegionRange("r", 0, 9)])
def test_a_place_outside_its_region_is_refused(made: SharedMemory, place: RegionRange) -> None:
    for use in (
        lambda: shared_memory.read(registered(made), place),
        lambda: shared_memory.write(registered(made), place, b"x"),
    ):
        with pytest.raises(CallerError, match="not inside the 8 bytes of region 'r'"):
            use()


def test_an_object_that_became_shorter_is_an_error_and_no_signal(made: SharedMemory) -> None:
    region = registered(made)
    path = shared_memory.FOLDER / made.name
    os.truncate(path, 11)
    with pytest.raises(CallerError, match="has become shorter"):
        shared_memory.read(region, WHOLE)
    with pytest.raises(CallerError, match="has become shorter"):
        shared_memory.write(region, WHOLE, b"x" * 8)
    assert path.stat().st_size == 11  # and is not made longer


def test_another_object_under_the_same_key_is_refused(made: SharedMemory) -> None:
    region = registered(made)
    path = shared_memory.FOLDER / made.name
    path.rename(path.with_suffix(".old"))  # so that its inode is not given to the next one
    path.write_bytes(bytes(16))
    try:
        with pytest.raises(CallerError, match="is another object"):
            shared_memory.read(region, WHOLE)
    finally:
        path.with_suffix(".old").unlink()


def test_what_is_no_object_of_the_user_is_refused(
    made: SharedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", tmp_path)
    (tmp_path / "secret").write_bytes(bytes(16))
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for key in ("/link", "/folder", "/nothing"):
        with pytest.raises(CallerError, match="Unable to open"):
            shared_memory.look("r", key, 0, 8)
    with pytest.raises(CallerError, match="does not belong"):
        shared_memory.look("r", "/pipe", 0, 8)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CallerError, match="does not belong"):
        shared_memory.look("r", "/secret", 0, 8)
