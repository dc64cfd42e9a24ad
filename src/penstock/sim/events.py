"""The events of a run, and their order at the same moment.

An event is (at, kind, key, epoch): seconds, one of the kinds below, the object concerned, and the
number of deaths of the copy when the event was planned. Events at the same moment happen by kind,
then by key. Equal events are interchangeable, so a run can be repeated without a running number.
"""

from __future__ import annotations

from typing import Final

Event = tuple[float, int, int, int]

# In their order at the same moment. Each comment names the key.
FAULT: Final = 0  #: twice the fault's number in the scenario, plus 1 for the recovery
LANE_DONE: Final = 1  #: copy * lanes + lane
ARRIVAL: Final = 2  #: 0; the request's properties are drawn when it arrives
CLIENT_GONE: Final = 3  #: request
BATCHER_TIMER: Final = 4  #: copy; after the arrivals of this moment, which are one socket read
DEADLINES: Final = 5  #: 0
HELD_RETRY: Final = 6  #: 0
OUTLIER_LOOK: Final = 7  #: 0
