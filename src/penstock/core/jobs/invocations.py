"""What becomes of a request body of offline work that was not answered.

Nobody waits for one answer, so there is no deadline but the job's own time-out for each try. A try
that says nothing of the body, as the copy starts anew or is full, is made again until that time is
up. A container's own failures (5xx, no answer in time) are tried again as often as the job says,
not counting a try that was late in company: the body is computed alone first. What the model's code
says of the body is final. A worker that died is judged by the rule of online requests
(`core.blame`): the body is computed alone, and refused if a worker dies of it again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.poison_requests import DEATHS, FRESH, Past
from penstock.errors import ModelError, NotNowError, PenstockError

#: Of a copy that will take no body any more.
_GONE: Final = ("copy-failed", "copy-closed", "unknown-copy", "draining")
#: Errors of containers that say how a try went, not what the body is like.
_TIMED_OUT: Final = ("model-timeout", "invocation-timeout")
_ANSWERED: Final = "model-answered-error"

#: Between two tries that say nothing of the body.
RETRY_S: Final = 0.05


class Tries(NamedTuple):
    """What a body has been through."""

    past: Past = FRESH
    failures: int = 0  #: of the container
    waited_s: float = 0.0  #: without having begun, since it last began
    #: It was not answered in time, and may have shared a batch with the one that is to blame.
    apart: bool = False

    @property
    def alone(self) -> bool:
        return self.apart or self.past.alone


class InvocationStep(NamedTuple):
    do: str  #: again | wait | refuse | give-up
    reason: str
    tries: Tries


def when_returned_to_job(tries: Tries, reason: str, *, wait_s_max: float) -> InvocationStep:
    """The copy gave it back."""
    if reason in _GONE:
        return InvocationStep("give-up", reason, tries)
    if reason not in DEATHS:
        return _later(tries, reason, wait_s_max)
    tries = Tries(tries.past.after(reason), tries.failures, apart=tries.apart)
    return InvocationStep("refuse" if tries.past.blamed else "again", reason, tries)


def when_failed(
    tries: Tries, error: PenstockError, *, retries_max: int, wait_s_max: float, batched: bool
) -> InvocationStep:
    """It was answered with an error, or not in time (`invocation-timeout`). `batched`: the copy
    computes several bodies at once, and all of them are late when one is."""
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
