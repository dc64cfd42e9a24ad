"""A scenario file: spec, workload, service times, faults, seed and length, as one checked value.

The file is TOML; `scenarios/steady.toml` shows every table. The classes here and those that they
name declare it (`file_schema.py`); what two keys say of one another is in `_check`.

The faults of a run have their times here; clients that disconnect are part of the workload.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

from penstock.core.batching.batcher import BatchSpec
from penstock.core.batching.generation_steps import GenerationSpec
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    ROUTING_STRATEGIES,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.request.admission import AdmissionSpec
from penstock.errors import CallerError
from penstock.file_schema import Reader, one_of
from penstock.sim.workload import ServiceSpec, WorkloadSpec

COPY_LOST: Final = "copy-lost"
COPY_HUNG: Final = "copy-hung"
KINDS: Final = (COPY_LOST, COPY_HUNG)

_HINT: Final = "scenarios/steady.toml shows every table."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeath:
    """A copy's worker dies; its queued and running requests go back to the gateway unanswered.

    Or its instance is stopped (SIGSTOP): its connection stays open without answers until it is
    killed, and another instance is ready at the same moment.
    """

    at_s: float
    copy: int
    kind: Annotated[str, one_of(KINDS)] = COPY_LOST
    back_after_s: float = 1.0  #: until a new worker, or a new instance, is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantScenario:
    """One production variant; its copies are numbered after those of the variants before it."""

    name: str
    copies: int = 1
    weight: float = 1.0
    strategy: Annotated[str, one_of(ROUTING_STRATEGIES)] = LEAST_OUTSTANDING_REQUESTS
    prefix_length_max: int = 0  #: for PREFIX_AWARE, which needs both this and a threshold
    concurrency_threshold: int = 0
    outstanding_max: int = 0  #: per copy; 0 = as many as its queue and lanes hold
    #: instance kind of each copy, as the gateway learns it; () = the same for all
    kinds: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()  #: factor for each copy; 1 = the times of [service]; () = all 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All inputs of a run, except a seed given on the command line."""

    name: str = ""  #: left out: the file's name
    about: str
    seed: int
    length_s: float  #: end of the arrivals; requests in flight are still answered
    variants: tuple[VariantScenario, ...]
    batching: BatchSpec = field(default_factory=BatchSpec)
    admission: AdmissionSpec = field(default_factory=AdmissionSpec)
    workload: WorkloadSpec
    service: ServiceSpec = field(default_factory=ServiceSpec)
    #: copies generate with these step times, instead of batching and service; None = they don't
    generation: GenerationSpec | None = None
    faults: tuple[WorkerDeath, ...] = ()
    timeout_s: float = 60.0  #: the gateway's limit for every request

    def __post_init__(self) -> None:
        if not _apart(self.faults):
            raise _wrong("faults", "a copy that is lost must be back before it is lost again")

    def routes(self) -> EndpointRoutes:
        """The endpoint: copies 1, 2, ... on an instance each."""
        batching = self.batching
        room = batching.queue_rows_max + batching.lanes * batching.rows_max
        kept = self.generation.prefixes_cached_max if self.generation is not None else 0
        variants, number = [], 0
        for variant in self.variants:
            copies = []
            for at in range(variant.copies):
                number += 1
                copies.append(
                    CopyRoute(
                        copy=number,
                        instance_id=f"i-{number}",
                        outstanding_max=variant.outstanding_max or room,
                        kind=variant.kinds[at] if variant.kinds else "",
                        cache_tokens=kept * self.workload.prefix_tokens,
                    )
                )
            variants.append(
                VariantRoutes(
                    name=variant.name,
                    weight=variant.weight,
                    strategy=variant.strategy,
                    copies=tuple(copies),
                    model={"lanes": self.lanes},
                    prefix_length_max=variant.prefix_length_max,
                    concurrency_threshold=variant.concurrency_threshold,
                )
            )
        return EndpointRoutes(endpoint=self.name, variants=tuple(variants))

    @property
    def lanes(self) -> int:
        """Number of lanes of a copy."""
        generation = self.generation
        return self.batching.lanes if generation is None else generation.sequences_max

    def admission_spec(self) -> AdmissionSpec:
        """The spec that a gateway derives from the copies' reports."""
        shares_runs = self.generation is None and self.batching.rows_max > 1
        return replace(self.admission, shares_runs=shares_runs)

    def speeds(self) -> dict[int, float]:
        """Speed factor of each copy, by number."""
        speeds = [
            variant.speeds[at] if variant.speeds else 1.0
            for variant in self.variants
            for at in range(variant.copies)
        ]
        return dict(enumerate(speeds, start=1))


