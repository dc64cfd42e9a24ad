"""A disk that fails, and one that forgets: between Python's file functions and a folder.

`FaultyDisk` stands in for `open`, `os.open`, `os.write`, `os.fsync`, `os.rename` and their like
while its block lasts, for paths below one folder. It counts what changes the disk or needs a
descriptor, raises a given error at the n-th such call (having written half of what was to be
written), and keeps a record from which `crash_states` derives every state that a power cut may
leave. The model is that of Pillai and others, "All File Systems Are Not Created Equal" (OSDI 2014),
for file systems that keep names in order:

* What `fsync` of a file returned for is in the file. Later writes are all there, or none of them,
  or the file has its new length and zeros in it; one file may fare otherwise than the others.
* Names (created, renamed, removed) are kept in the order in which they were made, up to any moment
  behind the last one whose folder was synced.

What C libraries write by themselves (SQLite) is not seen: see `test_database_faults.py`.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)
_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Step:
    """One thing that was done to the disk, or a mark of the test's."""

    kind: str  #: create | mkdir | rename | remove | write | truncate | fsync | sync-folder | mark
    path: str  #: below the folder; where the mark stands: its name
    file: int = 0  #: which file, through all its names
    at: int = 0  #: of write: its offset
    data: bytes = b""
    to: str = ""  #: of rename


@dataclass
class _File:
    synced: bytes = b""
    content: bytearray = field(default_factory=bytearray)

    def write(self, at: int, data: bytes) -> None:
        self.content.extend(bytes(max(0, at - len(self.content))))
        self.content[at : at + len(data)] = data

    def left(self, unsynced: str) -> bytes:
        """What a power cut leaves."""
        if unsynced == "kept" or self.content == self.synced:
            return bytes(self.content)
        return self.synced if unsynced == "lost" else bytes(len(self.content))


