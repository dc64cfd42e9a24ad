"""CSV and JSON of records and answers, read and written without loss; and which content types have
records that can be filtered and joined."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.wire.plain_json import loads

CSV: Final = "csv"
JSON: Final = "json"
JSON_LINES: Final = "json-lines"
PARQUET: Final = "parquet"
OTHER: Final = ""

#: Keys in JSON for a record that is no object, and for an answer.
INPUT_KEY: Final = "SageMakerInput"
OUTPUT_KEY: Final = "SageMakerOutput"

_TYPES: Final = {
    "text/csv": CSV,
    "application/json": JSON,
    "application/jsonlines": JSON_LINES,
    "application/x-jsonlines": JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/x-ndjson": JSON_LINES,
    "application/x-parquet": PARQUET,
    "application/vnd.apache.parquet": PARQUET,
}


def format_of(content_type: str) -> str:
    return _TYPES.get(content_type.partition(";")[0].strip().lower(), OTHER)


RECORD: Final = "record"
ANSWER: Final = "answer"
#: An integer that may have more bits than a fast parser keeps.
_LONG_NUMBER: Final = re.compile(rb"\d{19}")
_LARGE_BYTES: Final = 64 * 1024
_QUOTED: Final = re.compile(r'["\r\n]')


def json_value(data: bytes, whose: str = RECORD) -> Any:
    """The value; integers of any size are exact. Raises `CallerError` (`record-invalid` ...)."""
    try:
        if _LONG_NUMBER.search(data):
            return json.loads(data, parse_constant=_refused_constant)
        # The garbage collector matters only where there are many values to traverse.
        return orjson.loads(data) if len(data) < _LARGE_BYTES else loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid(whose, f"it is not JSON: {error}") from None


def json_bytes(value: Any) -> bytes:
    """The value as one line."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # integers of more than 64 bits, or very deep nesting
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(RECORD, f"it can't be written as JSON: {error}") from None


def json_joined(record: bytes, answer: bytes, output_key: str, input_key: str) -> bytes:
    """The record with its answer as one more attribute. The record's own bytes stay unchanged."""
    added = json_value(answer, ANSWER)
    if b"\n" in answer:
        answer = json_bytes(added)
    given = json_value(record)
    key = orjson.dumps(output_key)
    if not isinstance(given, dict):
        return b"{%s:%s,%s:%s}" % (orjson.dumps(input_key), record.strip(), key, answer.strip())
    if output_key in given:
        return json_bytes({**given, output_key: added})
    comma = b"," if given else b""
    return b"%s%s%s:%s}" % (record.rstrip()[:-1].rstrip(), comma, key, answer.strip())


def csv_rows(data: bytes, whose: str = RECORD) -> list[list[str]]:
    """Rows of cells. An empty line is a row of one empty cell. Raises `CallerError`."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise invalid(whose, f"it is not UTF-8: byte {error.start} can't be read") from None
    if '"' not in text:
        lines = text.split("\n")
        if len(lines) > 1 and not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r").split(",") for line in lines]
    try:
        return [row or [""] for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
    except csv.Error as error:
        raise invalid(whose, f"it is not CSV: {error}") from None


def csv_lines(rows: Iterable[list[str]]) -> bytes:
    """Lines without a newline at the end. (RFC 4180)"""
    return b"\n".join(map(csv_line, rows))


def csv_line(cells: list[str]) -> bytes:
    if cells == [""]:
        return b'""'  # many readers of CSV skip an empty line
    line = ",".join(cells)
    if _QUOTED.search(line) or line.count(",") != len(cells) - 1:
        line = ",".join(map(_quoted, cells))
    return line.encode()


def _quoted(cell: str) -> str:
    if "," not in cell and not _QUOTED.search(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def cell(value: Any) -> str:
    """A value of JSON as a cell: text unchanged, null as empty, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_bytes(value).decode()


def invalid(whose: str, cause: str) -> CallerError:
    """The error of one record; the job's other records may be valid."""
    if whose == ANSWER:
        return CallerError(
            "answer-invalid",
            f"the model's answer can't be filtered or joined: {cause}",
            hint="Set Accept to what the model answers: text/csv, application/json or "
            "application/jsonlines.",
        )
    return CallerError(
        "record-invalid",
        f"the record can't be used: {cause}",
        hint="Check ContentType, SplitType and the filters against this record.",
    )


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
