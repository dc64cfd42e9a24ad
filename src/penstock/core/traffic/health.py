"""Whether a region is used: by results of real requests, by probes and by its reports.

A region is not used (ejected) after failures in a row, when too large a share of its answers are
failures, when probes in a row had no answer, or when nothing at all comes from it. It comes back
when its time is over and it has given a sign of life since. Then its share grows slowly, for its
caches are cold and the cause of the failure may come back. Each time it fails soon after its return
it stays away for twice as long. (Envoy's outlier detection and slow start, with fewer knobs.)

All results are computed from `now` and earlier inputs, so silence and slow start need no timer.
`reason` says why it is not used, or that it is.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.core.traffic.spec import HealthSpec

SERVING: Final = "serving"
SLOW_START: Final = "slow-start"
NOT_HEARD: Final = "not-heard-yet"
FAILURES: Final = "failures-in-a-row"
FAILURE_SHARE: Final = "failure-share"
UNREACHABLE: Final = "unreachable"
SILENT: Final = "silent"
#: It still answers, if with errors: used where no better region is left.
ANSWERS_STILL: Final = (FAILURES, FAILURE_SHARE)


class RegionHealth:
    """The health of one region, as one orchestrator sees it."""

    __slots__ = (
        "_answers", "_back_at", "_ejected_s", "_failed", "_failures_row", "_probes_row", "_sign_at",
        "_spec", "_until", "_why", "_window_from",
    )  # fmt: skip

    def __init__(self, spec: HealthSpec) -> None:
        self._spec = spec
        self._sign_at: float | None = None  #: time of the last sign of life
        self._why: str | None = None  #: why it is ejected; None: it is not
        self._until = 0.0  #: earliest end of the ejection
        self._ejected_s = 0.0  #: planned length of the last ejection
        self._back_at: float | None = None  #: end of the last ejection or silence
        self._failures_row = 0
        self._probes_row = 0
        self._window_from = 0.0
        self._answers = 0  #: answers within the window
        self._failed = 0

    def heard(self, *, now: float) -> None:
        """A report of the region came."""
        self._sign(now)

    def probed(self, ok: bool, *, now: float) -> None:
        """A probe was answered, or was not answered in time."""
        if ok:
            self._probes_row = 0
            self._sign(now)
            return
        self._probes_row += 1
        if self._probes_row >= self._spec.probes_max:
            self._eject(UNREACHABLE, now)

    def answered(self, ok: bool, *, now: float) -> None:
        """A client's request was answered; `ok` False: it failed by the region's fault."""
        spec = self._spec
        if ok:
            self._failures_row = 0
            self._sign(now)
        if now >= self._window_from + spec.window_s:
            self._window_from, self._answers, self._failed = now, 0, 0
        self._answers += 1
        if ok:
            return
        self._failed += 1
        self._failures_row += 1
        if self._failures_row >= spec.failures_max:
            self._eject(FAILURES, now)
        elif (
            self._answers >= spec.answers_min
            and self._failed > spec.failure_share_max * self._answers
        ):
            self._eject(FAILURE_SHARE, now)

    def reason(self, *, now: float) -> str:
        """serving | slow-start | not-heard-yet | failures-in-a-row | failure-share | unreachable |
        silent"""
        if self._sign_at is None:
            return NOT_HEARD
        if self._why is not None:
            return self._why
        if now >= self._sign_at + self._spec.silence_s_max:
            return SILENT
        return SLOW_START if self.share(now=now) < 1.0 else SERVING

    def is_open(self, *, now: float) -> bool:
        """Whether requests may be sent there."""
        return self.reason(now=now) in (SERVING, SLOW_START)

    def share(self, *, now: float) -> float:
        """The part of its room and its ratio that counts: below 1 for a while after its return."""
        if self._back_at is None or not self._spec.slow_start_s:
            return 1.0
        grown = (now - self._back_at) / self._spec.slow_start_s
        least = self._spec.slow_start_from
        return min(1.0, least + (1.0 - least) * grown)

    def _sign(self, now: float) -> None:
        last = self._sign_at
        self._sign_at = now
        if self._why is not None:
            if now < self._until:
                return
            self._why = None
            self._failures_row = self._probes_row = 0
            self._window_from, self._answers, self._failed = now, 0, 0
            self._back_at = now
        elif last is not None and now >= last + self._spec.silence_s_max:
            self._back_at = now

    def _eject(self, why: str, now: float) -> None:
        if self._why is not None:
            return  # requests from before the ejection say nothing new
        spec, ejected_s = self._spec, self._spec.eject_s
        if self._back_at is not None and now < self._back_at + spec.slow_start_s + self._ejected_s:
            ejected_s = min(2.0 * self._ejected_s or ejected_s, spec.eject_s_max)
        self._why, self._ejected_s = why, max(ejected_s, spec.eject_s)
        self._until = now + self._ejected_s

    def snapshot(self, *, now: float) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "reason": self.reason(now=now),
            "share": round(self.share(now=now), 3),
            "failures_in_a_row": self._failures_row,
            "probes_failed_in_a_row": self._probes_row,
        }

    def check_invariants(self) -> None:
        assert 0 <= self._failed <= self._answers, "more failures than answers"
        assert self._ejected_s <= max(self._spec.eject_s_max, self._spec.eject_s)
