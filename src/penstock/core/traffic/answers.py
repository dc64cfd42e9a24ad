"""What comes of a request: it is sent to a region, held here, or refused."""

from __future__ import annotations

from typing import Final, NamedTuple

#: why a request is held, and of one that waited for nothing else, why it is refused
NO_REGION_SERVES: Final = "no-region-serves"


class Sent(NamedTuple):
    """A slot of the region is reserved: send the request, and `release` it exactly once."""

    region: str
    #: session | session-moved | home | spill | prefix-match | ratio | only-region | last-resort
    reason: str


class HeldForRegion(NamedTuple):
    """No region has room now. Keep the request until `released` names the ticket, or withdraw."""

    ticket: int
    reason: str  #: no-room | session-region-full | no-region-serves | others-wait


class Refused(NamedTuple):
    """Nothing was reserved."""

    #: no-region-allowed | no-region-serves | held-too-many | held-too-long; where nothing is ever
    #: held, why not Sent
    reason: str
    retry_after_s: float | None  #: None: the same request cannot pass later
