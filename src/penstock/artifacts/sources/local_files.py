"""Sources on this machine: `file://`, absolute paths and buckets mapped to directories.

Files are read with plain system calls, not through obstore, whose local store percent-decodes names
and follows links silently; here a link that leaves the directory is refused, as it is in an
archive. The files are copied, never used in place and never hard-linked: whoever edits the source
must not change a running model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES, Listing, SourceFile
from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.artifacts.sources.places import Fence
from penstock.clock import Clock
from penstock.core.request.storage_failures import storage_error
from penstock.errors import CallerError, NotNowError, PenstockError

#: A file written within the clock tick of its listing may change again without a new time. Git
#: calls such an entry racy; two seconds also cover file systems that count in whole seconds.
RACY_S = 2.0


def list_local(
    path: Path, *, budget: Budget, files_max: int, clock: Clock, fence: Fence | None = None
) -> Listing:
    """Lists a file or a directory. Raises `CallerError` when it is missing or can't be served,
    `NotNowError` where its disk fails.

    `fence`: places where it must not lie, now or when its files are read.
    """
    what, fence = budget.what, fence or Fence()
    try:
        facts = _looked_at(path, fence, what)
        if stat.S_ISDIR(facts.st_mode):
            files = _directory_files(path, fence, budget=budget, files_max=files_max)
            single = False
        elif stat.S_ISREG(facts.st_mode):
            name = safe_path(path.name, where=what)
            files = [_source_file(path, name, facts, what, fence)]
            single = True
        else:
            raise CallerError(
                "artifact-type-unsupported",
                f"{what}: {path} is neither a file nor a directory",
                hint="Name a directory, an archive or a model file.",
            )
    except OSError as error:
        raise _read_error(what, Path(error.filename or path), error) from error
    if not files:
        raise CallerError(
            "artifact-empty",
            f"{what}: the directory {path} holds no files",
            hint="Name the directory that holds the model's files.",
        )
    newest_s = max(map(_changed_s, files))
    return Listing(
        files=tuple(sorted(files, key=lambda file: file.name)),
        single=single,
        settled=newest_s < clock.wall() - RACY_S,
        changed_at=newest_s,
    )


def _looked_at(path: Path, fence: Fence, what: str) -> os.stat_result:
    """Facts of the file that was checked: between two looks another one could take its place."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return fence.check_open(descriptor, path, what)
    finally:
        os.close(descriptor)


def _directory_files(
    top: Path, fence: Fence, *, budget: Budget, files_max: int
) -> list[SourceFile]:
    real_top = os.path.realpath(top)
    fence = fence.inside(top)
    found: list[SourceFile] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        budget.check()
        fence.check(top / folder, f"{budget.what.rstrip('/')}/{folder}" if folder else budget.what)
        with os.scandir(top / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if is_clutter(name):
                    continue
                path = safe_path(name, where=budget.what)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    continue
                found.append(_linked_or_plain(top, real_top, path, entry, fence, budget.what))
                if len(found) > files_max:
                    raise CallerError(
                        "artifact-too-many-files",
                        f"{budget.what}: more than {files_max} files below {top}",
                        hint="Name the directory of one model, not one that holds many things.",
                    )
    return found


def _linked_or_plain(
    top: Path, real_top: str, name: str, entry: os.DirEntry[str], fence: Fence, what: str
) -> SourceFile:
    path = Path(entry.path)
    if entry.is_symlink():
        target = os.path.realpath(path)
        if not target.startswith(real_top + os.sep) or not os.path.isfile(target):
            raise CallerError(
                "artifact-link-refused",
                f"{what}: {shown(name)} is a link to {shown(target)}, which is not a file inside "
                f"{top}",
                hint="Copy the directory with its links resolved (cp -rL) and name the copy.",
            )
        path = Path(target)
    # Its folder has just been checked; a file that is read is checked in full.
    facts = _looked_at(path, Fence(within=fence.within), what)
    if not stat.S_ISREG(facts.st_mode):
        raise CallerError(
            "artifact-type-unsupported",
            f"{what}: {shown(name)} is a device, a pipe or a socket",
            hint="Remove it from the model's directory.",
        )
    return _source_file(path, name, facts, what, fence)


def _source_file(
    path: Path, name: str, facts: os.stat_result, what: str, fence: Fence
) -> SourceFile:
    stamp = _stamp(facts)
    return SourceFile(
        name=name,
        size=facts.st_size,
        stamp=stamp,
        executable=bool(facts.st_mode & stat.S_IXUSR),
        chunks=lambda: _chunks(path, stamp, what, fence),
    )


def _stamp(facts: os.stat_result) -> str:
    return f"{facts.st_mtime_ns}-{facts.st_ctime_ns}-{facts.st_ino}-{facts.st_size}"


def _changed_s(file: SourceFile) -> float:
    """The later one of a stamp's two times: programs can set the first to anything, even before
    1970."""
    modified, changed, _, _ = file.stamp.rsplit("-", 3)
    return max(int(modified), int(changed)) / 1e9


def _chunks(path: Path, stamp: str, what: str, fence: Fence) -> Iterator[bytes]:
    try:
        with _opened(path) as file:
            descriptor = file.fileno()
            # since the listing, a folder may have become a link
            fence.check_open(descriptor, path, what)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
            changed = _stamp(os.fstat(descriptor)) != stamp
    except OSError as error:
        raise _read_error(what, path, error) from error
    if changed:
        raise _changed(path, what)


@contextmanager
def open_unchanged(path: Path, stamp: str, what: str, fence: Fence) -> Iterator[int]:
    """A descriptor of the same file that was listed with this stamp, readable from any offset.

    Raises on entering and leaving: `NotNowError` (`artifact-changed`) where the file was replaced
    or written to, or where its disk fails, and `CallerError` where it can't be read.
    """
    try:
        file = _opened(path)
    except OSError as error:
        raise _read_error(what, path, error) from error
    with file:
        fence.check_open(file.fileno(), path, what)
        if _stamp(os.fstat(file.fileno())) != stamp:
            raise _changed(path, what)
        yield file.fileno()
        if _stamp(os.fstat(file.fileno())) != stamp:
            raise _changed(path, what)


def _opened(path: Path) -> FileIO:
    # Non-blocking: a pipe put in the file's place must not hang the thread.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return FileIO(descriptor, "rb")


def _changed(path: Path, what: str) -> NotNowError:
    return NotNowError(
        "artifact-changed",
        f"{what}: {path} changed while it was read",
        hint="Deploy when the file is completely written; better, write new files and rename.",
        retry_after_s=1.0,
    )


def _read_error(what: str, path: Path, error: OSError) -> PenstockError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CallerError(
            "artifact-not-found",
            f"{what}: {path} does not exist on this machine",
            hint="Check the spelling; a path is one of the server's machine, not of the client's.",
        )
    if isinstance(error, PermissionError):
        return CallerError(
            "artifact-access-denied",
            f"{what}: the server may not read {path}",
            hint="Give the user that runs the server read access to the file and its folders.",
        )
    return storage_error(
        error,
        "artifact-unreadable",
        f"{what}: cannot read {path}: {error.strerror or error}",
        hint="Check the disk that holds it.",
    )
