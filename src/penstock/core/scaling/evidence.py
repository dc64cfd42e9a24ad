"""A crash does not scale in: when a low metric may be believed.

Copies that are down have no requests in flight, and requests that fail at once are gone before they
are counted. So a metric is believed to be low only if all copies answered during all the time that
the alarm looked at, and if what arrived was answered.
"""

from __future__ import annotations

from typing import Final

from penstock.core.scaling.observed import LoadWindow

#: Above it, a request in twenty fails: too many for chance, while a restart's few stay below.
ERROR_SHARE_MAX: Final = 0.05
STALE_AFTER_S: Final = 10.0  #: looks are a second apart


def against_scale_in(window: LoadWindow, *, since: float, now: float) -> str:
    """Why capacity must not be taken away for what was seen since then; empty where it may."""
    latest = window.latest()
    if latest is None or now >= latest.at + STALE_AFTER_S:
        return "observation-stale"
    if latest.short:
        return "copies-not-ready"
    if window.was_short(since):
        return "copies-were-not-ready"
    arrivals, errors = window.arrivals(since), window.errors(since)
    if errors and errors > ERROR_SHARE_MAX * arrivals:
        return "requests-fail"
    return ""
