"""Traffic between regions: which region gets a request, in what shares, and why.

`spec.py` says what is wanted, `seen.py` what a region tells of itself, `answers.py` what comes of a
request. `router.py` chooses a region and keeps what no region has room for (`held.py`);
`regions.py` counts the room of each, `health.py` says whether it is to be used, and `ratios.py`
moves the shares. What follows from a region's answer, or from none, is in `outcomes.py`.
"""

from penstock.core.traffic.router import TrafficRouter
from penstock.core.traffic.spec import (
    AUTOMATIC,
    MANUAL,
    MODES,
    HealthSpec,
    HeldForRegion,
    Refused,
    RegionObserved,
    RegionSpec,
    Sent,
    TrafficSpec,
)

__all__ = [
    "AUTOMATIC", "MANUAL", "MODES", "HealthSpec", "HeldForRegion", "Refused", "RegionObserved",
    "RegionSpec", "Sent", "TrafficRouter", "TrafficSpec",
]  # fmt: skip
