"""The customers: who they are, when they work, how much they ask. The same for every run.

Knows nothing of models or requests. A few customers are large and most are small: the share of the
customer of rank r is as 1 / r ** 0.9, about what help desks of one vendor look like.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Where they are, in hours from UTC, and how many of a hundred are there.
_ZONES = ((-8.0, 18), (-5.0, 30), (0.0, 14), (1.0, 20), (5.5, 10), (9.0, 8))
_SKEW = 0.9
_FIRST = (
    "Alder", "Birch", "Cedar", "Delta", "Ember", "Falcon", "Garnet", "Harbor", "Indigo", "Juniper",
    "Kestrel", "Lumen",
)  # fmt: skip
_SECOND = (
    "Air", "Books", "Cycles", "Foods", "Games", "Garden", "Home", "Kitchen", "Outdoors", "Shoes",
    "Sound", "Tools",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Customer:
    """One company whose support team asks."""

    number: int  #: from 1
    name: str
    utc_offset_h: float
    share: float  #: of all calls; the shares of all customers add up to 1

    @property
    def key(self) -> str:
        """As it stands in the names of its models."""
        return f"customer-{self.number:03}"


def customers(count: int, *, seed: int = 0) -> list[Customer]:
    """`count` customers. The first ones are the same however many there are, but for the shares.

    Rank has nothing to do with the number: large ones are anywhere.
    """
    rng = random.Random(f"customers {seed}")
    zones = [zone for zone, _ in _ZONES]
    weights = [weight for _, weight in _ZONES]
    people = []
    for number in range(1, count + 1):
        name = f"{_FIRST[(number - 1) % 12]} {_SECOND[(number - 1) // 12 % 12]}"
        if number > 144:
            name += f" {(number - 1) // 144 + 1}"
        people.append((number, name, rng.choices(zones, weights)[0], rng.random()))
    order = sorted(people, key=lambda each: (each[3], each[0]))
    size = {each[0]: 1.0 / (rank + 1) ** _SKEW for rank, each in enumerate(order)}
    whole = sum(size.values())
    return [Customer(number, name, zone, size[number] / whole) for number, name, zone, _ in people]
