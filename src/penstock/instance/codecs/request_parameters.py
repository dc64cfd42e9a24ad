"""Reads the parameters of an inference request, whichever form the body has.

Names and types are Triton's (its protocol extensions "sequence", "schedule policy" and
"parameters"): a value of a wrong type is refused by the parameter's name, and so are names that
begin with `triton_`, which Triton keeps for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from penstock.errors import ModelError
from penstock.instance.codecs.base import bad
from penstock.runtimes.infer_metadata import (
    SEQUENCE_END,
    SEQUENCE_START,
    InferMetadata,
    Parameter,
)

#: Parameters that say how the answer is to be written; the codecs and doors read them.
_OF_THE_ANSWER: Final = ("binary_data_output", "triton_enable_empty_final_response")
_OF_THE_SCHEDULER: Final = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout")
_RESERVED: Final = "triton_"
_UINT64_MAX: Final = (1 << 64) - 1
#: The longest correlation id that is a string, as in Triton.
CORRELATION_ID_BYTES_MAX: Final = 128


def metadata_of(
    request_id: str, given: Mapping[str, Any], outputs: tuple[str, ...]
) -> InferMetadata:
    """`given`: the request's parameters, as plain values. Raises ModelError with the name of one
    that is wrong."""
    if not given:
        if not request_id:
            return _plain(outputs)
        return InferMetadata(request_id=request_id, outputs=outputs)
    starts = SEQUENCE_START if _flag(given, "sequence_start") else 0
    ends = SEQUENCE_END if _flag(given, "sequence_end") else 0
    for name in _OF_THE_ANSWER:
        _flag(given, name)
    return InferMetadata(
        request_id=request_id,
        correlation_id=_correlation_id(given),
        flags=starts | ends,
        priority=_number(given, "priority"),
        timeout_us=_number(given, "timeout"),
        parameters={
            name: _parameter(name, value)
            for name, value in given.items()
            if name not in _OF_THE_SCHEDULER and name not in _OF_THE_ANSWER
        },
        outputs=outputs,
    )


@lru_cache(maxsize=256)
def _plain(outputs: tuple[str, ...]) -> InferMetadata:
    """Of a request that says nothing but which outputs it wants, as most do."""
    return InferMetadata(outputs=outputs)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def _number(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, 0)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        raise _wrong(name, value, "a whole number of 0 or more")
    return value


def _correlation_id(given: Mapping[str, Any]) -> int | str:
    value = given.get("sequence_id", 0)
    if not isinstance(value, str):
        return _number(given, "sequence_id")
    if len(value.encode()) > CORRELATION_ID_BYTES_MAX:
        raise _wrong("sequence_id", value, f"at most {CORRELATION_ID_BYTES_MAX} bytes")
    return value


def _parameter(name: str, value: Any) -> Parameter:
    if name.startswith(_RESERVED):
        raise bad(
            f"the parameter {name[:80]!r} begins with {_RESERVED!r}, which is kept for the server",
            code="bad-parameter",
        )
    if not isinstance(value, bool | int | float | str):
        raise _wrong(name, value, "a string, a number, true or false")
    return value


def _wrong(name: str, value: Any, allowed: str) -> ModelError:
    return bad(
        f"the parameter {name[:80]!r} is {str(value)[:80]!r}; it takes {allowed}",
        code="bad-parameter",
    )
