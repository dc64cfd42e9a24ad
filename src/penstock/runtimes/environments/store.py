"""The environments of a machine: found by key, built once, kept while in use, evicted by last use.

    KEY            a link to the folder with the environment, which exists only when that is whole
    KEY.xxxxxxxx/  the folder, built under this very name, because scripts inside name it
    KEY.json       what is in it; outside of it, where nothing that is installed can write
    KEY.lock       held exclusively by who builds or evicts, shared by who uses it; its time is
                   that of the last use
    KEY.failed     why the last build failed

Processes meet in the locks alone, which the kernel opens when a process ends. A build that was
killed leaves a folder without a link, which the next build of that key, or `evict`, removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.durable_files import replace_file
from penstock.errors import ModelError, NotNowError, PenstockError, from_dict
from penstock.runtimes.environments.installer import size_of

#: A failed build is not tried again for this long: copies of a failing endpoint come one by one.
FAILED_S: Final = 60.0
_POLL_S: Final = 0.2
_WORD_S: Final = 10.0
_CACHE: Final = ".cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentMade:
    """An environment that is whole."""

    key: str
    interpreter: str  #: its Python
    python: str  #: the version of that
    dirs: tuple[str, ...]  #: folders that it consists of
    framework: tuple[str, ...] = ()  #: versions of an image's or file's libraries in it
    notes: tuple[str, ...] = ()  #: what differs from what was wanted
    bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """What `penstock explain` and a copy's description tell of it."""
        return {
            "key": self.key,
            "python": self.python,
            "framework": list(self.framework),
            "notes": list(self.notes),
        }