def load_scenario(path: Path) -> Scenario:
    """Reads one file. Raises `CallerError` (code `invalid-scenario`) naming file and key."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _wrong(str(path), str(error)) from error
    reader = Reader(
        path.name, lambda _, cause, hint: CallerError("invalid-scenario", cause, hint=hint)
    )
    try:
        scenario = reader.read(Scenario, {"name": path.stem, **table})
        _check(scenario)
    except CallerError as error:
        hint = error.hint if error.code == "invalid-scenario" else _HINT
        raise CallerError("invalid-scenario", f"{path.name}: {error.message}", hint=hint) from None
    return scenario


def _check(scenario: Scenario) -> None:
    copies = sum(variant.copies for variant in scenario.variants)
    workload = scenario.workload
    for key, good, allowed in (
        ("length_s", scenario.length_s > 0, "more than 0"),
        ("admission.shares_runs", scenario.admission.shares_runs, "nothing: it is derived"),
        ("variants", copies > 0, "at least one with at least one copy"),
        (
            "variants",
            all(
                variant.prefix_length_max > 0 and variant.concurrency_threshold > 0
                for variant in scenario.variants
                if variant.strategy == PREFIX_AWARE
            ),
            "prefix_length_max and concurrency_threshold above 0 with PREFIX_AWARE",
        ),
        (
            "variants.kinds",
            all(
                len(each) in (0, variant.copies)
                for variant in scenario.variants
                for each in (variant.kinds, variant.speeds)
            ),
            "kinds and speeds one for each copy, or none",
        ),
        (
            "variants.speeds",
            all(speed > 0 for variant in scenario.variants for speed in variant.speeds)
            and (scenario.generation is None or not any(v.speeds for v in scenario.variants)),
            "above 0, and not with [generation]",
        ),
        (
            "generation",
            scenario.generation is None
            or (scenario.generation.sequences_max > 0 and scenario.batching == BatchSpec()),
            "sequences_max above 0, and no [batching] beside it",
        ),
        (
            "workload.answer_tokens",
            scenario.generation is not None or workload.answer_tokens == ((1, 1.0),),
            "only with [generation]",
        ),
        (
            "workload.cancel_after_s_mean",
            not workload.cancel_fraction or workload.cancel_after_s_mean > 0,
            "more than 0 where cancel_fraction is",
        ),
        (
            "workload.trace_s",
            list(workload.trace_s) == sorted(workload.trace_s),
            "ascending times",
        ),
        (
            "workload.rows",
            all(1 <= rows <= scenario.batching.rows_max for rows, _ in workload.rows),
            "1 to batching.rows_max: an instance cuts larger requests, the twin does not",
        ),
        ("faults.copy", all(1 <= f.copy <= copies for f in scenario.faults), f"1 to {copies}"),
    ):
        if not good:
            raise _wrong(key, f"not valid; allowed: {allowed}")


def _apart(faults: tuple[WorkerDeath, ...]) -> bool:
    """Whether each copy is back before its next fault."""
    back_at: dict[int, float] = {}
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        if fault.at_s <= back_at.get(fault.copy, -1.0):
            return False
        back_at[fault.copy] = fault.at_s + fault.back_after_s
    return True


def _wrong(where: str, what: str) -> CallerError:
    return CallerError("invalid-scenario", f"{where}: {what}", hint=_HINT)
