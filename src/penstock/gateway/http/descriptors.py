"""The limit on open files and sockets of this process; `core/request/connections.py` says who gets
them.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Asks for all descriptors that this process may have; returns how many it has.

    The soft limit is low for the sake of programs that use select(); none of ours does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as cause:  # a system may refuse an infinite one
            log.warning("the limit on open files stays at %d: %s", soft, cause)
            return soft
    return hard


def limit_now() -> int | None:
    """Descriptors that this process may have open; None = any number."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
