"""Traffic between regions: which region gets a request, in what shares, and why.

`spec.py` has the spec and what a region reports. `router.py` chooses a region and holds requests
for which no region has room. `regions.py` counts the room of each region, `health.py` decides
whether it is used, and `ratios.py` moves the shares, by the measurements in `moving_averages.py`.
`outcomes.py` decides what follows from a region's answer, or from none. `push_room.py` is a
region's own count of its room.
"""

from penstock.core.traffic.router import TrafficRouter
from penstock.core.traffic.spec import (
    AUTOMATIC,
    MANUAL,
    MODES,
    HealthSpec,
    HeldForRegion,
    RegionObserved,
    RegionSpec,
    TrafficSpec,
)

__all__ = [
    "AUTOMATIC", "MANUAL", "MODES", "HealthSpec", "HeldForRegion", "RegionObserved", "RegionSpec",
    "TrafficRouter", "TrafficSpec",
]  # fmt: skip
