"""Triton's extensions for log and trace settings, of one server.

The log's level is that of all processes that serve requests: the control side has it, and tells the
gateways. What models' processes write is not part of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.request.server_settings import (
    check_trace,
    log_level_after,
    log_settings,
    trace_settings,
)

log = logging.getLogger(__name__)


class ServerSettings:
    """Reads and changes them in this process."""

    def __init__(self, trace_share: float = 0.0) -> None:
        """`trace_share`: share of requests that is recorded; 0 = none is."""
        self._trace_share = trace_share
        #: called with a new level, a number of `logging`
        self.on_level: Callable[[int], None] = lambda level: None

    async def log(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the log, `given` changed. Raises CallerError."""
        before = logging.getLogger().getEffectiveLevel()
        level = log_level_after(before, given)
        # Only changes: a level between Python's own, as a program may set it, stays.
        if given and log_settings(level) != log_settings(before):
            logging.getLogger().setLevel(level)
            log.warning("the log's level is now %s", logging.getLevelName(level))
            self.on_level(level)
        return log_settings(level)

    def trace(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of traces. Raises CallerError for one in `given` that is another."""
        check_trace(self._trace_share, given)
        return trace_settings(self._trace_share)
