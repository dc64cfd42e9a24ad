"""Joins records into request bodies, and splits answers into one for each record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from penstock.core.jobs.spec import (
    INPUT,
    LINE,
    NONE,
    RECORD_IO,
    SINGLE_RECORD,
    TF_RECORD,
    TransformSpec,
    is_parquet,
)
from penstock.errors import CallerError, ModelError
from penstock.records.formats.frames import record_io_framed, tf_record_framed
from penstock.records.formats.texts import JSON, format_of
from penstock.records.reader import RECORD_BYTES_MAX

#: Most records of one body: the data kept per record takes a hundred times a digit's memory.
_RECORDS_MAX: Final = 65_536


class Bodies:
    """How a job's requests are made from records (from `Processing.model_input`).

    Lines are joined as lines again, RecordIO and TFRecord records with their frames. A body of
    one record is the record itself.
    """

    def __init__(self, spec: TransformSpec) -> None:
        table = is_parquet(spec.output.accept)
        # Models get rows of Parquet as lines.
        self._split = LINE if is_parquet(spec.input.content_type) else spec.input.split
        self._single = spec.strategy == SINGLE_RECORD or self._split == NONE
        self._bytes_max = spec.payload_bytes_max or RECORD_BYTES_MAX
        answered = format_of(spec.output.accept or spec.input.content_type)
        # Answers of JSON Lines are lines, which tells a lone record from an array of one.
        self._json = table or answered == JSON
        #: Whether each record needs an answer of its own; else each answer is an output as the
        #: model returned it, for however many records.
        self.needs_parts: Final = (
            table
            or spec.processing.join == INPUT
            or spec.processing.output_filter.strip() != "$"
            or spec.inference_ids
        )

    def grouped(self, records: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Groups records into bodies: as many as MaxPayloadInMB and memory allow, or one.

        Raises:
            CallerError: `record-too-large`.
        """
        group: list[bytes] = []
        size = 0
        for record in records:
            need = len(self._framed(record)) if not self._single else len(record)
            if len(record) > self._bytes_max:
                raise CallerError(
                    "record-too-large",
                    f"a record has {len(record)} bytes, a request may have {self._bytes_max}",
                    hint="Raise MaxPayloadInMB, or make the record smaller by an InputFilter.",
                )
            full = len(group) == _RECORDS_MAX or size + need > self._bytes_max
            if group and (self._single or full):
                yield group
                group, size = [], 0
            group.append(record)
            size += need
        if group:
            yield group

    def joined(self, records: list[bytes]) -> bytes:
        """The body with all these records."""
        if self._single and len(records) == 1:
            return records[0]
        if self._split == LINE:
            return b"\n".join(records) + (b"\n" if len(records) > 1 else b"")
        return b"".join(map(self._framed, records))

    def parted(self, answer: bytes, count: int) -> list[bytes]:
        """An answer for each record, in their order.

        An answer to several records has as many lines, or is a JSON array with as many elements,
        which may be the only member of an object (`{"predictions": [...]}`). A record alone in a
        body that may have several is answered in the same way: otherwise the form of its output
        would depend on its size, or on its place in the object.

        Raises:
            ModelError: `answers-miscounted`.
        """
        if count == 1:
            alone = None if self._single or not self._json else _elements(answer)
            if alone is not None and len(alone) == 1:
                return [orjson.dumps(alone[0])]
            return [answer.removesuffix(b"\n")]
        lines = answer.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        if len(lines) == count:
            return [line.removesuffix(b"\r") for line in lines]
        if self._json and (elements := _elements(answer)) is not None and len(elements) == count:
            return [orjson.dumps(element) for element in elements]
        raise ModelError(
            "answers-miscounted",
            f"the model answered {count} records by {len(lines)} lines",
            hint="Answer a line, or an element of a JSON array, for each record; or set "
            "BatchStrategy to SingleRecord.",
            original_status=200,
        )

    def _framed(self, record: bytes) -> bytes:
        if self._split == RECORD_IO:
            return record_io_framed(record)
        if self._split == TF_RECORD:
            return tf_record_framed(record)
        return record + b"\n"


def _elements(answer: bytes) -> list[Any] | None:
    try:
        parsed = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None
    if isinstance(parsed, dict) and len(parsed) == 1:
        [parsed] = parsed.values()
    return parsed if isinstance(parsed, list) else None
