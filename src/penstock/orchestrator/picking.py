"""What a router is asked for one request: where it may go, and what it belongs to."""

from __future__ import annotations

from penstock.core.traffic.spec import NO_REGION_SERVES, HeldForRegion, Refused, Sent
from penstock.orchestrator.passage import Passage
from penstock.orchestrator.table import TrafficTable


def pick(table: TrafficTable, passage: Passage, *, now: float) -> Sent | HeldForRegion | Refused:
    """A region with a slot reserved there, a place in the queue here, or why there is neither."""
    asked, traffic = passage.asked, passage.traffic
    traffic.asked_at = now
    allowed = traffic.allowed()
    if allowed is None and asked.endpoint:
        allowed = table.pinned(asked.endpoint)
    return traffic.router.pick(
        session=asked.session,
        prefix=asked.prefix,
        exclude=passage.tried,
        allowed=allowed,
        again=passage.attempts > 0,
        deadline=passage.call.deadline,
        now=now,
    )


def fits_elsewhere(table: TrafficTable, passage: Passage, region: str, *, now: float) -> bool:
    """Whether another region than this one would take it, now or as soon as it has room: it goes
    before all that was never sent. Reserves nothing."""
    router = passage.traffic.router
    tried, passage.tried = passage.tried, (*passage.tried, region)
    answer = pick(table, passage, now=now)
    passage.tried = tried
    if isinstance(answer, HeldForRegion):
        router.withdraw(answer.ticket)
        return answer.reason != NO_REGION_SERVES
    if not isinstance(answer, Sent):
        return False
    router.release(answer.region, ok=None, now=now)
    return answer.region != region
