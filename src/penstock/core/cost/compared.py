"""The same models served in other ways: their cost compared with that of shared instances.

    one endpoint each     every model has an instance of its own, of the smallest type that holds it
    memory fractions      every model gets the same fixed part of an instance, large enough for the
                          largest model
    shared, all resident  models packed by the memory that they were measured to hold, up to a fill
    shared, as called     only the models in use at a time are resident: the measured case

Each is computed for one replica of everything and for several. Replicas are on instances of their
own: two replicas of a model on one instance would fail together. Packing is first fit decreasing
(Johnson, 1973): at most 11/9 of the least number of instances, and one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.cost.report import HOUR_S, InstanceUsage
from penstock.errors import CallerError

ONE_EACH: Final = "one endpoint each"
FRACTIONS: Final = "memory fractions"
RESIDENT: Final = "shared, all resident"
AS_CALLED: Final = "shared, as called"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeOffer:
    """An instance type that could be bought."""

    name: str
    memory_bytes: int  #: memory that models may use
    price_per_hour: float  #: US dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSpec:
    """What is compared, and how much of the memory is used."""

    shared: TypeOffer  #: type of the shared instances, and of the fractions
    offers: tuple[TypeOffer, ...]  #: types for endpoints of their own; the shared type is one more
    replicas: tuple[int, ...] = (1, 3)
    fill: float = 0.8  #: part of an instance's memory that packed models may use
    #: A fraction is this much of the largest model: a model's need is not known before it runs.
    margin: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way to serve, with a number of replicas."""

    name: str
    replicas: int
    instances: float  #: average over the time
    dollars_per_hour: float
    models_per_instance: float
    saves: float  #: part saved of the cost of one endpoint each: 0.8 is 80 % cheaper
    saves_fractions: float  #: likewise, compared with memory fractions
    #: Likewise, compared with one endpoint each without replicas: whether the savings pay for
    #: replicas.
    saves_single: float


def compared(
    bytes_of: Mapping[str, int],
    spec: ComparisonSpec,
    *,
    shared_per_hour: float | None = None,
    shared_instances: float = 0.0,
) -> list[Alternative]:
    """Alternatives in the order of `spec.replicas`, each in the order of this file's list.

    Args:
        bytes_of: model -> bytes that it was measured to hold.
        shared_per_hour: dollars per hour of the instances that really served, if they are to be
            compared as well; there were `shared_instances` of them on average.

    Raises CallerError (`model-too-large`) where a model fits no instance that is offered.
    """
    models = len(bytes_of)
    if not models:
        return []
    offers = sorted((*spec.offers, spec.shared), key=lambda o: (o.price_per_hour, o.name))
    each = sum(_smallest(name, size, offers) for name, size in sorted(bytes_of.items()))
    price = spec.shared.price_per_hour
    packed = bins(bytes_of.values(), spec.shared.memory_bytes * spec.fill)
    found = []
    parts = math.ceil(models / _per_instance(bytes_of, spec))
    for replicas in spec.replicas:
        rows: list[tuple[str, float, float]] = [
            (ONE_EACH, models * replicas, each * replicas),
            (FRACTIONS, parts * replicas, parts * replicas * price),
            (RESIDENT, packed * replicas, packed * replicas * price),
        ]
        if shared_per_hour is not None:
            rows.append((AS_CALLED, shared_instances * replicas, shared_per_hour * replicas))
        whole, rigid = rows[0][2], rows[1][2]
        found += [
            Alternative(
                name=name,
                replicas=replicas,
                instances=instances,
                dollars_per_hour=dollars,
                models_per_instance=models * replicas / instances if instances else 0.0,
                saves=_saved(dollars, whole),
                saves_fractions=_saved(dollars, rigid),
                saves_single=_saved(dollars, each),
            )
            for name, instances, dollars in rows
        ]
    return found


def of_usage(
    instances: Sequence[InstanceUsage],
    offers: Sequence[TypeOffer],
    *,
    replicas: tuple[int, ...] = (1, 3),
) -> list[Alternative]:
    """The alternatives to a report's instances; the instance held longest gives the report's time.

    The type that cost the most is taken as the shared one. Raises CallerError (`model-too-large`).
    """
    time_s = max((instance.held_s for instance in instances), default=0.0)
    if not time_s:
        return []
    by_type: dict[TypeOffer, float] = {}
    bytes_of: dict[str, int] = {}
    for instance in instances:
        offer = TypeOffer(
            name=instance.instance_type,
            memory_bytes=instance.memory_bytes,
            price_per_hour=instance.price_per_hour,
        )
        by_type[offer] = by_type.get(offer, 0.0) + instance.held_s
        for usage in instance.models:
            key = f"{instance.endpoint}/{usage.model}"
            bytes_of[key] = max(bytes_of.get(key, 0), usage.bytes_peak)
    shared = max(by_type, key=lambda o: (by_type[o] * o.price_per_hour, o.name, o.memory_bytes))
    return compared(
        bytes_of,
        ComparisonSpec(shared=shared, offers=tuple(offers), replicas=replicas),
        shared_per_hour=sum(each.dollars for each in instances) * HOUR_S / time_s,
        shared_instances=sum(each.held_s for each in instances) / time_s,
    )


def bins(sizes: Iterable[int], room: float) -> int:
    """Number of instances for all sizes: first fit decreasing. A size above `room` gets its own."""
    free: list[float] = []
    for size in sorted(sizes, reverse=True):
        at = next((at for at, left in enumerate(free) if size <= left), None)
        if at is None:
            free.append(room - size)
        else:
            free[at] -= size
    return len(free)


def _saved(dollars: float, other: float) -> float:
    return 1.0 - dollars / other if other else 0.0


def _per_instance(bytes_of: Mapping[str, int], spec: ComparisonSpec) -> int:
    """How many equal parts an instance has, each for the largest model with its margin."""
    part = max(1.0, max(bytes_of.values()) * spec.margin)
    return max(1, math.floor(spec.shared.memory_bytes / part))


def _smallest(name: str, size: int, offers: Sequence[TypeOffer]) -> float:
    """The price of the cheapest type that holds a model."""
    for offer in offers:
        if size <= offer.memory_bytes:
            return offer.price_per_hour
    largest = max(offer.memory_bytes for offer in offers)
    raise CallerError(
        "model-too-large",
        f"{name!r} holds {size} bytes, and the largest type that is offered has {largest}",
        hint="Offer a larger instance type.",
    )