class EnvironmentLease:
    """An environment in use: it is not evicted until this is closed, or its process ends."""

    def __init__(self, made: EnvironmentMade, descriptor: int) -> None:
        self.made = made
        self._descriptor = descriptor

    def close(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


#: Builds into an empty folder, with a scratch folder beside it; returns what is in it.
Build = Callable[[Path, Path], EnvironmentMade]


@dataclass(slots=True)
class EnvironmentStore:
    """The environments below one folder, which servers of a machine may share. Methods block."""

    root: Path
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        # Files inside of an environment name its folder. A link to here may be gone before it is.
        self.root = self.root.resolve()

    @property
    def wheels(self) -> Path:
        """What installers download, for all environments."""
        folder = self.root / _CACHE
        folder.mkdir(exist_ok=True)
        return folder

    def obtain(
        self,
        key: str,
        build: Build,
        *,
        log: Callable[[str], None],
        check: Callable[[], None],
    ) -> EnvironmentLease:
        """The environment with this key, which `build` makes unless it is there.

        `check` raises where nobody waits for it any more. Raises what `build` raises, also for a
        short time after it did.
        """
        lock = os.open(self.root / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            made = self._shared(key, lock, log, check)
            if made is None:
                made = self._built(key, lock, build, log, check)
            os.utime(lock)
            return EnvironmentLease(made, lock)
        except BaseException:
            os.close(lock)
            raise

    def _shared(
        self, key: str, lock: int, log: Callable[[str], None], check: Callable[[], None]
    ) -> EnvironmentMade | None:
        """What is there, held; None: it is not there, and nothing is held."""
        self._wait(lock, fcntl.LOCK_SH, log, check)
        made = self._found(key)
        if made is None:
            fcntl.flock(lock, fcntl.LOCK_UN)
        return made

    def _built(
        self,
        key: str,
        lock: int,
        build: Build,
        log: Callable[[str], None],
        check: Callable[[], None],
    ) -> EnvironmentMade:
        self._wait(lock, fcntl.LOCK_EX, log, check)
        made = self._found(key)  # somebody else may have built it meanwhile
        if made is None:
            self._raise_former(key)
            made = self._build(key, build)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if self._found(key) is None:  # evicted between the two locks
            raise NotNowError("environment-evicted", "the model's environment was just removed")
        return made

    def _build(self, key: str, build: Build) -> EnvironmentMade:
        (self.root / key).unlink(missing_ok=True)
        self._remove_parts(key)
        folder = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self.root))
        folder.chmod(0o755)
        scratch = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".scratch", dir=self.root))
        try:
            made = build(folder, scratch)
            self._name(key, folder, made)
            return made
        except PenstockError as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, ModelError):
                self._remember(key, error)
            raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _name(self, key: str, folder: Path, made: EnvironmentMade) -> None:
        replace_file(self.root / f"{key}.json", [json.dumps(asdict(made)).encode()])
        fresh = self.root / f"{key}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.name)
        fresh.replace(self.root / key)
        (self.root / f"{key}.failed").unlink(missing_ok=True)

    def _found(self, key: str) -> EnvironmentMade | None:
        """None also where files inside of it name another folder, since the cache was moved."""
        made = self._read(key)
        return made if made is not None and Path(made.interpreter).exists() else None

    def _read(self, key: str) -> EnvironmentMade | None:
        try:
            if not (self.root / key).is_dir():
                return None
            content = (self.root / f"{key}.json").read_bytes()
            return msgspec.json.decode(content, type=EnvironmentMade)
        except (OSError, msgspec.MsgspecError):
            return None

    def _wait(
        self, lock: int, kind: int, log: Callable[[str], None], check: Callable[[], None]
    ) -> None:
        began = told = self.clock.monotonic()
        pause = threading.Event()
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                return
            check()
            now = self.clock.monotonic()
            if now >= told + _WORD_S or told == began:
                told = now + 1e-6
                log(f"environment: another process builds it; waiting ({now - began:.0f} s)")
            pause.wait(_POLL_S)

    # Failures

    def _remember(self, key: str, error: PenstockError) -> None:
        with suppress(OSError):
            path = self.root / f"{key}.failed"
            replace_file(path, [json.dumps(error.to_dict()).encode()])

    def _raise_former(self, key: str) -> None:
        path = self.root / f"{key}.failed"
        try:
            age_s = self.clock.wall() - path.stat().st_mtime
            error = from_dict(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            return
        if 0 <= age_s < FAILED_S:
            raise error
        path.unlink(missing_ok=True)

    # Room

    def evict(self, bytes_max: int) -> list[str]:
        """Removes what was used least recently, and parts of builds that were killed, until at most
        `bytes_max` are taken. Returns the removed keys; what is in use stays."""
        entries, total = [], 0
        for path in self.root.glob("*.json"):
            made = self._read(path.stem)
            if made is None:
                continue
            lock = self.root / f"{path.stem}.lock"
            with suppress(OSError):
                entries.append((lock.stat().st_mtime, path.stem, made.bytes))
                total += made.bytes
        removed = []
        for _, key, size in sorted(entries):
            if total <= bytes_max:
                break
            if self._remove(key):
                removed.append(key)
                total -= size
        for key in {path.name.partition(".")[0] for path in self.root.glob("*.*/")} - {""}:
            if not (self.root / key).is_symlink():
                self._remove(key)
        if total + size_of(self.root / _CACHE) > bytes_max:
            shutil.rmtree(self.root / _CACHE, ignore_errors=True)
        return removed

    def _remove(self, key: str) -> bool:
        """False: it is in use, or being built."""
        with self._alone(key) as alone:
            if alone:
                (self.root / key).unlink(missing_ok=True)
                (self.root / f"{key}.json").unlink(missing_ok=True)
                self._remove_parts(key)
            return alone

    @contextmanager
    def _alone(self, key: str) -> Iterator[bool]:
        lock = os.open(self.root / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(lock)

    def _remove_parts(self, key: str) -> None:
        """Folders that the key's link does not lead to. The caller has its lock."""
        kept = (self.root / key).resolve() if (self.root / key).is_symlink() else None
        for folder in self.root.glob(f"{key}.*/"):
            if folder.resolve() != kept:
                shutil.rmtree(folder, ignore_errors=True)
