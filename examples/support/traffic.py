"""A day of support traffic: who calls which model, when, with how long a text.

    python examples/support/traffic.py --calls 20000        # what the day looks like

Calls of one customer are a Poisson process whose rate follows its working hours: full between 9 and
17 o'clock of its own time, less at noon, almost nothing at night. Streams of customers are
independent, each with a seed of its own: one seed, one day. Times are seconds from midnight UTC:
`day` can be iterated in virtual time as it is, and `compressed` says how long to wait in a live
run. Method: thinning (Lewis and Shedler, 1979).
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from customers import Customer, customers

DAY_S = 86_400.0
#: How long texts are: a question, a mail, a thread. (tokens, out of a hundred)
LENGTHS = ((30, 70), (250, 24), (550, 6))
NIGHT, NOON = 0.02, 0.7  #: of the full rate
EMBEDDINGS, AUTOCOMPLETE = "embeddings", "autocomplete"


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """One request."""

    at_s: float  #: from midnight UTC
    customer: str  #: its key
    kind: str  #: EMBEDDINGS or AUTOCOMPLETE
    tokens: int

    @property
    def target_model(self) -> str:
        """The name below the prefix of its kind."""
        return f"{self.customer}.tar.gz"


def day(
    people: Sequence[Customer],
    *,
    calls: float,
    seed: int = 0,
    autocomplete: int = 0,
    begin_s: float = 0.0,
    end_s: float = DAY_S,
) -> Iterator[Call]:
    """The calls from `begin_s` to `end_s` in the order of time; more days follow the first alike.

    Args:
        people: all customers.
        calls: a whole day's, on average.
        autocomplete: as many customers, the first ones, have an autocomplete model too; half of
            their calls are for it.
    """
    streams = [
        _calls_of(each, calls * each.share, each.number <= autocomplete, seed, begin_s, end_s)
        for each in people
    ]
    return heapq.merge(*streams)


def compressed(calls: Iterator[Call], factor: float) -> Iterator[tuple[float, Call]]:
    """(seconds after the start of a live run in which it is due, call): `factor` 1440 makes a day
    a minute."""
    first: float | None = None
    for call in calls:
        first = call.at_s if first is None else first
        yield (call.at_s - first) / factor, call


def rate(local_hour: float) -> float:
    """Of the full rate, at an hour of the customer's own day (0 to 24)."""
    open_hours = _step(local_hour, 8.5) * (1.0 - _step(local_hour, 17.5))
    noon = 1.0 - (1.0 - NOON) * math.exp(-(((local_hour - 12.5) / 0.6) ** 2))
    return max(NIGHT, open_hours * noon)


def _step(hour: float, at: float) -> float:
    """From 0 to 1 around `at`, within about an hour."""
    return 1.0 / (1.0 + math.exp(-(hour - at) * 6.0))


#: Calls of a day per second of full rate.
_FULL_S = sum(rate(minute / 60.0) * 60.0 for minute in range(24 * 60))


def _calls_of(
    one: Customer, calls: float, autocomplete: bool, seed: int, begin_s: float, end_s: float
) -> Iterator[Call]:
    rng = random.Random(f"traffic {seed} {one.key}")
    full = calls / _FULL_S  #: calls per s
    lengths = [length for length, _ in LENGTHS]
    weights = [weight for _, weight in LENGTHS]
    at = begin_s
    while full > 0.0 and (at := at + rng.expovariate(full)) < end_s:
        if rng.random() >= rate((at / 3600.0 + one.utc_offset_h) % 24.0):
            continue
        kind = AUTOCOMPLETE if autocomplete and rng.random() < 0.5 else EMBEDDINGS
        tokens = rng.choices(lengths, weights)[0]
        yield Call(at, one.key, kind, max(4, round(tokens * rng.uniform(0.7, 1.0))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--autocomplete", type=int, default=40)
    parser.add_argument("--calls", type=float, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    people = customers(given.customers)
    hours: Counter[int] = Counter()
    models: dict[int, set[tuple[str, str]]] = {}
    for call in day(people, calls=given.calls, seed=given.seed, autocomplete=given.autocomplete):
        hour = int(call.at_s // 3600)
        hours[hour] += 1
        models.setdefault(hour, set()).add((call.kind, call.customer))
    print("hour (UTC)  calls  models called")
    for hour in range(24):
        bar = "#" * round(60 * hours[hour] / max(hours.values(), default=1))
        print(f"{hour:10}  {hours[hour]:5}  {len(models.get(hour, ())):13}  {bar}")
    print(f"in all: {sum(hours.values())} calls")


if __name__ == "__main__":
    main()
