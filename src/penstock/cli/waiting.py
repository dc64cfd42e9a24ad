"""What a person sees while a command waits: what the server does now, from time to time.

A terminal has one line that is updated; elsewhere a line is printed whenever the phase changes, and
a sign of life every ten seconds. Both go to standard error. Programs (`--json`) and `--quiet` see
nothing. What is shown never decides how long a command waits.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from penstock.cli.output import note
from penstock.errors import PenstockError

T = TypeVar("T")

#: s between two questions to the server.
ASK_EVERY_S: Final = 0.5
#: s between two lines without a terminal.
LINE_EVERY_S: Final = 10.0
#: Waits that are over sooner show nothing.
QUIET_S: Final = 1.0
_POLL_S: Final = 0.1
_LINE_CHARS_MAX: Final = 100


class TellsProgress(Protocol):
    """A server that knows how far an endpoint is: over HTTP, or inside this process."""

    def deploying(self, endpoint: str) -> dict[str, Any]:
        """As GET /admin/endpoints/NAME/deploying. Raises PenstockError."""


class ShownWait:
    """Use as a context manager around a wait; `look` may be called on several threads."""

    def __init__(self, server: object, *, shown: bool = True, at_once: bool = False) -> None:
        """`server`: one that has no `deploying` is waited for without phases. `shown`: False for
        programs. `at_once`: the first phase is shown at once, for waits that are mostly long."""
        self._server = server if hasattr(server, "deploying") else None
        self._shown = shown
        self._begun = time.monotonic()
        self._since = self._begun if not at_once else self._begun - QUIET_S
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._phases: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self._printed_at: dict[str, float] = {}
        self._line: Any = None  #: the updating line of a terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.stop()

    def look(self, endpoint: str, *, doing: str = "") -> None:
        """Asks how far the endpoint is, unless that was asked a moment ago, and shows it.

        `doing`: the phase where the server tells none.
        """
        now = time.monotonic()
        with self._lock:
            if not self._shown or now < self._asked.get(endpoint, 0.0) + ASK_EVERY_S:
                return
            self._asked[endpoint] = now
        phase, line = self._progress(endpoint)
        with self._lock:
            self._show(endpoint, phase or doing or "waiting", line, now)

    def over(self, endpoint: str) -> None:
        """The endpoint need not be waited for any more."""
        with self._lock:
            self._phases.pop(endpoint, None)
            self._lines.pop(endpoint, None)

    def _progress(self, endpoint: str) -> tuple[str, str]:
        if self._server is None:
            return "", ""
        try:
            told = self._server.deploying(endpoint)
        except PenstockError:
            return "", ""  # the wait itself meets the error
        return phase_of(told), str(told.get("line", ""))

    def _show(self, endpoint: str, phase: str, line: str, now: float) -> None:
        changed = self._phases.get(endpoint) != phase
        self._phases[endpoint], self._lines[endpoint] = phase, line
        if now < self._since + QUIET_S:
            if changed:
                del self._phases[endpoint]  # shown as a change once the wait is long
            return
        if sys.stderr.isatty():
            self._update()
            return
        passed = f"{now - self._begun:.0f} s"
        if changed:
            note(f"{endpoint}: {phase}")
        elif now >= self._printed_at.get(endpoint, 0.0) + LINE_EVERY_S:
            note(f"{endpoint}: still {phase} after {passed}{_quoted(line)}")
        else:
            return
        self._printed_at[endpoint] = now

    def _update(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - 80 ms that short waits never pay
        from rich.text import Text  # noqa: PLC0415

        name, phase = next(iter(self._phases.items()))
        passed = f"{time.monotonic() - self._begun:.0f} s"
        more = f" (and {len(self._phases) - 1} more)" if len(self._phases) > 1 else ""
        text = Text(f"{name}: {phase}, {passed}{more}{_quoted(self._lines[name])}", no_wrap=True)
        text.truncate(max(20, Console(stderr=True).width - 4), overflow="ellipsis")
        if self._line is None:
            self._line = Console(stderr=True).status(text)
            self._line.start()
        else:
            self._line.update(text)


def _quoted(line: str) -> str:
    return f": {line[:_LINE_CHARS_MAX]}" if line else ""


def phase_of(told: Mapping[str, Any]) -> str:
    """What an endpoint does now, in a few words: what its slowest copy does."""
    copies = list(told.get("copies", ()))
    going = [one for one in copies if one["state"] != "ready"]
    if not going:
        return {"Deleting": "deleting", "Updating": "updating"}.get(str(told.get("status")), "")
    words = _WORDS.get(str(going[0]["phase"]), str(going[0]["phase"]))
    return (
        words
        if len(copies) == 1
        else f"{words}, {len(copies) - len(going)} of {len(copies)} copies ready"
    )


#: Phases of instances and copies that need a word more.
_WORDS: Final = {
    "starting": "starting an instance",
    "running": "connected to its instance",
    "fetching": "fetching the artifact",
    "installing": "installing the model's environment",
    "compiling": "compiling the model",
    "loading": "loading the model",
    "draining": "finishing requests in flight",
    "stopping": "stopping",
    "lost": "restarting the model's process",
}


def while_running(work: Callable[[], T], tell: Callable[[], None]) -> T:
    """The result of `work`, which runs on a thread; `tell` is called again and again meanwhile.

    Ctrl-C ends the wait and leaves the thread behind: the process is about to end.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_S)
        if thread.is_alive():
            tell()
    if failure:
        raise failure[0]
    return outcome[0]
