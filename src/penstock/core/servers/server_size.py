"""How many gateway processes a server has, and how many clients each takes, by its resources.

A gateway is one process on one core. On few cores a second one would take from the models what it
gives to requests, and a single process that is gateway and control plane together is fastest. One
gateway for every four cores leaves three to models; small models need them, and large ones lose
little. A setting can choose another number.

Each connection of a gateway takes a descriptor, and so does everything that serves it: links to
instances, pipes to start one, the database, logs. Clients get what is left after a reserve for
these, so that an instance that died can be replaced however many clients there are.
"""

from __future__ import annotations

CORES_PER_GATEWAY = 4
#: More were never measured here, and instances count per gateway what it has sent.
GATEWAYS_AUTO_MAX = 8

#: Descriptors. A server used 25, and 5 or 6 for each of its instances: enough for ten of them, and
#: for files that are open for a moment.
RESERVE_MIN = 96
#: Share of a larger limit: more clients mean more instances, and gRPC's connections count here too.
RESERVE_SHARE = 0.25
CONNECTIONS_MIN = 16


def gateways_for(cores: float, asked: int) -> int:
    """`asked`, or a number by the cores where that is 0."""
    return asked or min(GATEWAYS_AUTO_MAX, max(1, int(cores) // CORES_PER_GATEWAY))


def connections_for(descriptors: int | None, asked: int) -> int:
    """Connections that may be open: `asked`, or what `descriptors` allow. None = any number."""
    if descriptors is None:
        return asked
    reserve = max(RESERVE_MIN, int(descriptors * RESERVE_SHARE))
    return min(asked, max(CONNECTIONS_MIN, descriptors - reserve))
