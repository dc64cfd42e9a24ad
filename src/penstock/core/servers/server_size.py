"""How many gateway processes a server has, and how many clients each takes, by what there is.

A gateway is one process on one core. On few cores a second one would take from the models what it
gives to requests, and the one process that is gateway and control plane together is the fastest way
through. A gateway for every four cores leaves three to whatever computes, which small models need,
and large ones do not notice; who wants another number says so.

Each connection of a gateway is a descriptor, and so is everything that serves it: links to
instances, pipes to start one, the database, logs. Clients get what is left after a reserve for
these, so that however many of them come, an instance that died can be replaced.
"""

from __future__ import annotations

CORES_PER_GATEWAY = 4
#: More of them were never measured here, and instances count what each of them has sent.
GATEWAYS_AUTO_MAX = 8

#: Descriptors. A server was seen to use 25, and 5 or 6 for each of its instances: room for ten of
#: them, and for files that are open for a moment.
RESERVE_MIN = 96
#: Of a larger limit: more clients mean more instances, and gRPC's connections count here too.
RESERVE_SHARE = 0.25
CONNECTIONS_MIN = 16


def gateways_for(cores: float, asked: int) -> int:
    """`asked`, or by the number of cores where that is 0."""
    return asked or min(GATEWAYS_AUTO_MAX, max(1, int(cores) // CORES_PER_GATEWAY))


def connections_for(descriptors: int | None, asked: int) -> int:
    """Connections that may be open: `asked`, or what `descriptors` leave. None = any number."""
    if descriptors is None:
        return asked
    reserve = max(RESERVE_MIN, int(descriptors * RESERVE_SHARE))
    return min(asked, max(CONNECTIONS_MIN, descriptors - reserve))
