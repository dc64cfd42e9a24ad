"""Requests from a seed: their times and properties.

In an open loop (`poisson`, `on-off`, `trace`) arrivals do not depend on answers. In a closed
loop each of `clients` sends, waits for its answer, thinks and sends again. A request's properties
are drawn from mixes: values with weights.

How long a batch runs: by a formula or by measurements, with noise of mean 1.

    run = (base_s + rows * (row_s + bucket * token_s)) * noise

`base_s` alone gives a constant service time; with `sigma` the noise is lognormal. `measured`
replaces the formula: it takes the runs of the next longer bucket, interpolates between its sizes,
and beyond the largest one uses that one's time per row. `noise` replaces `sigma`: it holds ratios
of single runs to their mean, from which it draws.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from penstock.file_schema import one_of, read_by

#: ((value, weight), ...); a single value needs no draw, so it takes no random number.
Mix = tuple[tuple[Any, float], ...]


def _mix_of(kind: type[int] | type[float] | type[str], words: str) -> Meta:
    """In a file a mix is one value, or a list of [value, weight] pairs with weights above 0."""
    kinds = (int, float) if kind is float else (kind,)

    def is_pair(entry: object) -> bool:
        if not isinstance(entry, list) or len(entry) != 2:
            return False
        value, weight = entry
        return type(value) in kinds and type(weight) in (int, float) and weight > 0

    def read(value: object, _where: str) -> Mix:
        pairs: list[Any] = value if isinstance(value, list) else [[value, 1.0]]
        if not pairs or not all(is_pair(entry) for entry in pairs):
            raise ValueError(allowed)
        return tuple((value, float(weight)) for value, weight in pairs)

    allowed = f"{words}, or a list of pairs of {words} and a weight above 0"
    checks = read_by(read, unchecked=True).extra or {}
    names = {int: "integer", float: "number", str: "string"}
    return Meta(extra={**checks, "allowed": allowed}, extra_json_schema={"or type": names[kind]})


_Whole = Annotated[Mix, _mix_of(int, "an integer")]

_TOKEN_BYTES = 4  #: bytes of English text per token, roughly, with today's vocabularies

ARRIVALS = ("poisson", "on-off", "closed-loop", "trace")


class Arrival(NamedTuple):
    """The properties of one request."""

    rows: int
    length: int  #: tokens; of a prompt, those after its shared prefix
    priority: int
    deadline_s: float | None  #: from its arrival; None = none
    variant: str | None  #: TargetVariant; None = by weight
    cancel_after_s: float | None  #: from its arrival until its client disconnects; None = never
    answer_tokens: int = 1  #: length of a generated answer
    prefix: int = 0  #: number of the shared prefix that its prompt begins with
    prefix_tokens: int = 0  #: tokens of that prefix; 0 = it shares none


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """The requests to make. Rates in requests per s."""

    arrivals: Annotated[str, one_of(ARRIVALS)]
    rate_rps: float = 0.0  #: poisson: the rate; on-off: the rate while on
    rate_off_rps: float = 0.0  #: on-off: the rate while off
    on_s_mean: float = 1.0  #: on-off: mean length of a phase; lengths are exponential
    off_s_mean: float = 1.0
    clients: int = 0  #: closed-loop: number of clients
    think_s_mean: float = 0.0  #: closed-loop: mean pause after an answer; exponential
    trace_s: tuple[float, ...] = ()  #: trace: arrival times, ascending; equal times are one read
    trace_repeat_s: float = 0.0  #: trace: interval after which it starts again; 0 = once
    rows: _Whole = ((1, 1.0),)
    length: _Whole = ((0, 1.0),)
    priority: _Whole = ((0, 1.0),)
    deadline_s: Annotated[Mix, _mix_of(float, "a number")] = ((0.0, 1.0),)  #: 0 = none
    variant: Annotated[Mix, _mix_of(str, "text")] = (("", 1.0),)  #: "" = by weight
    answer_tokens: _Whole = ((1, 1.0),)  #: lengths of generated answers
    prefixes: int = 0  #: number of shared prefixes; 0 = prompts share none
    prefix_tokens: int = 0  #: tokens of each shared prefix
    prefix_skew: float = 0.0  #: the k-th prefix is used k ** -skew as often as the first
    cancel_fraction: float = 0.0  #: share of clients that disconnect before their answer
    cancel_after_s_mean: float = 0.0  #: mean time until such a client disconnects; exponential


class Workload:
    """The requests of one run."""

    def __init__(self, spec: WorkloadSpec, seed: object, length_s: float) -> None:
        self._spec = spec
        self._length_s = length_s
        self._prefixes: dict[int, bytes] = {}
        # Two random streams, so that another mix can have the same arrivals.
        self._when = random.Random(f"{seed}/arrivals")
        self.sample = _sampler(spec, random.Random(f"{seed}/requests"))

    def prompt(self, number: int, arrival: Arrival) -> bytes:
        """The text of a prompt: that of its shared prefix, then one of its own."""
        shared = self._prefixes.get(arrival.prefix)
        if shared is None:
            shared = filler_text(b"prefix %d " % arrival.prefix, arrival.prefix_tokens)
            self._prefixes[arrival.prefix] = shared
        return shared + filler_text(b"request %d " % number, arrival.length)

    def open(self) -> Iterator[float]:
        """Arrival times of an open loop before the end, ascending."""
        spec = self._spec
        if spec.arrivals == "poisson":
            return self._poisson(0.0, self._length_s, spec.rate_rps)
        if spec.arrivals == "on-off":
            return self._on_off()
        if spec.arrivals == "trace":
            return self._trace()
        return iter(())

    def first(self) -> list[float]:
        """Closed loop: the time of each client's first request."""
        if self._spec.arrivals != "closed-loop":
            return []
        return sorted(self._think_s() for _ in range(self._spec.clients))

    def again(self, now: float) -> float | None:
        """Closed loop: the next request of a client answered now; None: the run accepts no more."""
        if self._spec.arrivals != "closed-loop":
            return None
        at = now + self._think_s()
        return at if at < self._length_s else None

    def _think_s(self) -> float:
        mean = self._spec.think_s_mean
        return self._when.expovariate(1.0 / mean) if mean else 0.0

    def _poisson(self, start: float, stop: float, rate_rps: float) -> Iterator[float]:
        if rate_rps <= 0:
            return
        gap = self._when.expovariate
        at = start + gap(rate_rps)
        while at < stop:
            yield at
            at += gap(rate_rps)

    def _on_off(self) -> Iterator[float]:
        spec, at, on = self._spec, 0.0, True
        while at < self._length_s:
            mean = spec.on_s_mean if on else spec.off_s_mean
            stop = min(at + self._when.expovariate(1.0 / mean), self._length_s)
            yield from self._poisson(at, stop, spec.rate_rps if on else spec.rate_off_rps)
            at, on = stop, not on

    def _trace(self) -> Iterator[float]:
        base = 0.0
        while True:
            for at in self._spec.trace_s:
                if base + at >= self._length_s:
                    return
                yield base + at
            if not self._spec.trace_repeat_s:
                return
            base += self._spec.trace_repeat_s


