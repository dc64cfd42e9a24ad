"""Scalars of service models as text and back: numbers, booleans, blobs, timestamps.

These are the values in paths, query strings, headers, forms and XML. Timestamps are seconds since
the epoch inside. Reading accepts every format in any place, as AWS's own servers do; writing has
milliseconds at most.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from math import inf, isinf, isnan, nan
from typing import Any, Final

from penstock.wire.aws.errors import AwsError, unreadable

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_S_MIN: Final = -62_135_596_800.0  #: year 1
TIMESTAMP_S_MAX: Final = 253_402_300_799.999  #: year 9999
INTEGER_BITS: Final = {"integer": 31, "long": 63}

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
#: Longer than any number or date; a longer text is neither.
_SCALAR_CHARS_MAX: Final = 1_024
_FLOAT_NAMES: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def wrong(at: str, expected: str, found: str) -> AwsError:
    """The error for a value that can't be read as its shape; `at` is the path of the member."""
    shown = found if len(found) <= 64 else found[:64] + "..."
    return unreadable(f"At {at or 'the top level'!r}: expected {expected}, found {shown}.")


def parse_text(shape: Any, text: str, at: str) -> Any:
    """The scalar that `text` means under `shape`.

    Raises:
        AwsError: SerializationException.
    """
    match shape.type_name:
        case "integer" | "long":
            if not _INTEGER.fullmatch(text):
                raise wrong(at, "an integer", repr(text))
            return bounded_integer(shape, int(text), at)
        case "float" | "double":
            return parse_float(text, at)
        case "boolean":
            if text.lower() not in ("true", "false"):
                raise wrong(at, "true or false", repr(text))
            return text.lower() == "true"
        case "timestamp":
            return parse_timestamp(text, at)
        case "blob":
            return parse_blob(text, at)
        case "string" | "character":
            return text
        case kind:
            raise wrong(at, f"a {kind}", "text")


def bounded_integer(shape: Any, number: int, at: str) -> int:
    """`number`, if it fits the 32 or 64 bits of its shape."""
    bits = INTEGER_BITS[shape.type_name]
    if not -(1 << bits) <= number < 1 << bits:
        raise wrong(at, f"an integer of {bits + 1} bits", str(number))
    return number


def parse_float(text: str, at: str) -> float:
    """A decimal number, or one of the three special names such as NaN."""
    named = _FLOAT_NAMES.get(text)
    if named is not None:
        return named
    fits = len(text) <= _SCALAR_CHARS_MAX and _NUMBER.fullmatch(text) is not None
    number = float(text) if fits else inf
    if isinf(number):
        raise wrong(at, "a number", repr(text))
    return number


def format_float(number: float) -> str:
    """The inverse of `parse_float`."""
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return repr(number)


def parse_blob(text: str, at: str) -> bytes:
    """Base64, strictly."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as cause:
        raise wrong(at, "base64", repr(text)) from cause


def format_blob(value: bytes | str) -> str:
    """Base64; text goes as UTF-8."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode("ascii")


def parse_timestamp(text: str, at: str) -> float:
    """Seconds since the epoch from a number, ISO 8601 (UTC if without a zone) or an HTTP date."""
    if len(text) > _SCALAR_CHARS_MAX:
        raise wrong(at, "a timestamp", repr(text[:65]))
    if _NUMBER.fullmatch(text):
        return bounded_timestamp(float(text), at)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError) as cause:
            raise wrong(at, "a timestamp", repr(text)) from cause
    return bounded_timestamp(_seconds(moment), at)


def bounded_timestamp(seconds: float, at: str) -> float:
    """`seconds`, if they lie in years 1 to 9999."""
    if not TIMESTAMP_S_MIN <= seconds <= TIMESTAMP_S_MAX:  # false for NaN too
        raise wrong(at, "a timestamp between the years 1 and 9999", repr(seconds))
    return seconds


def format_timestamp(value: float | datetime, style: str) -> str | float | int:
    """`value` in botocore's `style`: `unixtimestamp` gives a number, the other two give text."""
    seconds = _seconds(value) if isinstance(value, datetime) else value
    milliseconds = round(seconds * 1000)
    if style == "unixtimestamp":
        whole, rest = divmod(milliseconds, 1000)
        return milliseconds / 1000 if rest else whole
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    if style == "rfc822":
        return format_datetime(moment, usegmt=True)
    timespec = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def format_text(shape: Any, value: Any, *, timestamp_style: str) -> str:
    """The inverse of `parse_text`; `timestamp_style` is the default for the place of the value."""
    match shape.type_name:
        case "boolean":
            return "true" if value else "false"
        case "float" | "double":
            return format_float(float(value))
        case "timestamp":
            style = shape.serialization.get("timestampFormat", timestamp_style).lower()
            return str(format_timestamp(value, style))
        case "blob":
            return format_blob(value)
        case _:
            return str(value)


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
