"""Energy and money over an interval, divided among the instances that were held in it.

Every core second of the machine belongs to somebody: a busy one to the instance that used it, an
idle one to all that hold cores, by how many they hold. So the host's measured energy is divided
whole, that of the operating system and of waiting included. Boards are divided by how many an
instance holds; those that nobody holds idle with the host. Money is the price of the instance type
for each second that an instance is held, idle or not. The loading of an instance before it was
first seen is its cold start: it is charged once, by estimate.

Where nothing can be measured, energy is the watts of the instance type under load: for an idle
instance an upper bound. `Charge.source` says which it was. Readings and times are passed in; this
module reads no counter and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.fleet.catalogue import CORE_WATTS

RAPL: Final = "rapl"  #: the processor packages' own counters
NVML: Final = "nvml"  #: the boards' own counters
ESTIMATED: Final = "estimated"  #: watts of the instance type
RAPL_NVML: Final = "rapl+nvml"
NVML_ESTIMATED: Final = "nvml+estimated"  #: boards measured, the host estimated by its cores

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHeld:
    """An instance that exists now, serving or not."""

    endpoint: str
    variant: str
    instance_id: str
    cores: float
    watts: float  #: of its type, under load
    price_per_hour: float  #: of its type, US dollars
    accelerators: int = 0
    load_s: float = 0.0  #: what loading its copies took
    instance_type: str = ""
    memory_bytes: int = 0  #: that it may take


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRead:
    """The machine over one interval; None: not measured."""

    interval_s: float
    cores: float
    boards: int = 0  #: accelerators of the machine
    host_j: float | None = None
    boards_j: float | None = None


class Charge(NamedTuple):
    """What one instance took in an interval."""

    endpoint: str
    variant: str
    joules: float
    dollars: float
    source: str  #: where the joules are from
    instance_type: str = ""


class InstanceTime(NamedTuple):
    """How long an instance was held in an interval."""

    instance: InstanceHeld
    seconds: float
    busy_s: float = 0.0  #: core seconds that it used


class Accounts:
    """Adds up how long each instance is held, until it is charged.

    Call `note` each second with those that exist, and `charge` now and then.
    """

    def __init__(self) -> None:
        self._noted: frozenset[str] = frozenset()
        self._due: dict[str, tuple[InstanceHeld, float]] = {}  #: instance -> seconds to charge
        self._cold: list[InstanceHeld] = []  #: seen for the first time since the last charge

    def note(self, held: Sequence[InstanceHeld], elapsed_s: float) -> None:
        """These exist now; `elapsed_s` since the last note."""
        for one in held:
            if one.instance_id in self._noted:
                _, seconds = self._due.get(one.instance_id, (one, 0.0))
                self._due[one.instance_id] = (one, seconds + elapsed_s)
            else:
                self._cold.append(one)
        self._noted = frozenset(one.instance_id for one in held)

    def charge(self, busy: Mapping[str, float], read: MachineRead) -> list[Charge]:
        """What is due since the last call, in the order in which instances were first seen.

        Args:
            busy: instance -> cores that it kept busy on average; 0 where it is not known.
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
    """(joules, source) of each instance over the interval."""
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
    """Of one, by weight; nothing for anybody where nothing weighs."""
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
