"""What can happen in a run, and in which order at one moment.

An event is (at, kind, key, epoch): seconds, one of the kinds below, whom it concerns, and how often
the copy had died when it was planned. Events at the same moment happen by kind, then by key; equal
events are interchangeable, so no running number is needed to repeat a run.
"""

from __future__ import annotations

from typing import Final

Event = tuple[float, int, int, int]

# In their order at one moment. The comment says what the key is.
FAULT: Final = 0  #: twice its number in the scenario, plus 1 for the recovery
LANE_DONE: Final = 1  #: copy * lanes + lane
ARRIVAL: Final = 2  #: 0; what the request is like is drawn when it comes
CLIENT_GONE: Final = 3  #: request
BATCHER_TIMER: Final = 4  #: copy; after the arrivals of this moment, which are one socket read
DEADLINES: Final = 5  #: 0
HELD_RETRY: Final = 6  #: 0
OUTLIER_LOOK: Final = 7  #: 0
