"""Options of a transform job that its container or its Environment sets.

SageMaker asks a container at /execution-parameters, which few answer. Its values apply where the
job left them open; a value that makes no sense is ignored, and the job's own default holds:

    {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 6}

Options without a member in SageMaker are entries of the job's Environment. They begin with
`PENSTOCK_TRANSFORM_` and are removed from it: the model never sees them.

    REFUSED_RECORDS   fail (none may be refused; the default) | skip (any number) | skip:N
    PRIORITY          -100 to 100; of two waiting jobs the higher goes first (0)
    CORES_MAX         that its instances take together; 0: what is idle
    COLUMNS           of Parquet or JSON Lines: names, a comma between them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.jobs.spec import MIB, MULTI_RECORD, SINGLE_RECORD, TransformSpec
from penstock.errors import CallerError

#: SageMaker's limit in MB, for one request and for all requests that are sent at once.
PAYLOAD_MB_MAX: Final = 100

_STRATEGIES: Final = {
    "MULTI_RECORD": MULTI_RECORD,
    "SINGLE_RECORD": SINGLE_RECORD,
    MULTI_RECORD: MULTI_RECORD,
    SINGLE_RECORD: SINGLE_RECORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSays:
    concurrency_max: int = 0  #: requests at once; 0 = not given
    strategy: str = ""  #: MultiRecord | SingleRecord; empty: not given
    payload_bytes_max: int | None = None  #: 0 = no limit; None = not given


def container_says(told: Mapping[str, Any]) -> ContainerSays:
    """`told`: the members of the container's answer."""
    payload_mb = _count(told.get("MaxPayloadInMB"))
    if payload_mb is not None and payload_mb > PAYLOAD_MB_MAX:
        payload_mb = None
    return ContainerSays(
        concurrency_max=_count(told.get("MaxConcurrentTransforms")) or 0,
        strategy=_STRATEGIES.get(str(told.get("BatchStrategy")), ""),
        payload_bytes_max=None if payload_mb is None else payload_mb * MIB,
    )


def completed(spec: TransformSpec, says: ContainerSays) -> TransformSpec:
    """The job; where it set no value, the container's counts.

    Requests that are sent at once have together at most `PAYLOAD_MB_MAX`, as where a job sets both
    values; one request is always allowed.
    """
    if says.strategy and "strategy" in spec.unset:
        spec = replace(spec, strategy=says.strategy)
    if says.payload_bytes_max is not None and "payload_bytes_max" in spec.unset:
        spec = replace(spec, payload_bytes_max=says.payload_bytes_max)
    if says.concurrency_max and not spec.concurrency_max:
        most = PAYLOAD_MB_MAX * MIB // max(spec.payload_bytes_max, 1)
        spec = replace(spec, concurrency_max=max(1, min(says.concurrency_max, most)))
    return spec


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


PREFIX: Final = "PENSTOCK_TRANSFORM_"
PRIORITY_MAX: Final = 100

_REFUSED: Final = PREFIX + "REFUSED_RECORDS"
_PRIORITY: Final = PREFIX + "PRIORITY"
_CORES: Final = PREFIX + "CORES_MAX"
_COLUMNS: Final = PREFIX + "COLUMNS"
NAMES: Final = (_REFUSED, _PRIORITY, _CORES, _COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOptions:
    """The options of one job."""

    refused_max: int | None = 0  #: records that may be refused; None = all
    priority: int = 0
    cores_max: int = 0
    columns: tuple[str, ...] = ()


def options_of(environment: Mapping[str, str]) -> tuple[TransformOptions, dict[str, str]]:
    """The options, and the remaining environment for the model.

    Raises:
        CallerError: `transform-option`, for an unknown option or a wrong value.
    """
    given = {name: text for name, text in environment.items() if name.startswith(PREFIX)}
    for name, text in given.items():
        if name not in NAMES:
            raise _wrong(name, text, f"use one of {', '.join(NAMES)}")
    columns = tuple(one.strip() for one in given.get(_COLUMNS, "").split(",") if one.strip())
    if _COLUMNS in given and (not columns or len(set(columns)) < len(columns)):
        raise _wrong(_COLUMNS, given[_COLUMNS], "use names of columns, each once, as in a,b")
    options = TransformOptions(
        refused_max=_refused_max(given.get(_REFUSED, "fail")),
        priority=_priority(given.get(_PRIORITY, "0")),
        cores_max=_cores_max(given.get(_CORES, "0")),
        columns=columns,
    )
    return options, {name: text for name, text in environment.items() if name not in given}


def _refused_max(text: str) -> int | None:
    word, _, number = text.partition(":")
    if text == "fail":
        return 0
    if text == "skip":
        return None
    if word == "skip" and number.isascii() and number.isdigit() and len(number) <= 15:
        return int(number)
    raise _wrong(_REFUSED, text, "use fail, skip, or skip:N with a number of records")


def _priority(text: str) -> int:
    digits = text.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and len(digits) <= 3
    if not whole or int(digits) > PRIORITY_MAX:
        raise _wrong(_PRIORITY, text, f"use a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}")
    return int(text)


def _cores_max(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise _wrong(_CORES, text, "use a number of cores, 0 for what is idle")
    return int(text)


def _wrong(name: str, text: str, instead: str) -> CallerError:
    return CallerError(
        "transform-option",
        f"{name} in Environment is {text[:64]!r}",
        hint=f"{instead[0].upper()}{instead[1:]}.",
    )
