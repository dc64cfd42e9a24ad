"""What a pipeline's driver asks of a way to carry out a step, whichever it is."""

from __future__ import annotations

from typing import Any, Final, Protocol

from penstock.errors import CallerError, ModelError, NotNowError, PenstockError

#: A step's whole answer, or one event of a stream.
ANSWER_BYTES_MAX: Final = 64 << 20


class Hear(Protocol):
    """Who began a call and is told of it: pieces, and then one of the other two. All on the loop;
    after `stop` nothing is heard any more."""

    def piece(self, value: Any) -> None: ...
    def done(self, result: Any) -> None:
        """`result` stands for the whole answer."""

    def failed(self, error: PenstockError) -> None: ...

    @property
    def trace_headers(self) -> tuple[tuple[str, str], ...]:
        """What the far end is to be told of the trace that the call is in."""


class StepCall(Protocol):
    """A call under way."""

    def feed(self, piece: Any) -> None:
        """A piece of the step that this one follows."""

    def feed_end(self) -> None: ...
    def stop(self) -> None:
        """Nobody wants the answer: the far end is to stop, too."""

    def hold(self, held: bool) -> None:
        """Whoever reads the answer is behind: the far end is to make no more of it meanwhile."""


class Way(Protocol):
    """One step's way, made once for each loaded pipeline."""

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        """`left_s`: seconds until the answer is late. May call `hear` before it returns."""

    async def close(self) -> None: ...


class Whole:
    """A call that takes no pieces: those of a step that it follows are gathered and left."""

    __slots__ = ()

    def feed(self, piece: Any) -> None:
        return

    def feed_end(self) -> None:
        return

    def stop(self) -> None:
        return

    def hold(self, held: bool) -> None:
        return


def failed_answer(status: int, message: str, retry_after_s: float | None = None) -> PenstockError:
    """A step's HTTP status and words, as whose fault it is."""
    words = " ".join(message.split())[:500] or f"status {status}"
    if status in (429, 503):
        return NotNowError("step-unavailable", words, retry_after_s=retry_after_s)
    if status in (400, 413, 422):
        return CallerError("step-refused", words, status=status)
    return ModelError("step-failed", words, original_status=status)


def models_own(error: PenstockError) -> PenstockError:
    """A refusal of what no caller has sent, but a step has made."""
    refuses = isinstance(error, ModelError) and error.original_status < 500
    if not refuses and not isinstance(error, CallerError):
        return error
    return ModelError(error.code, error.message, hint=error.hint)
