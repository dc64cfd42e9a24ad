"""Which models go, so that another may come: a set that is enough and costs least.

What going costs is the *loss*: the seconds that a reload takes, over the seconds until the model is
expected to be called again. Per share of the missing memory that it frees, this is the value by
which GreedyDual-Size-Frequency orders a cache (Cherkasova, 1998: frequency x cost / size), with
the expected wait of `history.py` in the place of an aged counter.

One load must not evict many: models are taken by rising value until they are enough, then those
that turn out not to be needed are given back, dearest first; and if a single model that is enough
alone costs less than all of them, it goes instead. A model that frees nothing of what is missing
(host memory is short, it holds an accelerator's) never goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.residency.spec import Footprint


class EvictionCandidate(NamedTuple):
    name: str
    size: Footprint
    loss: float  #: expected seconds of loading per s, if it goes
    last: float  #: when it was called last


class Shortage(NamedTuple):
    """What is missing: memory in two dimensions, and places."""

    memory: Footprint
    models: int = 0

    def met_by(self, victims: Sequence[EvictionCandidate]) -> bool:
        host = sum(victim.size.host_bytes for victim in victims)
        accelerator = sum(victim.size.accelerator_bytes for victim in victims)
        return (
            host >= self.memory.host_bytes
            and accelerator >= self.memory.accelerator_bytes
            and len(victims) >= self.models
        )

    def share(self, size: Footprint) -> float:
        """How much of what is missing a victim of this size brings; 0 = nothing."""
        host, accelerator = self.memory.host_bytes, self.memory.accelerator_bytes
        share = 1.0 / self.models if self.models else 0.0
        if host:
            share += min(1.0, size.host_bytes / host)
        if accelerator:
            share += min(1.0, size.accelerator_bytes / accelerator)
        return share


def by_value(
    candidates: Iterable[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate] | None:
    """The victims of least value that are enough; None where all of them are not."""
    useful = []
    for candidate in candidates:
        share = shortage.share(candidate.size)
        if share:
            useful.append((candidate.loss / share, candidate.last, candidate.name, candidate))
    useful.sort()
    return _cheapest([candidate for *_, candidate in useful], shortage)


def by_last_use(
    oldest_first: Iterable[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate] | None:
    """Plain LRU: the longest unused, until they are enough; None where all of them are not."""
    victims = []
    for candidate in oldest_first:
        if shortage.share(candidate.size):
            victims.append(candidate)
            if shortage.met_by(victims):
                return victims
    return None


def spared(
    oldest_first: Sequence[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate] | None:
    """LRU that evicts no more than it must: none in vain, and one instead of many."""
    useful = [candidate for candidate in oldest_first if shortage.share(candidate.size)]
    return _cheapest(useful, shortage)


def _cheapest(
    ordered: list[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate] | None:
    """Of candidates in the order in which they may go."""
    victims = _until_enough(ordered, shortage)
    if victims is None or len(victims) == 1:
        return victims
    victims = _without_needless(victims, shortage)
    alone = [candidate for candidate in ordered if shortage.met_by((candidate,))]
    if len(victims) > 1 and alone:
        single = min(alone, key=lambda victim: (victim.loss, victim.last, victim.name))
        if single.loss <= sum(victim.loss for victim in victims):
            return [single]
    return victims


def _until_enough(
    ordered: Sequence[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate] | None:
    host, accelerator = shortage.memory.host_bytes, shortage.memory.accelerator_bytes
    for count, victim in enumerate(ordered, start=1):
        host -= victim.size.host_bytes
        accelerator -= victim.size.accelerator_bytes
        if host <= 0 and accelerator <= 0 and count >= shortage.models:
            return list(ordered[:count])
    return None


def _without_needless(
    victims: list[EvictionCandidate], shortage: Shortage
) -> list[EvictionCandidate]:
    host = sum(victim.size.host_bytes for victim in victims) - shortage.memory.host_bytes
    accelerator = sum(victim.size.accelerator_bytes for victim in victims)
    accelerator -= shortage.memory.accelerator_bytes
    more = len(victims) - shortage.models
    kept = set()
    for dearest in sorted(victims, key=lambda victim: (-victim.loss, -victim.last, victim.name)):
        size = dearest.size
        if more and size.host_bytes <= host and size.accelerator_bytes <= accelerator:
            host, accelerator = host - size.host_bytes, accelerator - size.accelerator_bytes
            more -= 1
            kept.add(dearest.name)
    return [victim for victim in victims if victim.name not in kept]
