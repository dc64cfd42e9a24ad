"""What models of shared instances have cost, and who pays: by model, by tenant, by request.

An instance costs its price for each second that it is held. It is bought for its memory and for its
cores, so the used part of its price follows the scarcer of the two. The used part is divided
between memory and cores in proportion to their use, and each model pays for

    serving     its core seconds of answers, and its memory while it answered
    cold start  its core seconds of loading: a model that is often loaded often pays
    idle        its memory while it was loaded and did not answer
    headroom    its part, by memory held, of what no model used: it is kept for those that are there

The four of all models add up to the cost of the instance. The cost of an instance on which no model
ever was is reported as unassigned. The idea that the fullest resource says how much of a machine is
used is that of dominant shares (Ghodsi et al., 2011, "Dominant Resource Fairness"). Comparisons
with other ways to serve the same models are in `compared.py`.

The usage records here are the report's input, also as JSON. Measurements fill them in. Their times
cover the time of the report and nothing before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from penstock.errors import CallerError

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one model used of one instance, measured over the time of the report."""

    model: str
    resident_s: float  #: seconds that it was loaded, summed over instances
    resident_byte_s: float  #: its bytes of memory times seconds
    compute_s: float  #: core seconds of answering
    requests: int  #: answered requests
    loads: int = 0
    load_s: float = 0.0  #: core seconds of loading
    bytes_peak: int = 0  #: the most memory that it held


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUsage:
    """One instance, what it cost, and the models that were on it."""

    endpoint: str
    instance_id: str
    instance_type: str
    price_per_hour: float  #: US dollars
    held_s: float
    cores: float
    memory_bytes: int  #: memory that models may use
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
    return replace(instance, models=models)


_FIGURES: Final = (
    "resident_s", "resident_byte_s", "compute_s", "requests", "loads", "load_s", "bytes_peak",
)  # fmt: skip
_KINDS: Final = {"str": str, "int": int, "float": float}


def _typed(kind: Any, given: Mapping[str, Any]) -> Any:
    """Converts every field by its declared type, so that no text is later taken for a number."""
    known = {field.name: field.type for field in fields(kind)}
    values = {}
    for name, value in given.items():
        wanted = _KINDS[str(known[name])]
        if isinstance(value, str) != (wanted is str):
            raise TypeError(f"{name} is {value!a:.60}")
        values[name] = wanted(value)
    return kind(**values)


def check(instance: InstanceUsage) -> None:
    """Raises CallerError (`usage-invalid`) for figures that can't be."""
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


