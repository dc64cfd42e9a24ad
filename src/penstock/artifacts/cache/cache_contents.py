"""Checks that an entry of the cache is on the disk, byte for byte.

    entry.json     size and SHA-256 of every file, written before the entry appears
    checked.json   the files' stamps when their bytes were last compared, and in which boot

Reading ten gigabytes at every load would cost more than the model. So the bytes are compared once
in each boot of the machine, since a power failure is what loses them, and whenever a stamp has
changed: the kernel sets a file's ctime with every write, and no program can set it back. Files
that a running model adds are ignored.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock import durable_files
from penstock.core.request.storage_failures import errno_passes

#: Version 1 recorded sizes alone.
SCHEMA: Final = 2
#: Up to this many files are synced one by one; more are synced with their whole file system.
_SYNCED_ONE_BY_ONE_MAX: Final = 256

Stamp = list[int]


def record(files: Path, known: Mapping[str, str]) -> dict[str, object]:
    """entry.json for the folder `files`. `known`: digests that are already computed, by path."""
    found = sorted(_files(files).items())
    sizes = {name: path.stat().st_size for name, path in found}
    listed = {name: [sizes[name], known.get(name) or _sha256(path)] for name, path in found}
    return {"schema": SCHEMA, "size": sum(sizes.values()), "files": listed}


def damage(files: Path, listed: Mapping[str, Any], checked: Mapping[str, Any] | None) -> str:
    """What is wrong with an entry, for the log; "" where it is whole. Raises OSError where the disk
    does not answer now."""
    expected = listed.get("files")
    if listed.get("schema") not in (1, SCHEMA) or not isinstance(expected, dict):
        return "its list can't be read"
    same_boot = checked is not None and checked.get("boot") == boot()
    stamps = checked.get("files") if checked is not None and same_boot else None
    for name, facts in expected.items():
        size, digest = facts if isinstance(facts, list) else (facts, "")
        path = files / name
        try:
            stamp = _stamp(path)
            if stamp[-1] != size:
                return f"{name} has {stamp[-1]} bytes, not {size}"
            known = isinstance(stamps, dict) and stamps.get(name) == stamp
            if digest and not known and _sha256(path) != digest:
                return f"the bytes of {name} are not those that were fetched"
        except OSError as error:
            if says_nothing(error):
                raise
            return f"{name}: {error.strerror or error}"
    return ""


def says_nothing(error: OSError) -> bool:
    """Whether a failed read proves no damage: descriptors, memory or a network file system's server
    were missing, and the file may be whole. Where a disk can't read its bytes, they are lost."""
    return errno_passes(error.errno) and error.errno != errno.EIO


def stamps(files: Path, listed: Mapping[str, Any]) -> dict[str, object]:
    """checked.json for files whose bytes have just been written or compared."""
    return {"boot": boot(), "files": {name: _stamp(files / name) for name in listed["files"]}}


def boot() -> str:
    """An id of the machine's present boot."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def sync(folder: Path) -> None:
    """Returns once everything below `folder`, names included, would survive a power failure."""
    files = _files(folder)
    if len(files) > _SYNCED_ONE_BY_ONE_MAX:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) == 0:
                return
        finally:
            os.close(descriptor)
    for path in files.values():
        durable_files.sync(path)
    for name, _, _ in os.walk(folder):
        durable_files.sync(Path(name))


def _files(top: Path) -> dict[str, Path]:
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            found[path.relative_to(top).as_posix()] = path
    return found


def _stamp(path: Path) -> Stamp:
    facts = path.stat()
    return [facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_size]


def _sha256(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