def filler_text(word: bytes, tokens: int) -> bytes:
    """`word` repeated, with four bytes per token."""
    length = _TOKEN_BYTES * tokens
    return (word * (length // len(word) + 1))[:length]


def _sampler(spec: WorkloadSpec, rng: random.Random) -> Callable[[], Arrival]:
    """Draws requests; if all are equal, returns the same object each time."""
    popularity = [((k, (k + 1.0) ** -spec.prefix_skew)) for k in range(spec.prefixes)]
    prefix: Mix = tuple(popularity) or ((0, 1.0),)
    mixes = (
        spec.rows, spec.length, spec.priority, spec.deadline_s, spec.variant, spec.answer_tokens,
        prefix,
    )  # fmt: skip
    prefix_tokens = spec.prefix_tokens if spec.prefixes else 0
    draws = [_drawer(mix, rng) for mix in mixes]

    def sample() -> Arrival:
        rows, length, priority, deadline_s, variant, answer_tokens, which = [
            draw() for draw in draws
        ]
        cancel_after_s = None
        if spec.cancel_fraction and rng.random() < spec.cancel_fraction:
            cancel_after_s = rng.expovariate(1.0 / spec.cancel_after_s_mean)
        return Arrival(
            rows, length, priority, deadline_s or None, variant or None, cancel_after_s,
            answer_tokens, which, prefix_tokens,
        )  # fmt: skip

    if not spec.cancel_fraction and all(len(mix) == 1 for mix in mixes):
        always = sample()
        return lambda: always
    return sample


def _drawer(mix: Mix, rng: random.Random) -> Callable[[], Any]:
    values = [value for value, _ in mix]
    if len(values) == 1:
        return lambda: values[0]
    sums = list(accumulate(weight for _, weight in mix))
    last = len(values) - 1
    return lambda: values[bisect_right(sums, rng.random() * sums[-1], 0, last)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    base_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0  #: per row and token of the bucket that the batch is padded to
    sigma: float = 0.0  #: standard deviation of the logarithm of the noise; 0 = no noise
    measured: tuple[tuple[int, int, float], ...] = ()  #: (rows, bucket, mean run s)
    noise: tuple[float, ...] = ()  #: run time over mean, one per measured run
    #: (rows, s): how long the very first run of so many rows takes, as where a compiler is at work
    first_runs: tuple[tuple[int, float], ...] = ()


class ServiceTimes:
    """Draws one run time per batch, in the order in which batches start."""

    def __init__(self, spec: ServiceSpec, seed: object) -> None:
        self._spec = spec
        self._known_s: dict[tuple[int, int], float] = {}  #: (rows, bucket) -> mean
        self._sigma = spec.sigma
        self._mu = -spec.sigma * spec.sigma / 2  # makes the mean of the noise 1
        self._ratios = spec.noise
        self._noise = random.Random(f"{seed}/service")
        self._first_runs = dict(spec.first_runs)  #: those that are still to come

    def run_s(self, rows: int, bucket: int) -> float:
        if rows in self._first_runs:
            return self._first_runs.pop(rows)
        key = (rows, bucket)
        run_s = self._known_s.get(key)
        if run_s is None:
            run_s = self._known_s[key] = self._mean_s(rows, bucket)
        if self._ratios:
            return run_s * self._ratios[int(self._noise.random() * len(self._ratios))]
        if self._sigma:
            return run_s * self._noise.lognormvariate(self._mu, self._sigma)
        return run_s

    def _mean_s(self, rows: int, bucket: int) -> float:
        spec = self._spec
        if not spec.measured:
            return spec.base_s + rows * (spec.row_s + bucket * spec.token_s)
        lengths = sorted({length for _, length, _ in spec.measured})
        length = next((each for each in lengths if each >= bucket), lengths[-1])
        before_rows, before_s = 0, 0.0
        for size, _, run_s in sorted(entry for entry in spec.measured if entry[1] == length):
            if rows <= size:
                if not before_rows:
                    return run_s
                share = (rows - before_rows) / (size - before_rows)
                return before_s + (run_s - before_s) * share
            before_rows, before_s = size, run_s
        return before_s * rows / before_rows
