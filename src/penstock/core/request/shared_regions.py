"""Which regions of shared memory callers have registered, by name.

A caller registers a part of a POSIX shared memory object under a name, and its requests say
"this tensor lies there" instead of carrying it. The table is one for the whole server, as Triton's
is. It checks names, ranges and counts, and opens nothing: the caller says what it found.

A region is the object that was there when it was registered. The key may name another one by the
time it is used, so device and inode are kept and compared by whoever opens it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.errors import CallerError

#: A caller that registers one for each request, and removes none, must end somewhere.
REGIONS_MAX: Final = 1024
NAME_CHARS_MAX: Final = 256
#: One name below the folder of shared memory, with the slash that POSIX writes before it, or not.
_KEY: Final = re.compile(r"/?([^/\0]{1,254})")
_SIZE_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRegion:
    """`byte_size` bytes from `offset` of the object `key`."""

    name: str
    key: str
    offset: int
    byte_size: int
    device: int  #: of the object, as `stat` says
    inode: int


@dataclass(frozen=True, slots=True)
class RegionRange:
    """A tensor's place in a region."""

    region: str
    offset: int
    byte_size: int


def check_key(key: str) -> str:
    """The file's name of a key. Raises CallerError `shared-memory-key`."""
    match = _KEY.fullmatch(key)
    if match is None or match[1] in (".", ".."):
        raise CallerError(
            "shared-memory-key",
            f"{key[:80]!r} is no key of shared memory",
            hint="A key is one name without slashes, perhaps with one in front, as shm_open takes.",
        )
    return match[1]


def check_range(offset: int, byte_size: int, *, within: int, what: str) -> None:
    """Raises CallerError `shared-memory-range` unless the bytes are inside `within` bytes."""
    if offset < 0 or not 0 < byte_size <= _SIZE_MAX or offset + byte_size > within:
        raise CallerError(
            "shared-memory-range",
            f"{byte_size} bytes from offset {offset} are not inside the {within} bytes of {what}",
        )


class SharedRegions:
    """The table. `add` after the object was looked at; `find` before each use."""

    def __init__(self) -> None:
        self._regions: dict[str, SharedRegion] = {}

    def add(self, region: SharedRegion, *, object_bytes: int) -> None:
        """Raises CallerError: `shared-memory-name`, `-exists`, `-range`, `-regions`."""
        if not 0 < len(region.name) <= NAME_CHARS_MAX:
            message = f"A region's name has 1 to {NAME_CHARS_MAX} characters."
            raise CallerError("shared-memory-name", message)
        if region.name in self._regions:
            raise CallerError(
                "shared-memory-exists",
                f"shared memory region '{region.name}' is registered already",
                hint="Unregister it first.",
            )
        if len(self._regions) >= REGIONS_MAX:
            raise CallerError(
                "shared-memory-regions",
                f"{REGIONS_MAX} regions are registered, which is the most",
                hint="Unregister those that are not used.",
            )
        what = f"shared memory {region.key[:80]!r}"
        check_range(region.offset, region.byte_size, within=object_bytes, what=what)
        self._regions[region.name] = region

    def remove(self, name: str) -> None:
        """Forgets a region, or all if `name` is empty; unknown ones are ignored, as in Triton."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def listed(self, name: str) -> list[SharedRegion]:
        """All regions, or the one of this name. Raises CallerError (404)."""
        return [self.find(name)] if name else list(self._regions.values())

    def find(self, name: str) -> SharedRegion:
        """Raises CallerError (404) `shared-memory-unknown`."""
        region = self._regions.get(name)
        if region is None:
            raise CallerError(
                "shared-memory-unknown",
                f"Unable to find shared memory region: '{name[:NAME_CHARS_MAX]}'",
                hint="Register it first: its name, the key of the object, offset and size.",
                status=404,
            )
        return region
