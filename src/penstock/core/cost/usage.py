"""What models took of the instances that they were on: the records that a cost report is made of.

Whoever measures fills them in; whoever reports reads them, also from JSON. Times are of the time of
the report and of nothing before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import CallerError

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one model took of one instance, as measured, over the time of the report."""

    model: str
    resident_s: float  #: seconds that it was loaded, a second for each instance
    resident_byte_s: float  #: its bytes of memory times seconds
    compute_s: float  #: core seconds of answering
    requests: int  #: answered
    loads: int = 0
    load_s: float = 0.0  #: core seconds of loading
    bytes_peak: int = 0  #: the most that it held


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUsage:
    """One instance, what it cost, and the models that were on it."""

    endpoint: str
    instance_id: str
    instance_type: str
    price_per_hour: float  #: US dollars
    held_s: float
    cores: float
    memory_bytes: int  #: that models may use
    models: tuple[ModelUsage, ...] = ()

    @property
    def dollars(self) -> float:
        """What it cost."""
        return self.price_per_hour * self.held_s / HOUR_S


def usage_from_dict(fields: Any) -> tuple[InstanceUsage, ...]:
    """`{"instances": [...]}` with the fields of the records, as `dataclasses.asdict` writes them.

    Raises CallerError (`usage-invalid`).
    """
    try:
        instances = tuple(_instance(each) for each in fields["instances"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CallerError(
            "usage-invalid",
            f"this is no usage: {type(error).__name__}: {error}",
            hint='Give {"instances": [{"endpoint": ..., "models": [...]}]}: docs/howto/cost.md.',
        ) from None
    for instance in instances:
        check(instance)
    return instances


def _instance(fields: Mapping[str, Any]) -> InstanceUsage:
    models = tuple(_typed(ModelUsage, each) for each in fields.get("models", ()))
    named = {name: value for name, value in fields.items() if name != "models"}
    instance: InstanceUsage = _typed(InstanceUsage, named)
    return dataclasses.replace(instance, models=models)


_FIGURES: Final = (
    "resident_s", "resident_byte_s", "compute_s", "requests", "loads", "load_s", "bytes_peak",
)  # fmt: skip
_KINDS: Final = {"str": str, "int": int, "float": float}


def _typed(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Every field as its type says, so that no text is taken for a number later on."""
    known = {field.name: field.type for field in dataclasses.fields(kind)}
    values = {}
    for name, value in fields.items():
        wanted = _KINDS[str(known[name])]
        if isinstance(value, str) != (wanted is str):
            raise TypeError(f"{name} is {value!a:.60}")
        values[name] = wanted(value)
    return kind(**values)


def check(instance: InstanceUsage) -> None:
    """Raises CallerError (`usage-invalid`)."""
    wrong = [
        name
        for name in ("price_per_hour", "held_s")
        if not 0.0 <= getattr(instance, name) < float("inf")
    ]
    wrong += [
        name
        for name in ("cores", "memory_bytes")
        if not 0.0 < getattr(instance, name) < float("inf")
    ]
    wrong += [
        f"{name} of {usage.model!r}"
        for usage in instance.models
        for name in _FIGURES
        if not 0.0 <= getattr(usage, name) < float("inf")
    ]
    if wrong:
        raise CallerError(
            "usage-invalid",
            f"instance {instance.instance_id!r}: {', '.join(wrong[:5])} can't be",
            hint="Figures are 0 or more; an instance has memory and cores.",
        )
