"""The interface between a pipeline's driver and the ways to carry out a step.

`StepTimes` counts how long calls took, as they end, to find out which step is slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.errors import CallerError, ModelError, NotNowError, PenstockError

#: Bound for a step's whole answer, or one event of a stream.
ANSWER_BYTES_MAX: Final = 64 << 20


class Hear(Protocol):
    """Gets the results of a call: pieces first, then one of the other two methods. All on the event
    loop. After `stop` nothing is called any more."""

    def piece(self, value: Any) -> None: ...
    def done(self, result: Any) -> None:
        """`result` is the whole answer."""

    def failed(self, error: PenstockError) -> None: ...

    @property
    def trace_headers(self) -> tuple[tuple[str, str], ...]:
        """Headers for the called service, with the trace of the call."""


class StepCall(Protocol):
    """A running call."""

    def feed(self, piece: Any) -> None:
        """Passes on a piece from the step that this one follows."""

    def feed_end(self) -> None: ...
    def stop(self) -> None:
        """The answer is not wanted: the called service should stop, too."""

    def hold(self, held: bool) -> None:
        """`held`: the reader of the answer is behind, and the called service should pause."""


class Way(Protocol):
    """A way to carry out one step, made once for each loaded pipeline."""

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        """`left_s`: seconds until the deadline. May call `hear` before it returns."""

    async def close(self) -> None:
        return


class Whole:
    """A call that takes no pieces: pieces of a step that it follows are collected and ignored."""

    __slots__ = ()

    def feed(self, piece: Any) -> None:
        return

    def feed_end(self) -> None:
        return

    def stop(self) -> None:
        return

    def hold(self, held: bool) -> None:
        return


_NOTHING_TO_STOP: Final = Whole()


class ValueWay(Way):
    """A step whose answer is its input: it combines other steps' results, to output or pass on.

    A list is passed on item by item, so that another step can make a call for each.
    """

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        for piece in inputs if isinstance(inputs, list) else [inputs]:
            hear.piece(piece)
        hear.done(inputs)
        return _NOTHING_TO_STOP


def failed_answer(status: int, message: str, retry_after_s: float | None = None) -> PenstockError:
    """The error for a step's HTTP status and message, by whose fault it is."""
    words = " ".join(message.split())[:500] or f"status {status}"
    if status in (429, 503):
        return NotNowError("step-unavailable", words, retry_after_s=retry_after_s)
    if status in (400, 413, 422):
        return CallerError("step-refused", words, status=status)
    return ModelError("step-failed", words, original_status=status)


def models_own(error: PenstockError) -> PenstockError:
    """Turns a refusal of content that a step made, not the caller, into a failure of the model."""
    refuses = isinstance(error, ModelError) and error.original_status < 500
    if not refuses and not isinstance(error, CallerError):
        return error
    return ModelError(error.code, error.message, hint=error.hint)


#: Weight of the latest call in the moving average: a deployment's first calls must fade.
_WEIGHT: Final = 1 / 64


@dataclass(slots=True)
class _StepTime:
    calls: int = 0
    failed: int = 0
    total_s: float = 0.0
    recent_s: float = 0.0  #: moving average, s
    longest_s: float = 0.0

    def add(self, took_s: float) -> None:
        self.calls += 1
        self.total_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        weight = max(_WEIGHT, 1 / self.calls)
        self.recent_s += (took_s - self.recent_s) * weight


class StepTimes:
    def __init__(self, names: Iterable[str]) -> None:
        self._steps = {name: _StepTime() for name in names}

    def ended(self, name: str, took_s: float) -> None:
        self._steps[name].add(took_s)

    def failed(self, name: str, took_s: float) -> None:
        self._steps[name].failed += 1
        self._steps[name].add(took_s)

    def told(self) -> dict[str, dict[str, Any]]:
        """JSON-ready, by step; times in ms."""
        return {
            name: {
                "calls": step.calls,
                "failed": step.failed,
                "mean_ms": round(step.total_s / step.calls * 1e3, 3) if step.calls else None,
                "recent_ms": round(step.recent_s * 1e3, 3) if step.calls else None,
                "longest_ms": round(step.longest_s * 1e3, 3) if step.calls else None,
            }
            for name, step in self._steps.items()
        }