class FaultyDisk:
    """`with FaultyDisk(folder, fail_at=3, error=errno.EIO): …`; `fail_at` 0: it only records."""

    def __init__(self, folder: Path, *, fail_at: int = 0, error: int = 0) -> None:
        self.folder = folder.resolve()
        self.steps: list[Step] = []
        self.calls = 0
        self.failed = False
        self._fail_at = fail_at
        self._error = error
        self._files: dict[int, int] = {}  #: inode -> file
        self._count = 0
        self._real: dict[tuple[Any, str], Any] = {}
        self.before = {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.folder.rglob("*"))
        }
        self._known = {
            path: self._number(os.stat(self.folder / path).st_ino) for path in self.before
        }

    def mark(self, name: str) -> None:
        """From here on a promise was made."""
        self.steps.append(Step("mark", name))

    def __enter__(self) -> FaultyDisk:
        patches: dict[tuple[Any, str], Any] = {
            (io, "open"): self._open,
            (builtins, "open"): self._open,
            (os, "open"): self._os_open,
            (os, "write"): self._os_write,
            (os, "pwrite"): self._os_pwrite,
            (os, "fsync"): self._os_fsync,
            (os, "fdatasync"): self._os_fsync,
            (os, "ftruncate"): self._os_ftruncate,
            (os, "rename"): self._os_rename,
            (os, "replace"): self._os_rename,
            (os, "mkdir"): self._os_mkdir,
            (os, "unlink"): self._os_remove,
            (os, "remove"): self._os_remove,
            (os, "rmdir"): self._os_rmdir,
            (shutil, "_USE_CP_SENDFILE"): False,
        }
        for (module, name), stand_in in patches.items():
            self._real[module, name] = getattr(module, name)
            setattr(module, name, stand_in)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for (module, name), real in self._real.items():
            setattr(module, name, real)

    # what is ours

    def _below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the folder; None for paths that are not there."""
        if isinstance(path, int):
            whole = os.readlink(f"/proc/self/fd/{path}")
        else:
            whole = os.fsdecode(path)
            if dir_fd is not None:
                whole = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), whole)
        whole = os.path.abspath(whole)
        if whole.startswith("/proc/self/fd/"):  # a folder by its descriptor, or what is in it
            number, _, name = whole.removeprefix("/proc/self/fd/").partition("/")
            whole = os.path.join(os.readlink(f"/proc/self/fd/{number}"), name).rstrip("/")
        root = str(self.folder)
        return os.path.relpath(whole, root) if whole.startswith((root + os.sep, root)) else None

    def _number(self, inode: int) -> int:
        self._count += 1
        self._files[inode] = self._count
        return self._count

    def _may_fail(self) -> None:
        self.calls += 1
        if self.calls == self._fail_at:
            self.failed = True
            raise OSError(self._error, os.strerror(self._error))

    def _add(self, kind: str, path: str, **rest: Any) -> None:
        self.steps.append(Step(kind, path, **rest))

    def _opened(self, path: str, descriptor: int, *, existed: bool, truncates: bool) -> None:
        inode = os.fstat(descriptor).st_ino
        if not existed:
            self._add("create", path, file=self._number(inode))
        elif truncates:
            self._add("truncate", path, file=self._files[inode])

    # the functions

    def _open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        real = self._real[io, "open"]
        path = self._below(file)
        if path is None:
            return real(file, mode, *args, **kwargs)
        if not isinstance(file, int):
            self._may_fail()
        if not set(mode) & set("wax+"):
            return real(file, mode, *args, **kwargs)
        existed = isinstance(file, int) or os.path.lexists(file)
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""))
        if not isinstance(file, int):
            self._opened(path, raw.fileno(), existed=existed, truncates="w" in mode)
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, kwargs.get("encoding"))

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        below = self._below(path, dir_fd)
        real = self._real[os, "open"]
        if below is None:
            return int(real(path, flags, mode, dir_fd=dir_fd))
        self._may_fail()
        existed = os.path.lexists(self.folder / below)
        descriptor = int(real(path, flags, mode, dir_fd=dir_fd))
        if flags & (_WRITES | os.O_CREAT):
            truncates = bool(flags & os.O_TRUNC)
            self._opened(below, descriptor, existed=existed, truncates=truncates)
        return descriptor

    def _writing(self, descriptor: int, data: Any, at: int, write: Callable[[bytes], int]) -> int:
        path = self._below(descriptor)
        data = bytes(data)
        if path is None:
            return write(data)
        try:
            self._may_fail()
        except OSError:
            half = data[: len(data) // 2]
            self._wrote(descriptor, path, at, half[: write(half)])
            raise
        size = write(data)
        self._wrote(descriptor, path, at, data[:size])
        return size

    def _wrote(self, descriptor: int, path: str, at: int, data: bytes) -> None:
        file = self._files[os.fstat(descriptor).st_ino]
        self._add("write", path, file=file, at=at, data=data)

    def _os_write(self, descriptor: int, data: Any) -> int:
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            return int(self._real[os, "write"](descriptor, data))
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        real = self._real[os, "write"]
        return self._writing(descriptor, data, at, lambda part: int(real(descriptor, part)))

    def _os_pwrite(self, descriptor: int, data: Any, at: int) -> int:
        real = self._real[os, "pwrite"]
        return self._writing(descriptor, data, at, lambda part: int(real(descriptor, part, at)))

    def _os_fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = self._below(number)
        if path is not None:
            self._may_fail()
            facts = os.fstat(number)
            if os.path.isdir(f"/proc/self/fd/{number}"):
                self._add("sync-folder", path)
            else:
                self._add("fsync", path, file=self._files[facts.st_ino])
        else:  # no power is cut: what is promised is all that is looked at
            self._real[os, "fsync"](number)

    def _os_ftruncate(self, descriptor: int, size: int) -> None:
        path = self._below(descriptor)
        if path is not None:
            self._may_fail()
            assert size == 0, "only what empties a file is modelled"
            self._add("truncate", path, file=self._files[os.fstat(descriptor).st_ino])
        self._real[os, "ftruncate"](descriptor, size)

    def _os_rename(self, source: Any, to: Any, **kwargs: Any) -> None:
        below = self._below(source, kwargs.get("src_dir_fd"))
        target = self._below(to, kwargs.get("dst_dir_fd"))
        if below is not None and target is not None:
            self._may_fail()
        self._real[os, "rename"](source, to, **kwargs)
        if below is not None and target is not None:
            self._add("rename", below, to=target)

    def _os_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        below = self._below(path, dir_fd)
        if below is not None:
            self._may_fail()
        self._real[os, "mkdir"](path, mode, dir_fd=dir_fd)
        if below is not None:
            self._add("mkdir", below)

    def _os_remove(self, path: Any, *, dir_fd: Any = None) -> None:
        below = self._below(path, dir_fd)
        self._real[os, "unlink"](path, dir_fd=dir_fd)
        if below is not None:
            self._add("remove", below)

    def _os_rmdir(self, path: Any, *, dir_fd: Any = None) -> None:
        below = self._below(path, dir_fd)
        self._real[os, "rmdir"](path, dir_fd=dir_fd)
        if below is not None:
            self._add("remove", below)


class FailingDisk(FaultyDisk):
    """Every call below the folder fails while `failing` is set: a full disk, then one with room."""

    failing = True

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def _may_fail(self) -> None:
        if self.failing:
            raise OSError(self._error, os.strerror(self._error))


class _Raw(io.FileIO):
    """A file whose writes the disk sees."""

    def __init__(self, disk: FaultyDisk, file: Any, mode: str) -> None:
        self._disk = disk
        super().__init__(file, mode)

    def write(self, data: Any) -> int:
        write = super().write
        return self._disk._writing(
            self.fileno(), data, self.tell(), lambda part: int(write(part) or 0)
        )


@dataclass(frozen=True)
class CrashState:
    """What may be on the disk behind a power cut: `tree` has None for folders."""

    tree: dict[str, bytes | None]
    marks: frozenset[str]
    story: str

    @contextmanager
    def on(self, folder: Path) -> Iterator[Path]:
        """Puts the state into `folder`, which must not exist, for the length of the block."""
        folder.mkdir()
        for path, content in sorted(self.tree.items()):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(content)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def crash_states(disk: FaultyDisk) -> Iterator[CrashState]:
    """Each different state once, for every moment at which the power may go."""
    seen: set[tuple[Any, ...]] = set()
    for end in range(len(disk.steps) + 1):
        done = disk.steps[:end]
        marks = frozenset(step.path for step in done if step.kind == "mark")
        for names_kept in range(_names_synced(done), end + 1):
            for unsynced in _fates(done):
                tree = _tree(disk, done, names_kept, unsynced)
                key = (marks, *sorted(tree.items()))
                if key not in seen:
                    seen.add(key)
                    last = done[-1] if done else None
                    story = f"cut behind {last}, names of {names_kept}, unsynced data {unsynced}"
                    yield CrashState(tree, marks, story)


def _fates(done: list[Step]) -> Iterator[tuple[str, int]]:
    """What becomes of unsynced writes: of all files (0), or of one while the others keep theirs."""
    yield ("kept", 0)
    for file in (0, *sorted({step.file for step in done if step.kind == "write"})):
        yield ("lost", file)
        yield ("zeros", file)


def _names_synced(done: list[Step]) -> int:
    """How many steps' names are there for certain."""
    synced = 0
    for at, step in enumerate(done):
        if step.kind == "sync-folder":
            for earlier in range(at, -1, -1):
                other = done[earlier]
                where = {os.path.dirname(path) or "." for path in (other.path, other.to) if path}
                if other.kind in ("create", "mkdir", "rename", "remove") and step.path in where:
                    synced = max(synced, earlier + 1)
                    break
    return synced


