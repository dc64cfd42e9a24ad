"""The interface between a pipeline's driver and the ways to carry out a step."""

from __future__ import annotations

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

    async def close(self) -> None: ...


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


class ValueWay:
    """A step whose answer is its input: it combines other steps' results, to output or pass on.

    A list is passed on item by item, so that another step can make a call for each.
    """

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        for piece in inputs if isinstance(inputs, list) else [inputs]:
            hear.piece(piece)
        hear.done(inputs)
        return _NOTHING_TO_STOP

    async def close(self) -> None:
        return


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
