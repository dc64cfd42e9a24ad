"""Instance types, and what each of them is on this machine.

Names come from configurations that were written for AWS, or for a laptop. A name says how much is
wanted, the machine says how much there is, and the catalogue gives the smaller of the two. Types of
ours (`ml.local.*`) promise their memory. AWS's, which notebooks and pipelines name out of habit,
are upper bounds (`core/machine/room.py`), unless everything is to be reserved. Prices and watts
stay those of the named type: they are for comparing, not for placing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from penstock.core.resources import ComputeResources
from penstock.errors import CallerError
from penstock.fleet.aws_types import AWS_INSTANCE_TYPES, AwsInstanceType
from penstock.fleet.base import InstanceType

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
                or of our own family and not one of its sizes.
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


def _derived(name: str) -> AwsInstanceType:
    size = name.rsplit(".", 1)[1]
    multiple = _MULTIPLE.fullmatch(size)
    cores = int(multiple[1]) * 4 if multiple else _SIZE_CORES.get(size, 2)
    return AwsInstanceType(cores, cores * 4.0, 0, round(cores * 0.0575, 4), cores * 6.6)
