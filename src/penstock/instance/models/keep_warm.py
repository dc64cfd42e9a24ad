"""Keeps target models of a host warm by schedule; drives `core.residency.keep_warm`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from penstock.clock import Clock, zone_of
from penstock.core.residency.keep_warm import Keep, KeepWarm, Schedule, parse
from penstock.instance.batcher_driver import CallAt, Timer
from penstock.instance.models.host import ModelHost

_LOG = logging.getLogger(__name__)

#: The variable of the model's Environment with schedules, as `core.residency.keep_warm` reads them.
VARIABLE: Final = "PENSTOCK_KEEP_WARM"
#: The longest sleep, because a wall clock may be set, and differs from timers.
_SLEEP_S_MAX: Final = 60.0
_SLEEP_S_MIN: Final = 0.01


def schedules_of(environment: Mapping[str, str]) -> tuple[Schedule, ...]:
    """Raises CallerError (`keep-warm-invalid`)."""
    return parse(environment.get(VARIABLE, ""), zone_of)


class KeepWarmDriver:
    """Makes wishes and pins of one host. Starts at once; `close` it with the host."""

    def __init__(
        self, schedules: tuple[Schedule, ...], host: ModelHost, *, clock: Clock, call_at: CallAt
    ) -> None:
        self._keeper = KeepWarm(schedules)
        self._host = host
        self._clock = clock
        self._call_at = call_at
        self._timer: Timer | None = None
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def snapshot(self) -> dict[str, Any]:
        return self._keeper.snapshot()

    def _set_timer(self) -> None:
        when = self._keeper.next_deadline()
        if when is not None:
            sleep_s = min(max(_SLEEP_S_MIN, when - self._clock.wall()), _SLEEP_S_MAX)
            self._timer = self._call_at(self._clock.monotonic() + sleep_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._host.state != "ready":
            return
        when, now = self._keeper.next_deadline(), self._clock.wall()
        if when is not None and now >= when:
            for action in self._keeper.on_timer(now=now):
                kept = isinstance(action, Keep)
                _LOG.info(
                    "model %s: %s: %s", action.model, "kept" if kept else "let go", action.reason
                )
                self._host.explicit.pin(action.model, kept)
                if kept:
                    self._host.explicit.wish(action.model)
        self._set_timer()
