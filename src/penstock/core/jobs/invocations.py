"""What happens to a request body of offline work that was not answered.

Nobody waits for a single answer, so the only deadline is the job's own time-out for each try. A try
that says nothing about the body, because the copy restarts or is full, is repeated until that time
is up. A container's own failures (5xx, no answer in time) are retried as often as the job says. A
try that was late in a batch with others does not count: the body is computed alone first. An error
of the model's code about the body is final. The death of a worker is judged as for online requests
(`core.blame`): the body is computed alone, and refused if a worker dies again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.poison_requests import DEATHS, FRESH, Past
from penstock.errors import ModelError, NotNowError, PenstockError

#: Reasons of a copy that will take no further body.
_GONE: Final = ("copy-failed", "copy-closed", "unknown-copy", "draining")
#: Errors that say how a try went, not that the body is wrong.
_TIMED_OUT: Final = ("model-timeout", "invocation-timeout")
_ANSWERED: Final = "model-answered-error"

#: s between two tries that say nothing about the body.
RETRY_S: Final = 0.05


class Tries(NamedTuple):
    """What has happened to a body so far."""

    past: Past = FRESH
    failures: int = 0  #: failures of the container
    waited_s: float = 0.0  #: s that it has waited since it last began
    #: It was not answered in time, and may have shared a batch with the body that is to blame.
    apart: bool = False

    @property
    def alone(self) -> bool:
        return self.apart or self.past.alone


class InvocationStep(NamedTuple):
    do: str  #: again | wait | refuse | give-up
    reason: str
    tries: Tries


def when_returned_to_job(tries: Tries, reason: str, *, wait_s_max: float) -> InvocationStep:
    """The copy gave the body back."""
    if reason in _GONE:
        return InvocationStep("give-up", reason, tries)
    if reason not in DEATHS:
        return _later(tries, reason, wait_s_max)
    tries = Tries(tries.past.after(reason), tries.failures, apart=tries.apart)
    return InvocationStep("refuse" if tries.past.blamed else "again", reason, tries)


def when_failed(
    tries: Tries, error: PenstockError, *, retries_max: int, wait_s_max: float, batched: bool
) -> InvocationStep:
    """The body was answered with an error, or not in time (`invocation-timeout`). `batched`: the
    copy computes several bodies at once, and all of them are late when one is."""
    if isinstance(error, NotNowError):
        return _later(tries, error.code, wait_s_max)
    if batched and error.code in _TIMED_OUT and not tries.alone:
        return InvocationStep(
            "again", "late-in-company", Tries(tries.past, tries.failures, apart=True)
        )
    own = isinstance(error, ModelError) and (
        error.code in _TIMED_OUT or (error.code == _ANSWERED and error.original_status >= 500)
    )
    if not own:
        return InvocationStep("refuse", error.code, tries)
    tries = Tries(tries.past, tries.failures + 1, apart=tries.apart)
    return InvocationStep("again" if tries.failures <= retries_max else "refuse", error.code, tries)


def _later(tries: Tries, reason: str, wait_s_max: float) -> InvocationStep:
    tries = tries._replace(waited_s=tries.waited_s + RETRY_S)
    return InvocationStep("wait" if tries.waited_s <= wait_s_max else "give-up", reason, tries)
