"""One call to a model of the same artifact, repeated if the model gave it back.

`core.nested_calls` decides what is repeated, and when a call has failed. The caller limits its
time: it goes on until it is answered or cancelled.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import numpy as np

from penstock.core.blame.poison_requests import FRESH, died_of_it
from penstock.core.request.nested_calls import when_returned
from penstock.core.request.retry import RETRY_S
from penstock.errors import PenstockError
from penstock.runtimes.base import Asking, Pending, Returned

Answer = dict[str, np.ndarray] | PenstockError
#: (context of the call, receiver of the result) -> the running call.
Ask = Callable[[Asking, Callable[[Answer | Returned], None]], Pending]


class RepeatedCall:
    """`begin` may raise what `ask` raises. `done` is called once, unless the call is cancelled;
    with `Returned` where the model is gone for good."""

    __slots__ = ("_again", "_ask", "_asked", "_done", "_loop", "_model", "_past", "_pending")

    def __init__(
        self, model: str, ask: Ask, asked: Asking, done: Callable[[Answer | Returned], None]
    ) -> None:
        self._model = model
        # Whoever asks has this call, too: what is over names neither, or their tensors would stay
        # until the collector of cycles comes.
        self._ask: Ask | None = ask
        self._asked = asked
        self._done: Callable[[Answer | Returned], None] | None = done
        self._past = FRESH
        self._loop = asyncio.get_running_loop()
        self._pending: Pending | None = None
        self._again: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._again = None
        assert self._ask is not None
        alone = self._asked.alone or self._past.alone
        self._pending = self._ask(dataclasses.replace(self._asked, alone=alone), self._heard)

    def cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._pending is not None:
            self._pending.cancel()
        self._ended()

    def _ended(self) -> Callable[[Answer | Returned], None] | None:
        done, self._done, self._ask, self._pending = self._done, None, None, None
        return done

    def _tell(self, outcome: Answer | Returned) -> None:
        done = self._ended()
        if done is not None:
            done(outcome)

    def _heard(self, outcome: Answer | Returned) -> None:
        self._pending = None
        if not isinstance(outcome, Returned):
            self._tell(outcome)
            return
        step = when_returned(self._past, outcome.reason)
        self._past = step.past
        if step.do == "again":
            self._again = self._loop.call_later(RETRY_S, self.begin)
        elif step.do == "fail":
            error = died_of_it(step.past)
            error.message = f"the model {self._model!r}: {error.message}"
            self._tell(error)
        else:
            self._tell(outcome)
