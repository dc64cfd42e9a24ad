"""Energy and money over an interval, divided among instances, and the account of each variant.

Every core second of the machine is charged to somebody: a busy one to the instance that used it, an
idle one to all that hold cores, in proportion to their number. So the host's whole measured energy
is divided, including that of the operating system and of waiting. The energy of boards is divided
by how many an instance holds; boards that nobody holds count as part of the idle host. Money is the
price of the instance type for each second that an instance is held, idle or not. The loading of an
instance before it was first observed is its cold start: it is charged once, by estimate.

Where nothing can be measured, energy is the watts of the instance type under load: an upper bound
for an idle instance. `Charge.source` says which it was. Readings and times are passed in; this
module reads no counter and no clock.

`VariantCost` is the cost of one variant: since the start, in the last hour, and per answer. Answers
pay for the idle time around them. For the CloudWatch series, the cost of an idle interval is
carried over to the next answers, so the average of a period is all its cost divided by all its
answers. The gauges divide the last hour's cost by the last hour's answers. Requests that failed or
were refused are no answers: the others pay for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.fleet.catalogue import CORE_WATTS
from penstock.metrics.series.statistics import StatisticSet

RAPL: Final = "rapl"  #: measured by the processor packages' counters
NVML: Final = "nvml"  #: measured by the boards' counters
ESTIMATED: Final = "estimated"  #: the watts of the instance type
RAPL_NVML: Final = "rapl+nvml"
NVML_ESTIMATED: Final = "nvml+estimated"  #: boards measured, the host estimated by its cores

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHeld:
    """An instance that exists now, whether or not it serves."""

    endpoint: str
    variant: str
    instance_id: str
    cores: float
    watts: float  #: of its type under load
    price_per_hour: float  #: of its type, US dollars
    accelerators: int = 0
    load_s: float = 0.0  #: time that loading its copies took
    instance_type: str = ""
    memory_bytes: int = 0  #: the memory that it may take


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRead:
    """Readings of the machine over one interval; None: not measured."""

    interval_s: float
    cores: float
    boards: int = 0  #: number of the machine's accelerators
    host_j: float | None = None
    boards_j: float | None = None


class Charge(NamedTuple):
    """The energy and the money of one instance in an interval."""

    endpoint: str
    variant: str
    joules: float
    dollars: float
    source: str  #: where the joules come from
    instance_type: str = ""


class InstanceTime(NamedTuple):
    """How long an instance was held in an interval."""

    instance: InstanceHeld
    seconds: float
    busy_s: float = 0.0  #: core seconds that it used


class Accounts:
    """Adds up how long each instance is held, until it is charged.

    Call `note` each second with the instances that exist, and `charge` from time to time.
    """

    def __init__(self) -> None:
        self._noted: frozenset[str] = frozenset()
        #: instance -> (instance, seconds to charge)
        self._due: dict[str, tuple[InstanceHeld, float]] = {}
        self._cold: list[InstanceHeld] = []  #: instances first observed since the last charge

    def note(self, held: Sequence[InstanceHeld], elapsed_s: float) -> None:
        """These instances exist now; `elapsed_s` since the last note."""
        for one in held:
            if one.instance_id in self._noted:
                _, seconds = self._due.get(one.instance_id, (one, 0.0))
                self._due[one.instance_id] = (one, seconds + elapsed_s)
            else:
                self._cold.append(one)
        self._noted = frozenset(one.instance_id for one in held)

    def charge(self, busy: Mapping[str, float], read: MachineRead) -> list[Charge]:
        """The charges since the last call, in the order in which instances were first observed.

        Args:
            busy: instance -> cores that it used on average; 0 if unknown.
        """
        cold, self._cold = self._cold, []
        due, self._due = self._due, {}
        held = [
            InstanceTime(one, seconds, busy.get(one.instance_id, 0.0) * seconds)
            for one, seconds in due.values()
        ]
        charges = [_charge(one, one.load_s, one.watts * one.load_s, ESTIMATED) for one in cold]
        for one, (joules, source) in zip(held, divided(held, read), strict=True):
            charges.append(_charge(one.instance, one.seconds, joules, source))
        return charges


def _charge(one: InstanceHeld, seconds: float, joules: float, source: str) -> Charge:
    dollars = one.price_per_hour * seconds / _HOUR_S
    return Charge(one.endpoint, one.variant, joules, dollars, source, one.instance_type)


def divided(held: Sequence[InstanceTime], read: MachineRead) -> list[tuple[float, str]]:
    """(joules, source) for each instance over the interval."""
    cores_s = [one.instance.cores * one.seconds for one in held]
    boards_s = [one.instance.accelerators * one.seconds for one in held]
    boards = shares(boards_s if sum(boards_s) else cores_s)
    idle_s = max(0.0, read.cores * read.interval_s - sum(one.busy_s for one in held))
    host = shares(
        [one.busy_s + idle_s * share for one, share in zip(held, shares(cores_s), strict=True)]
    )
    return [
        _joules(one, host_share, boards_share, read)
        for one, host_share, boards_share in zip(held, host, boards, strict=True)
    ]


def shares(weights: Sequence[float]) -> list[float]:
    """Shares of one, in proportion to the weights; all 0 if the weights are."""
    whole = sum(weights)
    return [weight / whole if whole else 0.0 for weight in weights]


def _joules(
    one: InstanceTime, host_share: float, boards_share: float, read: MachineRead
) -> tuple[float, str]:
    instance = one.instance
    if read.host_j is not None and read.boards_j is not None:
        return read.host_j * host_share + read.boards_j * boards_share, RAPL_NVML
    if read.host_j is not None and not (read.boards and instance.accelerators):
        return read.host_j * host_share, RAPL
    if read.boards_j is not None and instance.accelerators:
        host_j = instance.cores * CORE_WATTS * one.seconds
        return host_j + read.boards_j * boards_share, NVML_ESTIMATED
    return instance.watts * one.seconds, ESTIMATED


RECENT_S: Final = 3600.0
_SLICE_S: Final = 60.0
_TOKENS_PER_PRICE: Final = 1000.0


class PerUnit(NamedTuple):
    """Figures of the last hour; None if there was no answer in it."""

    dollars_per_request: float | None
    joules_per_request: float | None
    dollars_per_thousand_tokens: float | None
    joules_per_thousand_tokens: float | None


@dataclass(slots=True)
class _Slice:
    """One minute of the last hour."""

    start: float
    joules: float = 0.0
    dollars: float = 0.0
    answers: int = 0
    tokens: float = 0.0


class VariantCost:
    """The account of one variant."""

    def __init__(self) -> None:
        self.joules: dict[str, float] = {}  #: source -> joules since the start
        self.dollars = 0.0  #: since the start
        self.dollars_by_type: dict[str, float] = {}  #: instance type -> dollars since the start
        self._answers = 0  #: number of answers up to the last `settle`
        self._tokens = 0.0
        #: name -> cost that the next answers have to bear
        self._due = {"CostPerRequest": 0.0, "EnergyPerRequest": 0.0,
                     "CostPerThousandTokens": 0.0, "EnergyPerThousandTokens": 0.0}  # fmt: skip
        self._slices: deque[_Slice] = deque()

    def settle(
        self, charges: list[Charge], *, answers: int, tokens: float, now: float
    ) -> list[tuple[str, str, StatisticSet]]:
        """Adds an interval's charges; returns (metric, source or "", samples) to publish.

        Args:
            answers, tokens: totals since the start; tokens in and out.
            now: wall s.
        """
        dollars = sum(one.dollars for one in charges)
        joules = sum(one.joules for one in charges)
        answered, self._answers = max(0, answers - self._answers), answers
        made, self._tokens = max(0.0, tokens - self._tokens), tokens
        self.dollars += dollars
        for one in charges:
            self.joules[one.source] = self.joules.get(one.source, 0.0) + one.joules
            before = self.dollars_by_type.get(one.instance_type, 0.0)
            self.dollars_by_type[one.instance_type] = before + one.dollars
        piece = self._slice(now)
        piece.dollars += dollars
        piece.joules += joules
        piece.answers += answered
        piece.tokens += made
        published = [
            ("Cost", "", StatisticSet.of(dollars)),
            ("Energy", "", StatisticSet.of(joules)),
        ]
        for source in sorted({one.source for one in charges}):
            part = sum(one.joules for one in charges if one.source == source)
            published.append(("Energy", source, StatisticSet.of(part)))
        for name, amount, units in (
            ("CostPerRequest", dollars, answered),
            ("EnergyPerRequest", joules, answered),
            ("CostPerThousandTokens", dollars, made / _TOKENS_PER_PRICE),
            ("EnergyPerThousandTokens", joules, made / _TOKENS_PER_PRICE),
        ):
            self._due[name] += amount
            if units > 0:
                due, self._due[name] = self._due[name], 0.0
                each = due / units
                published.append((name, "", StatisticSet.from_values(units, due, each, each)))
        return published

    def recent(self) -> PerUnit:
        """Cost and energy per unit over the last hour, as of the last `settle`."""
        dollars = sum(piece.dollars for piece in self._slices)
        joules = sum(piece.joules for piece in self._slices)
        answers = sum(piece.answers for piece in self._slices)
        thousands = sum(piece.tokens for piece in self._slices) / _TOKENS_PER_PRICE
        return PerUnit(
            dollars / answers if answers else None,
            joules / answers if answers else None,
            dollars / thousands if thousands else None,
            joules / thousands if thousands else None,
        )

    def _slice(self, now: float) -> _Slice:
        slices = self._slices
        if not slices or not 0.0 <= now - slices[-1].start < _SLICE_S:
            slices.append(_Slice(now))
        # If the clock was set back, slices of the future are dropped at once.
        while slices and not now - RECENT_S < slices[0].start <= now:
            slices.popleft()
        return slices[-1]