def _tree(
    disk: FaultyDisk, done: list[Step], names_kept: int, unsynced: tuple[str, int]
) -> dict[str, bytes | None]:
    files = {
        disk._known[path]: _File(content, bytearray(content))
        for path, content in disk.before.items()
        if content is not None
    }
    names: dict[str, int | None] = {
        path: None if content is None else disk._known[path]
        for path, content in disk.before.items()
    }
    for at, step in enumerate(done):
        if step.kind == "write":
            files.setdefault(step.file, _File()).write(step.at, step.data)
        elif step.kind == "truncate":
            files.setdefault(step.file, _File()).content.clear()
        elif step.kind == "fsync":
            file = files.setdefault(step.file, _File())
            file.synced = bytes(file.content)
        elif at < names_kept:
            _apply_name(names, step)
    tree: dict[str, bytes | None] = {}
    for path, number in names.items():
        fate = unsynced[0] if unsynced[1] in (0, number) else "kept"
        tree[path] = None if number is None else files.get(number, _File()).left(fate)
    return tree


def _apply_name(names: dict[str, int | None], step: Step) -> None:
    if step.kind == "create":
        names[step.path] = step.file
    elif step.kind == "mkdir":
        names[step.path] = None
    elif step.kind == "remove":
        names.pop(step.path, None)
    elif step.kind == "rename":
        moved = {
            path: names.pop(path)
            for path in list(names)
            if path == step.path or path.startswith(step.path + os.sep)
        }
        for path, number in moved.items():
            names[step.to + path[len(step.path) :]] = number
