"""Reads and writes POSIX shared memory objects of callers on this machine.

An object is a file that its owner may shorten or replace at any moment. So nothing is mapped: a
read of a mapping beyond the end would end the process (SIGBUS). Bytes are copied by `pread` and
`pwrite` of a descriptor that is opened for each use and compared with what was registered.

Only objects of the server's own user are opened. Otherwise a server with more rights would open
for its callers what they can't.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.core.request.shared_regions import (
    RegionRange,
    SharedRegion,
    check_key,
    check_range,
)
from penstock.errors import CallerError

FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where Linux's shm_open has them
#: No link is followed, and nothing that is no file makes the server wait.
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def look(name: str, key: str, offset: int, byte_size: int) -> tuple[SharedRegion, int]:
    """The region as it is now, and the size of its object. Raises CallerError."""
    with _opened(key) as (_, found):
        region = SharedRegion(
            name=name,
            key=key,
            offset=offset,
            byte_size=byte_size,
            device=found.st_dev,
            inode=found.st_ino,
        )
        return region, found.st_size


def read(region: SharedRegion, place: RegionRange) -> bytearray:
    """The bytes of a tensor. Raises CallerError."""
    with _same(region, place) as (descriptor, begin):
        data = bytearray(place.byte_size)
        done = 0
        while done < len(data):
            count = os.preadv(descriptor, [memoryview(data)[done:]], begin + done)
            if not count:
                raise _shortened(region)
            done += count
        return data


def write(region: SharedRegion, place: RegionRange, data: bytes | memoryview) -> None:
    """Writes a tensor, which may be shorter than its place. Raises CallerError."""
    with _same(region, place) as (descriptor, begin):
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, memoryview(data)[done:], begin + done)


@contextmanager
def _same(region: SharedRegion, place: RegionRange) -> Iterator[tuple[int, int]]:
    """(descriptor, offset in the object) of a place, if that is what was registered."""
    what = f"region '{region.name}'"
    check_range(place.offset, place.byte_size, within=region.byte_size, what=what)
    with _opened(region.key) as (descriptor, found):
        if (found.st_dev, found.st_ino) != (region.device, region.inode):
            raise CallerError(
                "shared-memory-replaced",
                f"shared memory {region.key[:80]!r} is another object than the one registered as"
                f" '{region.name}'",
                hint="Unregister the region and register it anew.",
            )
        if region.offset + place.offset + place.byte_size > found.st_size:
            raise _shortened(region)
        yield descriptor, region.offset + place.offset


@contextmanager
def _opened(key: str) -> Iterator[tuple[int, os.stat_result]]:
    path = FOLDER / check_key(key)
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as cause:
        raise CallerError(
            "shared-memory-missing",
            f"Unable to open shared memory region: {key[:80]!r} ({os.strerror(cause.errno or 0)})",
            hint="The object has to exist on the server's machine, and to belong to its user.",
        ) from cause
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise CallerError(
                "shared-memory-foreign",
                f"shared memory {key[:80]!r} does not belong to the user of the server",
                hint="Run client and server as the same user.",
            )
        yield descriptor, found
    finally:
        os.close(descriptor)


def _shortened(region: SharedRegion) -> CallerError:
    return CallerError(
        "shared-memory-shortened",
        f"shared memory {region.key[:80]!r} has become shorter than the region '{region.name}'",
        hint="Unregister the region and register it anew.",
    )