#: Characters that end the tenant's part of a model's name, and suffixes that belong to no name.
TENANT_ENDS: Final = "/-"
_SUFFIXES: Final = (".tar.gz", ".tgz", ".tar", ".zip", ".onnx", ".pt2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """US dollars by purpose."""

    serving: float = 0.0
    cold_start: float = 0.0
    idle: float = 0.0
    headroom: float = 0.0

    @property
    def dollars(self) -> float:
        return self.serving + self.cold_start + self.idle + self.headroom

    def plus(self, other: Cost) -> Cost:
        return Cost(
            serving=self.serving + other.serving,
            cold_start=self.cold_start + other.cold_start,
            idle=self.idle + other.idle,
            headroom=self.headroom + other.headroom,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One model, or one tenant."""

    name: str
    endpoint: str = ""  #: empty for a tenant, who may call several endpoints
    models: int = 1
    cost: Cost
    requests: int
    loads: int
    resident_byte_s: float
    compute_s: float
    bytes_peak: int  #: of a model: the most on one instance; of a tenant: the sum over models

    @property
    def dollars_per_request(self) -> float | None:
        """None where nothing was answered."""
        return self.cost.dollars / self.requests if self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """The report. Lines are sorted by cost, the dearest first."""

    dollars: float  #: of all instances
    unassigned: float  #: of instances without models
    hours: float  #: instance hours
    models: tuple[CostLine, ...]
    tenants: tuple[CostLine, ...]


def report(instances: Sequence[InstanceUsage], tenant_of: Callable[[str], str]) -> CostReport:
    """Divides what instances cost among their models.

    Raises CallerError (`usage-invalid`) for figures that can't be: negative ones, or an instance
    without memory or cores.
    """
    lines: dict[tuple[str, str], CostLine] = {}
    unassigned = 0.0
    for instance in instances:
        check(instance)
        if not instance.models:
            unassigned += instance.dollars
        for usage, cost in zip(instance.models, divided(instance), strict=True):
            key = (instance.endpoint, usage.model)
            before, line = lines.get(key), _line(instance.endpoint, usage, cost)
            if before is not None:
                peak = max(before.bytes_peak, line.bytes_peak)
                line = _sum(before, line, models=1, bytes_peak=peak)
            lines[key] = line
    tenants: dict[str, CostLine] = {}
    for model in lines.values():
        name = tenant_of(model.name)
        before, line = tenants.get(name), replace(model, name=name, endpoint="")
        if before is not None:
            peak = before.bytes_peak + line.bytes_peak
            line = _sum(before, line, models=before.models + 1, bytes_peak=peak)
        tenants[name] = line
    return CostReport(
        dollars=sum(instance.dollars for instance in instances),
        unassigned=unassigned,
        hours=sum(instance.held_s for instance in instances) / HOUR_S,
        models=_dearest_first(lines.values()),
        tenants=_dearest_first(tenants.values()),
    )


def divided(instance: InstanceUsage) -> list[Cost]:
    """The cost of each of its models, in their order; the sum is the instance's cost, if any."""
    models = instance.models
    held = sum(usage.resident_byte_s for usage in models)
    busy = sum(usage.compute_s + usage.load_s for usage in models)
    memory = _part(held, instance.memory_bytes * instance.held_s)
    cores = _part(busy, instance.cores * instance.held_s)
    used = instance.dollars * max(memory, cores)
    for_memory = used * _part(memory, memory + cores)
    for_cores = used - for_memory
    headroom = instance.dollars - used
    costs = []
    for usage in models:
        rent = for_memory * _part(usage.resident_byte_s, held)
        answering = _part(usage.compute_s, usage.resident_s)
        share = _part(usage.resident_byte_s, held) if held else 1.0 / len(models)
        costs.append(
            Cost(
                serving=for_cores * _part(usage.compute_s, busy) + rent * answering,
                cold_start=for_cores * _part(usage.load_s, busy),
                idle=rent * (1.0 - answering),
                headroom=headroom * share,
            )
        )
    return costs


def tenants_by(ends: str = TENANT_ENDS, *, parts: int = 1) -> Callable[[str], str]:
    """Makes a function from a model's name to its tenant: the name's first `parts` parts, each of
    which ends at one of `ends`. A name that has no more parts is its own tenant, without the suffix
    of an archive.
    """

    def tenant_of(model: str) -> str:
        name = model
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        at = [at for at, char in enumerate(name) if char in ends]
        return (name[: at[parts - 1]] if len(at) >= parts else name) or model

    return tenant_of


def _part(amount: float, whole: float) -> float:
    """A share between 0 and 1: part and whole are measured apart, so the part may be larger."""
    return min(1.0, amount / whole) if whole else 0.0


def _line(endpoint: str, usage: ModelUsage, cost: Cost) -> CostLine:
    return CostLine(
        name=usage.model,
        endpoint=endpoint,
        cost=cost,
        requests=usage.requests,
        loads=usage.loads,
        resident_byte_s=usage.resident_byte_s,
        compute_s=usage.compute_s,
        bytes_peak=usage.bytes_peak,
    )


def _sum(one: CostLine, other: CostLine, *, models: int, bytes_peak: int) -> CostLine:
    return replace(
        one,
        models=models,
        cost=one.cost.plus(other.cost),
        requests=one.requests + other.requests,
        loads=one.loads + other.loads,
        resident_byte_s=one.resident_byte_s + other.resident_byte_s,
        compute_s=one.compute_s + other.compute_s,
        bytes_peak=bytes_peak,
    )


def _dearest_first(lines: Iterable[CostLine]) -> tuple[CostLine, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.cost.dollars, line.endpoint, line.name)))
