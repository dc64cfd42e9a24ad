"""Lines of captured calls, byte for byte."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from penstock.wire.capture_lines import CapturedCall, line, object_name, read

AT = 1_700_000_000.25  #: 2023-11-14 22:13:20 UTC
EVENT = "11111111-2222-4333-8444-555555555555"
TYPES: dict[str, Any] = {"csv_types": ("text/csv",), "json_types": ("application/json",)}


def test_a_whole_line() -> None:
    call = CapturedCall(
        AT, b"1,2", b'{"score": 0.5}', "text/csv; charset=utf-8", "application/json", "mine", "a=b"
    )
    assert line(call, EVENT, **TYPES) == (
        b'{"captureData":{'
        b'"endpointInput":{"observedContentType":"text/csv; charset=utf-8","mode":"INPUT",'
        b'"data":"1,2","encoding":"CSV"},'
        b'"endpointOutput":{"observedContentType":"application/json","mode":"OUTPUT",'
        b'"data":"{\\"score\\": 0.5}","encoding":"JSON"}},'
        b'"eventMetadata":{"eventId":"11111111-2222-4333-8444-555555555555","inferenceId":"mine",'
        b'"customAttributes":["a=b"],"inferenceTime":"2023-11-14T22:13:20Z"},'
        b'"eventVersion":"0"}\n'
    )


def test_what_a_call_does_not_have_its_line_does_not_have() -> None:
    only_input = line(CapturedCall(AT, b"\x00\xff", None), EVENT, **TYPES)
    assert only_input == (
        b'{"captureData":{"endpointInput":{"mode":"INPUT","data":"AP8=","encoding":"BASE64"}},'
        b'"eventMetadata":{"eventId":"11111111-2222-4333-8444-555555555555",'
        b'"inferenceTime":"2023-11-14T22:13:20Z"},"eventVersion":"0"}\n'
    )
    only_output = orjson.loads(line(CapturedCall(AT, None, b""), EVENT, **TYPES))
    assert only_output["captureData"] == {
        "endpointOutput": {"mode": "OUTPUT", "data": "", "encoding": "BASE64"}
    }


@pytest.mark.parametrize(
    ("content_type", "data", "text", "encoding"),
    [
        ("text/csv", b"a,b\nc", "a,b\nc", "CSV"),
        ("Application/JSON ;x=1", b"[1]", "[1]", "JSON"),
        ("application/jsonlines", b"[1]", "WzFd", "BASE64"),
        (None, b"[1]", "WzFd", "BASE64"),
        # A line is JSON, and JSON is Unicode: nothing is replaced, the encoding says so.
        ("text/csv", b"caf\xe9", "Y2Fm6Q==", "BASE64"),
    ],
)
def test_data_is_text_where_its_type_is_one_of_the_named(
    content_type: str | None, data: bytes, text: str, encoding: str
) -> None:
    told = orjson.loads(line(CapturedCall(AT, data, None, content_type), EVENT, **TYPES))
    captured = told["captureData"]["endpointInput"]
    assert (captured["data"], captured["encoding"]) == (text, encoding)


def test_files_lie_by_the_hour_of_their_first_call() -> None:
    assert object_name("shop", "blue", AT, "u") == "shop/blue/2023/11/14/22/13-20-250-u.jsonl"
    assert object_name("shop", "blue", 0.0, "u") == "shop/blue/1970/01/01/00/00-00-000-u.jsonl"


def test_a_line_is_read_as_it_was_written() -> None:
    types = ("application/json", "image/png")
    call = CapturedCall(1_700_000_000.0, b"[1]", b"\xff\x00", *types, "a", "b")
    written = line(call, "e", csv_types=(), json_types=("application/json",))
    assert read(written) == call
    only = CapturedCall(1_700_000_000.0, None, b"x")
    assert read(line(only, "e", csv_types=(), json_types=())) == only


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"7", b"{}", b'{"captureData": 1}', b'{"captureData": {"endpointInput": 3}}',
     b'{"captureData": {}, "eventMetadata": {"inferenceTime": "today"}}', b"\xff"],
)  # fmt: skip
def test_what_is_no_captured_call_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read(text)
