"""Instance types, and what each of them is on this machine.

Names come from configurations that were written for AWS, or for a laptop. A name says how much is
wanted, the machine says how much there is, and the catalogue gives the smaller of the two. Types of
ours (`ml.local.*`) promise their memory. AWS's, which notebooks and pipelines name out of habit,
are upper bounds (`core/machine/room.py`), unless everything is to be reserved. Prices and watts
stay those of the named type: they are for comparing, not for placing.

AWS's `ml.*` types stand first: vCPUs, memory, accelerators, price, power. These figures serve
sizing and cost reports; no decision depends on them. vCPUs, memory and accelerators are AWS's
published figures; prices are approximate on-demand prices of SageMaker hosting in us-east-1, in US
dollars per hour; watts are our own estimate under load: 5 W a vCPU, 0.4 W a GiB, and the board
power of each accelerator.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.resources import ComputeResources
from penstock.errors import CallerError
from penstock.fleet.base import InstanceType

_CORE_WATTS: Final = 5.0
_GIB_WATTS: Final = 0.4


@dataclass(frozen=True, slots=True)
class AwsInstanceType:
    """One instance type as AWS sells it."""

    cores: int  #: vCPUs
    memory_gib: float
    accelerators: int
    price_per_hour: float
    watts: float


#: Families whose sizes differ by one factor: (memory in GiB per vCPU, US dollars per vCPU and hour,
#: {size: vCPUs}).
_STRAIGHT: Final[dict[str, tuple[float, float, dict[str, int]]]] = {
    "m4": (4, 0.06, {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "10xlarge": 40, "16xlarge": 64}),
    "m5": (4, 0.0575, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "m5d": (4, 0.068, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "m6i": (4, 0.0576, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "m6g": (4, 0.0462, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "m7i": (4, 0.0605, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
    "c4": (1.875, 0.0595, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 36}),
    "c5": (2, 0.051, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "9xlarge": 36,
                      "18xlarge": 72}),
    "c5d": (2, 0.0575, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "9xlarge": 36,
                        "18xlarge": 72}),
    "c6i": (2, 0.051, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                       "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "c6g": (2, 0.0408, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "c7g": (2, 0.0435, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "c7i": (2, 0.0535, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
    "r5": (8, 0.0755, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "r5d": (8, 0.0865, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                        "24xlarge": 96}),
    "r6i": (8, 0.0756, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "r7i": (8, 0.0794, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
}  # fmt: skip

#: Other families: (watts of one accelerator, {size: (vCPUs, GiB, accelerators, US dollars per
#: hour)}).
_UNEVEN: Final[dict[str, tuple[float, dict[str, tuple[int, float, int, float]]]]] = {
    "t2": (0, {"medium": (2, 4, 0, 0.056), "large": (2, 8, 0, 0.111), "xlarge": (4, 16, 0, 0.223),
               "2xlarge": (8, 32, 0, 0.445)}),
    "p2": (150, {"xlarge": (4, 61, 1, 1.125), "8xlarge": (32, 488, 8, 9.0),
                 "16xlarge": (64, 732, 16, 18.0)}),
    "p3": (300, {"2xlarge": (8, 61, 1, 3.825), "8xlarge": (32, 244, 4, 14.688),
                 "16xlarge": (64, 488, 8, 28.152)}),
    "p4d": (400, {"24xlarge": (96, 1152, 8, 37.69)}),
    "p4de": (400, {"24xlarge": (96, 1152, 8, 47.11)}),
    "p5": (700, {"48xlarge": (192, 2048, 8, 113.07)}),
    "g4dn": (70, {"xlarge": (4, 16, 1, 0.736), "2xlarge": (8, 32, 1, 0.94),
                  "4xlarge": (16, 64, 1, 1.505), "8xlarge": (32, 128, 1, 2.72),
                  "12xlarge": (48, 192, 4, 4.89), "16xlarge": (64, 256, 1, 5.44)}),
    "g5": (300, {"xlarge": (4, 16, 1, 1.408), "2xlarge": (8, 32, 1, 1.515),
                 "4xlarge": (16, 64, 1, 2.03), "8xlarge": (32, 128, 1, 3.06),
                 "12xlarge": (48, 192, 4, 7.09), "16xlarge": (64, 256, 1, 5.12),
                 "24xlarge": (96, 384, 4, 10.18), "48xlarge": (192, 768, 8, 20.36)}),
    "g6": (72, {"xlarge": (4, 16, 1, 1.127), "2xlarge": (8, 32, 1, 1.222),
                "4xlarge": (16, 64, 1, 1.654), "8xlarge": (32, 128, 1, 2.518),
                "12xlarge": (48, 192, 4, 5.752), "16xlarge": (64, 256, 1, 4.246),
                "24xlarge": (96, 384, 4, 8.344), "48xlarge": (192, 768, 8, 16.688)}),
    "inf1": (30, {"xlarge": (4, 8, 1, 0.297), "2xlarge": (8, 16, 1, 0.489),
                  "6xlarge": (24, 48, 4, 1.53), "24xlarge": (96, 192, 16, 6.137)}),
    "inf2": (150, {"xlarge": (4, 16, 1, 0.99), "8xlarge": (32, 128, 1, 2.36),
                   "24xlarge": (96, 384, 6, 7.79), "48xlarge": (192, 768, 12, 15.58)}),
    "trn1": (250, {"2xlarge": (8, 32, 1, 1.61), "32xlarge": (128, 512, 16, 25.8)}),
}  # fmt: skip


def _table() -> dict[str, AwsInstanceType]:
    rows = {}
    for family, (gib_per_core, price, sizes) in _STRAIGHT.items():
        for size, cores in sizes.items():
            gib = cores * gib_per_core
            watts = cores * _CORE_WATTS + gib * _GIB_WATTS
            rows[f"ml.{family}.{size}"] = AwsInstanceType(
                cores, gib, 0, round(cores * price, 4), watts
            )
    for family, (board_watts, uneven) in _UNEVEN.items():
        for size, (cores, gib, accelerators, price) in uneven.items():
            watts = cores * _CORE_WATTS + gib * _GIB_WATTS + accelerators * board_watts
            rows[f"ml.{family}.{size}"] = AwsInstanceType(cores, gib, accelerators, price, watts)
    return rows


AWS_INSTANCE_TYPES: Final = _table()


#: The type that is the whole machine.
MACHINE_TYPE: Final = "ml.local.machine"
_OWN_PREFIX: Final = "ml.local."

_GIB: Final = 2**30

#: Electricity and depreciation of own hardware: an estimate, so that reports have a price to begin
#: with.
_LOCAL_CORE_PRICE_PER_HOUR: Final = 0.02
#: The board of a workstation or a server, depreciated over a few years.
_LOCAL_ACCELERATOR_PRICE_PER_HOUR: Final = 0.5
#: Watts of one core of own hardware under load, with its part of memory, fans and power supply.
CORE_WATTS: Final = 8.0
_LOCAL_ACCELERATOR_WATTS: Final = 300.0

#: Type name -> (cores, GiB).
_LOCAL_TYPES: Final = {
    "ml.local.small": (1, 1),
    "ml.local.medium": (2, 2),
    "ml.local.large": (4, 4),
    "ml.local.xlarge": (8, 8),
    "ml.local.2xlarge": (16, 16),
    "ml.local.4xlarge": (32, 32),
}

#: The cores of an unknown `ml.*` name by its size word; memory as in family m5.
_SIZE_CORES: Final = {"nano": 1, "micro": 1, "small": 1, "medium": 2, "large": 2, "xlarge": 4,
                      "metal": 96}  # fmt: skip
_NAME = re.compile(r"ml\.[a-z0-9-]{1,32}\.[a-z0-9-]{1,16}")
_MULTIPLE = re.compile(r"(\d{1,3})xlarge")


class InstanceCatalogue:
    """The instance types that this machine can offer."""

    def __init__(
        self, machine: ComputeResources, *, strict: bool = False, many_machines: bool = False
    ) -> None:
        """`strict`: every type is a promise, AWS's too. `many_machines`: there are several machines
        like `machine`, so no type stands for one whole machine."""
        self.machine = machine
        self._strict = strict
        self._many_machines = many_machines

    def names(self) -> list[str]:
        """All names with figures of their own; any other `ml.<family>.<size>` is accepted too."""
        return [*self._own_names(), *sorted(AWS_INSTANCE_TYPES)]

    def _own_names(self) -> list[str]:
        return [*_LOCAL_TYPES] if self._many_machines else [*_LOCAL_TYPES, MACHINE_TYPE]

    def resolve(self, name: str) -> InstanceType:
        """The type, cut down to what this machine has.

        AWS names and unknown ones are upper bounds: their instances may grow to all of the memory,
        with caches sized for half of it. Where they are promises (`strict`) they get half at most.
        So an update finds room for the new generation beside the old one, however large the type.

        Raises:
            CallerError: `unknown-instance-type`, the name is not of the form `ml.<family>.<size>`,
                or of our own family and not one of its sizes, or a known name misspelt.
        """
        if name == MACHINE_TYPE and not self._many_machines:
            return _own(name, self.machine)
        if name in _LOCAL_TYPES:
            cores, gib = _LOCAL_TYPES[name]
            named = ComputeResources(cores=float(cores), memory_bytes=gib * _GIB)
            return _own(name, named.at_most(self.machine))
        if _NAME.fullmatch(name) is None or name.startswith(_OWN_PREFIX):
            raise CallerError(
                "unknown-instance-type",
                f"{name!r} is not an instance type",
                hint=f"Use {', '.join(self._own_names())}, or AWS's ml.* names.",
            )
        meant = _misspelt(name)
        if meant:
            raise CallerError(
                "unknown-instance-type",
                f"{name!r} is not an instance type",
                hint=f"Did you mean {meant}?",
            )
        facts = AWS_INSTANCE_TYPES.get(name) or _derived(name)
        named = ComputeResources(
            cores=float(facts.cores),
            memory_bytes=int(facts.memory_gib * _GIB),
            accelerators=facts.accelerators,
        )
        here = named.at_most(self.machine)
        share_bytes = min(named.memory_bytes, self.machine.memory_bytes // 2)
        return InstanceType(
            name=name,
            resources=replace(here, memory_bytes=share_bytes) if self._strict else here,
            promised=self._strict,
            share_bytes=share_bytes,
            price_per_hour=facts.price_per_hour,
            watts=facts.watts,
        )

    def offers(self, bought: Collection[str]) -> list[InstanceType]:
        """The types that could replace those in `bought`, cheapest first: our types for ours, AWS's
        for AWS's. They have accelerators where a bought type has some, and are cut down to this
        machine as well."""
        if MACHINE_TYPE in bought and self.machine.accelerators:
            return [self.resolve(MACHINE_TYPE)]  # it is our only type with accelerators
        own = all(name.startswith(_OWN_PREFIX) for name in bought)
        names = list(_LOCAL_TYPES) if own else sorted(AWS_INSTANCE_TYPES)
        boards = any(_accelerators(name) for name in bought)
        kinds = [self.resolve(name) for name in names if own or bool(_accelerators(name)) == boards]
        return sorted(kinds, key=lambda kind: (kind.price_per_hour, kind.name))


def _own(name: str, resources: ComputeResources) -> InstanceType:
    cores, boards = resources.cores, resources.accelerators
    price_per_hour = cores * _LOCAL_CORE_PRICE_PER_HOUR + boards * _LOCAL_ACCELERATOR_PRICE_PER_HOUR
    return InstanceType(
        name=name,
        resources=resources,
        price_per_hour=round(price_per_hour, 4),
        watts=cores * CORE_WATTS + boards * _LOCAL_ACCELERATOR_WATTS,
    )


def _accelerators(name: str) -> int:
    """The number that AWS gives, whatever this machine has."""
    return AWS_INSTANCE_TYPES[name].accelerators if name in AWS_INSTANCE_TYPES else 0


def _misspelt(name: str) -> str:
    """The known name that was meant, where the size of `name` is one that no type has; else ""."""
    size = name.rsplit(".", 1)[1]
    if name in AWS_INSTANCE_TYPES or size in _SIZE_CORES or _MULTIPLE.fullmatch(size):
        return ""
    (near, *_) = [*difflib.get_close_matches(name, AWS_INSTANCE_TYPES, 1, cutoff=0.85), ""]
    return near


def _derived(name: str) -> AwsInstanceType:
    size = name.rsplit(".", 1)[1]
    multiple = _MULTIPLE.fullmatch(size)
    cores = int(multiple[1]) * 4 if multiple else _SIZE_CORES.get(size, 2)
    return AwsInstanceType(cores, cores * 4.0, 0, round(cores * 0.0575, 4), cores * 6.6)
