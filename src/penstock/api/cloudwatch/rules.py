"""CloudWatch's rules about parameters, and its errors for breaking them.

The service model already checked types, required members, lengths and enums. These are the rules
that the model can't express. A NextToken holds the place where the last page ended, and belongs to
one request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.wire.aws.errors import AwsError

DIMENSIONS_MAX: Final = 30
_SECONDS_BELOW_A_MINUTE: Final = (1, 5, 10, 20, 30)
_PERIOD_S_MAX: Final = 31_536_000  # a year; the longest that is kept is fifteen months


def seconds(moment: datetime | float) -> float:
    """Wall seconds of a timestamp, in either form of the protocols."""
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)


def invalid_value(message: str) -> AwsError:
    return AwsError("InvalidParameterValue", message)


def invalid_combination(message: str) -> AwsError:
    return AwsError("InvalidParameterCombination", message)


def missing(parameter: str) -> AwsError:
    return AwsError("MissingParameter", f"The parameter {parameter} is required.")


def validation_error(message: str) -> AwsError:
    return AwsError("ValidationError", message)


def period_fault(period_s: int) -> str:
    """The fault of a period; empty if it is valid."""
    if period_s in _SECONDS_BELOW_A_MINUTE:
        return ""
    if period_s < 1 or period_s % 60:
        return (
            f"The value {period_s} for parameter Period is invalid. "
            "Period must be 1, 5, 10, 20, 30, or a multiple of 60."
        )
    if period_s > _PERIOD_S_MAX:
        return f"The parameter Period must be less than or equal to {_PERIOD_S_MAX}."
    return ""


def dimensions_of(rows: Iterable[dict[str, Any]] | None, at: str) -> tuple[tuple[str, str], ...]:
    """Dimensions in a canonical order, so that equal metrics compare as equal.

    Raises:
        AwsError: InvalidParameterValue: too many, a name twice, or a name that AWS refuses.
    """
    pairs = [(str(row["Name"]), str(row["Value"])) for row in rows or ()]
    if len(pairs) > DIMENSIONS_MAX:
        raise invalid_value(
            f"The collection {at} must not have a size greater than {DIMENSIONS_MAX}."
        )
    if len({name for name, _ in pairs}) < len(pairs):
        raise invalid_value(f"No dimension name may appear more than once in {at}.")
    for number, (name, value) in enumerate(pairs, 1):
        for part, text in (("Name", name), ("Value", value)):
            if not text.strip() or not text.isascii() or not text.isprintable():
                raise invalid_value(
                    f"The value for parameter {at}.member.{number}.{part} must be printable ASCII "
                    "with at least one character that is not a space."
                )
        if name.startswith(":"):
            raise invalid_value(
                f"The value {name} for parameter {at}.member.{number}.Name must not begin with ':'."
            )
    return tuple(sorted(pairs))


def encode_token(params: dict[str, Any], place: list[Any]) -> str:
    """A token with which the request `params` continues at `place`."""
    return base64.urlsafe_b64encode(orjson.dumps([_digest(params), place])).decode()


def decode_token(
    params: dict[str, Any], *, code: str, fits: Callable[[Any], bool]
) -> list[Any] | None:
    """The place to continue from; None on the first page.

    A token is not a secret, so `fits` says whether its content is a valid place.

    Raises:
        AwsError: `code`: the token is not ours, or belongs to another request.
    """
    token = params.get("NextToken")
    if not token:
        return None
    try:
        digest, place = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError):
        digest, place = "", None
    if digest != _digest(params) or not fits(place):
        raise AwsError(code, "The NextToken is invalid, or belongs to another request.")
    return list(place)


def _digest(params: dict[str, Any]) -> str:
    same = {name: value for name, value in params.items() if name != "NextToken"}
    data = orjson.dumps(same, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=9).hexdigest()
