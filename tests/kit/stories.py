"""What a server says of itself when a test has waited for it in vain, so that the test's output
alone names the cause: its copies, their queues, the stacks of its processes, its logs.

A client that gives up takes its request along, so calls of `Server` are watched: the story is told
while one waits, and noted on its error. `tests/conftest.py` adds the story of each server that
still runs to the report of a test that failed for any wait.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runtimes.workers.memory import tree_pids

if TYPE_CHECKING:
    from tests.kit.servers import Server

#: The servers that this process has started.
STARTED: weakref.WeakSet[Server] = weakref.WeakSet()
_ASK_S_MAX = 3.0  #: it may be the one that answers nothing
_STORY_S_MAX = 20.0
_COPIES_MAX = 8
_LINES_MAX = 120  #: of a log, from its end
_METRICS = re.compile(r"penstock_(in_flight|copies|loop_lag_max\w*|instances)[{ ]")
_OURS = re.compile(rb"\0penstock[.\0]")  #: `python -m penstock...`
_LATE = re.compile(r"timed? ?out|timeout|did not come to pass", re.IGNORECASE)


def waited_in_vain(error: BaseException | None) -> bool:
    """Whether the error, or what it came of, is that something took too long."""
    while error is not None:
        if isinstance(error, TimeoutError) or _LATE.search(f"{type(error).__name__} {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False


class Watch:
    """The calls that this process waits for; one thread looks at all of them."""

    _LOOK_EVERY_S = 5.0

    def __init__(self, late_s: float) -> None:
        """`late_s`: after so long a call's server is asked for its story."""
        self._late_s = late_s
        self._calls: dict[object, tuple[Server, float]] = {}
        self._stories: dict[object, str] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def over(self, server: Server) -> Iterator[None]:
        """Use around a call. An error gets the story that was told meanwhile."""
        call = self.begin(server)
        try:
            yield
        except BaseException as error:
            self.note(error, call)
            raise
        finally:
            self.end(call)

    def begin(self, server: Server) -> object:
        call = object()
        with self._lock:
            self._calls[call] = server, time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
                self._thread.start()
        return call

    def told(self, call: object) -> str:
        """Its server's story; empty where it was not late so far."""
        return self._stories.get(call, "")

    def note(self, error: BaseException, call: object) -> None:
        if told := self.told(call):
            error.add_note(told)

    def end(self, call: object) -> None:
        with self._lock:
            self._calls.pop(call, None)
            self._stories.pop(call, None)

    def _look(self) -> None:
        while True:
            time.sleep(min(self._LOOK_EVERY_S, self._late_s / 4))
            with self._lock:
                calls = [one for one in self._calls.items() if one[0] not in self._stories]
            for call, (server, since) in calls:
                waited_s = time.monotonic() - since
                if waited_s < self._late_s:
                    continue
                told = f"a call waits for {waited_s:.0f} s\n{story(server)}"
                with self._lock:
                    if call in self._calls:
                        self._stories[call] = told


#: Calls wait for a minute at most, and a story takes up to a third of one.
WATCH = Watch(35.0)


def story(server: Server) -> str:
    """Takes some seconds at most, and never raises."""
    until = time.monotonic() + _STORY_S_MAX
    said = [f"the server at {server.url}"]
    try:
        for part in _parts(server):
            said.append(part)
            if time.monotonic() > until:
                said.append("(no time for more)")
                break
    except BaseException as error:  # the test's own time may be up meanwhile
        said.append(f"(no more: {error!r})")
    return "\n".join(said)


def _machine(pid: int) -> str:
    """Whether the machine has time for it: its load, and the state and processor time of the
    server's processes, twice, half a second apart."""
    said = [f"{os.cpu_count()} cores, load {Path('/proc/loadavg').read_text().strip()}"]
    for _ in range(2):
        for each in tree_pids(pid):
            with suppress(OSError):
                name, _, rest = Path(f"/proc/{each}/stat").read_text().rpartition(")")
                fields = rest.split()
                ticks = int(fields[11]) + int(fields[12])
                cpu_s = ticks / os.sysconf("SC_CLK_TCK")
                said.append(f"{name}) {fields[0]}, {cpu_s:.2f} s of processor, nice {fields[16]}")
        time.sleep(0.5)
    return "\n".join(said)


def _parts(server: Server) -> Iterator[str]:
    yield _machine(server.pid)
    copies: list[Any] = []
    with suppress(Exception):
        copies = json.loads(server.ask("/admin/copies", timeout=_ASK_S_MAX)[1])["copies"]
    yield from (json.dumps(copy) for copy in copies)
    copies.sort(key=lambda copy: -copy.get("outstanding", 0))
    for copy in copies[:_COPIES_MAX]:
        path = f"/admin/endpoints/{copy['endpoint']}/copies/{copy['copy']}"
        yield f"{path}: {_answer(server, path)}"
    lines = _answer(server, "/metrics").splitlines()
    yield "\n".join(line for line in [*lines[:1], *lines] if _METRICS.match(line) or len(lines) < 2)
    yield _written(server)


def _answer(server: Server, path: str) -> str:
    try:
        return server.ask(path, timeout=_ASK_S_MAX)[1].decode("utf-8", "replace")
    except Exception as error:
        return f"no answer: {error!r}"


def _written(server: Server) -> str:
    """The ends of its logs, with the stacks of its processes, which these write there."""
    folder = server.state_dir / "logs"
    files = [server.log_path, *(one for one in folder.rglob("*") if one.is_file())]
    asked = [pid for pid in tree_pids(server.pid) if _writes_stacks(pid)]
    for pid in asked:
        with suppress(OSError):
            os.kill(pid, signal.SIGUSR2)
    _settled(lambda: sum(one.stat().st_size for one in files if one.exists()))
    said = [f"asked for their stacks: {asked}"]
    for one in files:
        with suppress(OSError):
            lines = one.read_text("utf-8", "replace").splitlines()
            said += [f"--- {one.name}", *lines[-_LINES_MAX:]]
    return "\n".join(said)


def _writes_stacks(pid: int) -> bool:
    """Whether SIGUSR2 is a question to it: not its end, and not what another program means."""
    with suppress(OSError, StopIteration):
        if not _OURS.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
            return False
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)
        return bool(caught >> (signal.SIGUSR2 - 1) & 1)
    return False


def _settled(size: Callable[[], int]) -> None:
    """Until what they write has come: nothing more for half a second, or some time is up."""
    until = time.monotonic() + 4.0
    seen, since = size(), time.monotonic()
    while (now := time.monotonic()) < min(until, since + 0.5):
        time.sleep(0.05)
        if size() != seen:
            seen, since = size(), now
