"""Whether a request ends the workers that compute it: a *poison request*.

Such a request must not be sent from worker to worker, and a request that shared its batch must not
be blamed for it. A request's `Past` counts three events:

* its worker died while it was computing this request, and no other (`worker-died`);
* its worker died while it had this request and others (`worker-died-in-company`): any of them may
  be the cause. From then on the request is sent `alone`, so that the next death has one suspect;
* its instance or the connection there was lost, or the copy answered nothing while others did
  (`routing/outliers.py`), which says nothing about the request.

The second death is enough where one of them had no other suspect: the request is the model's
failure. So a poison request ends two workers, and the other requests of its first batch are
answered, each by itself. Where a worker computes many requests at once, alone means: the only
suspect there. A request that came back without having begun (the copy drains, restarts, is not
there) is not counted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.death_limits import REQUEST_DEATHS_MAX, deaths_needed
from penstock.errors import ModelError

#: Reasons of a RETURNED frame that count. All others mean that the request had not begun.
WORKER_DIED: Final = "worker-died"
WORKER_DIED_IN_COMPANY: Final = "worker-died-in-company"
DEATHS: Final = (WORKER_DIED, WORKER_DIED_IN_COMPANY)
#: The gateway's reason where the connection to the instance was lost.
CONNECTION_LOST: Final = "connection-lost"
#: The gateway's reason where it takes a request back from a copy that is ejected as an outlier.
INSTANCE_SILENT: Final = "instance-silent"


class Past(NamedTuple):
    """What has happened to a request, as far as it counts."""

    deaths: int = 0  #: workers that died while they computed this request and nothing else
    company_deaths: int = 0  #: workers that died while they had this request and others
    losses: int = 0  #: instances that were lost with it

    def after(self, reason: str) -> Past:
        """Adds a return for `reason`."""
        if reason == WORKER_DIED:
            return self._replace(deaths=self.deaths + 1)
        if reason == WORKER_DIED_IN_COMPANY:
            return self._replace(company_deaths=self.company_deaths + 1)
        if reason in (CONNECTION_LOST, INSTANCE_SILENT):
            return self._replace(losses=self.losses + 1)
        return self

    @property
    def alone(self) -> bool:
        """Whether it must be computed alone, because workers have died with it."""
        return self.deaths + self.company_deaths > 0

    @property
    def blamed(self) -> bool:
        """Whether it is a poison request, which is sent to no further worker."""
        needed = deaths_needed(REQUEST_DEATHS_MAX, only_suspect=self.deaths > 0)
        return self.deaths + self.company_deaths >= needed


FRESH: Final = Past()
#: For work that is a part of something that ended workers: one more death as the only suspect is
#: enough.
SUSPECTED: Final = Past(company_deaths=1)


def reason_of_death(company: int, *, alone: bool = False) -> str:
    """The reason for a request whose worker died while it had it and `company` others.

    `alone`: it was sent to be computed alone, so it was the only suspect among them.
    """
    return WORKER_DIED if alone or not company else WORKER_DIED_IN_COMPANY


def died_of_it(past: Past) -> ModelError:
    """The error for the caller, who should not retry a request that ended a worker each time."""
    return ModelError(
        "model-worker-died",
        f"The model's process ended on this request, {past.deaths + past.company_deaths} times.",
        hint="Look into the endpoint's log.",
        original_message="the model's process ended while it had this request, or closed its"
        " connection",
    )
