"""Whether a request ends the workers that compute it: a *poison request*.

Such a request must not be sent from worker to worker; and one that stood beside it must not be
blamed with it. Three things that can befall a request are told apart and counted in its `Past`:

* its worker died while it was computing this request, and no other (`worker-died`);
* its worker died while it had this request and others (`worker-died-in-company`): it may have been
  any of them. From then on the request is sent `alone`, so that the next death has one suspect;
* its instance or the connection there was lost, or the copy answered nothing while others did
  (`routing/outliers.py`), which says nothing of the request.

The second death is enough where one of them had no other suspect: the request is the model's
failure. So one that ends workers ends two of them, and its mates of the first batch are answered,
each by itself. Where a worker computes many requests at once, being alone means: the only suspect
there. What was given back without having begun (the copy drains, restarts, is not there) is counted
by nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.death_limits import REQUEST_DEATHS_MAX, deaths_needed
from penstock.errors import ModelError

#: Reasons of a RETURNED frame that count. All others say that the request had not begun.
WORKER_DIED: Final = "worker-died"
WORKER_DIED_IN_COMPANY: Final = "worker-died-in-company"
DEATHS: Final = (WORKER_DIED, WORKER_DIED_IN_COMPANY)
#: What a gateway says where the connection to the instance was lost.
CONNECTION_LOST: Final = "connection-lost"
#: ... and where it takes a request back from a copy that is left out.
INSTANCE_SILENT: Final = "instance-silent"


class Past(NamedTuple):
    """What a request has been through, as far as it counts."""

    deaths: int = 0  #: workers that died while they computed it and nothing else
    company_deaths: int = 0  #: workers that died while they had it and others
    losses: int = 0  #: instances that were lost with it

    def after(self, reason: str) -> Past:
        """With one more return."""
        if reason == WORKER_DIED:
            return self._replace(deaths=self.deaths + 1)
        if reason == WORKER_DIED_IN_COMPANY:
            return self._replace(company_deaths=self.company_deaths + 1)
        if reason in (CONNECTION_LOST, INSTANCE_SILENT):
            return self._replace(losses=self.losses + 1)
        return self

    @property
    def alone(self) -> bool:
        """Whether it is sent to be computed alone: workers have died under it."""
        return self.deaths + self.company_deaths > 0

    @property
    def blamed(self) -> bool:
        """Whether it is a poison request, which no further worker gets."""
        needed = deaths_needed(REQUEST_DEATHS_MAX, only_suspect=self.deaths > 0)
        return self.deaths + self.company_deaths >= needed


FRESH: Final = Past()
#: Part of something that workers died of: one more death, and that had no other suspect.
SUSPECTED: Final = Past(company_deaths=1)


def reason_of_death(company: int, *, alone: bool = False) -> str:
    """The reason for a request whose worker died while it had it and `company` others.

    `alone`: it was sent to be computed alone, so it was the only suspect among them.
    """
    return WORKER_DIED if alone or not company else WORKER_DIED_IN_COMPANY


def died_of_it(past: Past) -> ModelError:
    """What the caller is told, who should not try again what ended a worker each time."""
    return ModelError(
        "model-worker-died",
        f"The model's process ended on this request, {past.deaths + past.company_deaths} times.",
        hint="Look into the endpoint's log.",
        original_message="the model's process ended while it had this request",
    )
