"""The content types whose records can be filtered and joined."""

from __future__ import annotations

from typing import Final

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
