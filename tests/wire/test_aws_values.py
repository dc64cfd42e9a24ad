"""Scalars in text, both ways: each form that is read, each edge, each that is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.model import ShapeResolver

from penstock.wire.aws import values
from penstock.wire.aws.errors import AwsError


def shape(kind: str, **traits: Any) -> Any:
    return ShapeResolver({"It": {"type": kind, **traits}}).get_shape_by_name("It")


def refusal(call: Any) -> str:
    with pytest.raises(AwsError) as caught:
        call()
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)
    return caught.value.message


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "7", 7),
        ("integer", "+7", 7),
        ("integer", "-0012", -12),
        ("integer", "2147483647", 2**31 - 1),
        ("integer", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("float", "1.5", 1.5),
        ("float", ".5", 0.5),
        ("float", "1.", 1.0),
        ("double", "-1e3", -1000.0),
        ("double", "Infinity", math.inf),
        ("double", "-Infinity", -math.inf),
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("blob", "aGk=", b"hi"),
        ("blob", "", b""),
        ("string", "true", "true"),
        ("character", "x", "x"),
        ("timestamp", "0", 0.0),
    ],
)
def test_a_scalar_is_read_as_its_shape_says(kind: str, text: str, value: Any) -> None:
    got = values.parse_text(shape(kind), text, "At")
    assert (got, type(got)) == (value, type(value))


def test_no_number_is_read_by_its_name() -> None:
    assert math.isnan(values.parse_text(shape("double"), "NaN", "At"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", ""),
        ("integer", "1.0"),
        ("integer", " 1"),
        ("integer", "1_000"),
        ("integer", "\u0661"),
        ("integer", "2147483648"),
        ("integer", "-2147483649"),
        ("long", "9223372036854775808"),
        ("long", "-9223372036854775809"),
        ("long", "1" * 20),
        ("float", ""),
        ("float", "."),
        ("float", "inf"),
        ("float", "nan"),
        ("float", "1e999"),
        ("float", "0x10"),
        ("float", "0" * 1025),
        ("boolean", "yes"),
        ("boolean", ""),
        ("blob", "aGk"),
        ("blob", "a-k="),
        ("blob", "aGk=\n"),
        ("structure", "x"),
    ],
)
def test_anything_else_is_refused_with_its_place(kind: str, text: str) -> None:
    assert refusal(lambda: values.parse_text(shape(kind), text, "Here.There")).startswith(
        "At 'Here.There': expected "
    )


def test_a_number_may_be_long_but_not_without_end() -> None:
    assert values.parse_float("0" * 1023 + "1", "At") == 1.0


def test_what_was_found_is_shown_in_short() -> None:
    assert values.wrong("", "a map", "x" * 64).message == (
        f"At 'the top level': expected a map, found {'x' * 64}."
    )
    assert values.wrong("A", "a map", "x" * 65).message == (
        f"At 'A': expected a map, found {'x' * 64}...."
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5", 1.5),
        ("-1", -1.0),
        ("2024-02-29T12:00:00Z", 1_709_208_000.0),
        ("2024-02-29T12:00:00", 1_709_208_000.0),
        ("2024-02-29T12:00:00.250Z", 1_709_208_000.25),
        ("2024-02-29T13:00:00+01:00", 1_709_208_000.0),
        ("2024-02-29", 1_709_164_800.0),
        ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000.0),
        ("0001-01-01T00:00:00Z", -62_135_596_800.0),
        ("253402300799.999", 253_402_300_799.999),
        ("-62135596800", -62_135_596_800.0),
    ],
)
def test_a_moment_is_read_in_each_form(text: str, seconds: float) -> None:
    assert values.parse_timestamp(text, "At") == seconds


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2024-13-01", "253402300800", "-62135596801", "1e300", "9" * 1025,
     "Thu, 99 Feb 2024 12:00:00 GMT"],
)  # fmt: skip
def test_what_is_no_moment_of_a_calendar_is_refused(text: str) -> None:
    assert "timestamp" in refusal(lambda: values.parse_timestamp(text, "At"))


def test_no_number_is_no_moment() -> None:
    assert "timestamp" in refusal(lambda: values.bounded_timestamp(math.nan, "At"))
    assert values.parse_timestamp("0" * 1023 + "1", "At") == 1.0


@pytest.mark.parametrize(
    ("value", "style", "written"),
    [
        (0, "unixtimestamp", 0),
        (1.0, "unixtimestamp", 1),
        (1.25, "unixtimestamp", 1.25),
        (1.0004, "unixtimestamp", 1),
        (1.0006, "unixtimestamp", 1.001),
        (-0.5, "unixtimestamp", -0.5),
        (1_709_208_000, "rfc822", "Thu, 29 Feb 2024 12:00:00 GMT"),
        (1_709_208_000, "iso8601", "2024-02-29T12:00:00Z"),
        (1_709_208_000.25, "iso8601", "2024-02-29T12:00:00.250Z"),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), "iso8601", "2024-02-29T12:00:00Z"),
        (datetime(2024, 2, 29, 12), "iso8601", "2024-02-29T12:00:00Z"),
        (datetime(2024, 2, 29, 13, tzinfo=timezone(timedelta(hours=1))), "unixtimestamp",
         1_709_208_000),
    ],
)  # fmt: skip
def test_a_moment_is_written_with_milliseconds_at_most(
    value: Any, style: str, written: Any
) -> None:
    got = values.format_timestamp(value, style)
    assert (got, type(got)) == (written, type(written))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("integer", 7, "7"),
        ("float", 2, "2.0"),
        ("double", math.nan, "NaN"),
        ("double", math.inf, "Infinity"),
        ("double", -math.inf, "-Infinity"),
        ("blob", b"hi", "aGk="),
        ("blob", "hé", "aMOp"),
        ("string", "x", "x"),
        ("timestamp", 1.5, "1970-01-01T00:00:01.500Z"),
    ],
)
def test_a_scalar_is_written_so_that_it_can_be_read_again(kind: str, value: Any, text: str) -> None:
    assert values.format_text(shape(kind), value, timestamp_style="iso8601") == text


def test_the_style_of_a_moment_is_its_shapes_before_that_of_its_place() -> None:
    told = shape("timestamp", timestampFormat="unixTimestamp")
    assert values.format_text(told, 1.5, timestamp_style="iso8601") == "1.5"
    plain = shape("timestamp")
    assert values.format_text(plain, 0, timestamp_style="rfc822") == "Thu, 01 Jan 1970 00:00:00 GMT"
