"""How many files and sockets this process may have open, and how many of them are for clients.

Each connection is a descriptor, and so is everything that serves it: links to instances, pipes to
start one, the database, logs. Clients get what is left after a reserve for these, so that however
many of them come, an instance that died can be replaced.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

#: A server was seen to use 25, and 5 or 6 for each of its instances: room for ten of them, and for
#: files that are open for a moment.
RESERVE_MIN = 96
#: Of a larger limit: more clients mean more instances, and gRPC's connections count here too.
RESERVE_SHARE = 0.25
CONNECTIONS_MIN = 16


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


def limit_now() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_for(limit: int, asked: int) -> int:
    """HTTP connections that may be open with `limit` descriptors: `asked`, or what there is.

    Args:
        limit: RLIMIT_NOFILE; RLIM_INFINITY is any number of them.
    """
    if limit in (resource.RLIM_INFINITY, -1):
        return asked
    reserve = max(RESERVE_MIN, int(limit * RESERVE_SHARE))
    return min(asked, max(CONNECTIONS_MIN, limit - reserve))
