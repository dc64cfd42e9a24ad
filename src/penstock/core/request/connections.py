"""How many clients may be connected, with the descriptors that there are.

Each connection is a descriptor, and so is everything that serves it: links to instances, pipes to
start one, the database, logs. Clients get what is left after a reserve for these, so that however
many of them come, an instance that died can be replaced.
"""

from __future__ import annotations

#: A server was seen to use 25, and 5 or 6 for each of its instances: room for ten of them, and for
#: files that are open for a moment.
RESERVE_MIN = 96
#: Of a larger limit: more clients mean more instances, and gRPC's connections count here too.
RESERVE_SHARE = 0.25
CONNECTIONS_MIN = 16


def connections_for(descriptors: int | None, asked: int) -> int:
    """Connections that may be open: `asked`, or what `descriptors` leave. None = any number."""
    if descriptors is None:
        return asked
    reserve = max(RESERVE_MIN, int(descriptors * RESERVE_SHARE))
    return min(asked, max(CONNECTIONS_MIN, descriptors - reserve))
