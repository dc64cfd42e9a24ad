"""How many gateway processes a server has.

A gateway is one process on one core. On few cores a second one would take from the models what it
gives to requests, and the one process that is gateway and control plane together is the fastest way
through. A gateway for every four cores leaves three to whatever computes, which small models need,
and large ones do not notice; who wants another number says so.
"""

from __future__ import annotations

CORES_PER_GATEWAY = 4
#: More of them were never measured here, and instances count what each of them has sent.
GATEWAYS_AUTO_MAX = 8


def gateways_for(cores: float, asked: int) -> int:
    """`asked`, or by the number of cores where that is 0."""
    return asked or min(GATEWAYS_AUTO_MAX, max(1, int(cores) // CORES_PER_GATEWAY))
