"""Children that run one mutant each, with limits; each answers with one JSON value."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator

#: what a child may take: loops that only add to a list end here
_MEMORY_BYTES_MAX = 4 << 30


class Fork:
    """A child in a process group of its own that answers with one JSON value."""

    def __init__(self, work: Callable[[], object], *, limit_s: float) -> None:
        reader, writer = os.pipe()
        self.folder = tempfile.mkdtemp(prefix="m")
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            self._in_child(work, writer, limit_s)
        os.close(writer)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)
        self.reader = reader
        #: wall clock: generous, for a machine that is busy with other things
        self.ends_at = time.monotonic() + 10 * limit_s
        self._said = b""

    def _in_child(self, work: Callable[[], object], writer: int, limit_s: float) -> None:
        status = 70
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            quiet = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(quiet, descriptor)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = self.folder
            tempfile.tempdir = self.folder
            used = time.process_time()
            seconds = int(used + limit_s) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
            said = json.dumps(work()).encode()
            while said:
                said = said[os.write(writer, said) :]
            status = 0
        finally:
            os._exit(status)

    def read(self) -> bool:
        """True once the child has said all."""
        part = os.read(self.reader, 1 << 16)
        self._said += part
        return not part

    def end(self) -> object:
        """Ends the whole group. Returns what the child said, or None if it was cut off."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reader)
        shutil.rmtree(self.folder, ignore_errors=True)
        return json.loads(self._said) if self._said else None


#: a key, what the child does, and the processor seconds that it may take
Task = tuple[int, Callable[[], object], float]


def run_forks(tasks: Iterator[Task], jobs: int) -> Iterator[tuple[int, object]]:
    """Runs the tasks (key, work, limit), `jobs` at once; yields each key with its answer."""
    running: dict[int, tuple[int, Fork]] = {}
    more = True
    try:
        while more or running:
            while more and len(running) < jobs:
                task = next(tasks, None)
                if task is None:
                    more = False
                    break
                fork = Fork(task[1], limit_s=task[2])
                running[fork.reader] = (task[0], fork)
            ready, _, _ = select.select(list(running), [], [], 0.5)
            now = time.monotonic()
            for reader in list(running):
                key, fork = running[reader]
                if (reader in ready and fork.read()) or now >= fork.ends_at:
                    del running[reader]
                    yield key, fork.end()
    finally:
        for _, fork in running.values():
            fork.end()
