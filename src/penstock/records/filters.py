"""DataProcessing: what the model gets of a record, and what of both is written.

InputFilter selects from the record, JoinSource joins the record with its answer, OutputFilter
selects from the result. JSON is joined by the attribute `SageMakerOutput`, which replaces an
attribute of the record with this name; a record that is no object becomes `SageMakerInput`. A row
of CSV is an array, and the answer is appended to it. Where nothing is selected or joined, bytes
pass through unchanged. GenerateInferenceId adds an id and a time to what is written.
(docs.aws.amazon.com/sagemaker/latest/dg/batch-transform-data-processing.html)
"""

from __future__ import annotations

from typing import Any, Final

from penstock.core.jobs.spec import (
    INPUT,
    NONE,
    DataProcessing,
    TransformInput,
    TransformOutput,
)
from penstock.errors import CallerError
from penstock.records import json_path
from penstock.records.formats import texts
from penstock.records.formats.parquet import arrow
from penstock.records.formats.tables import selected_columns
from penstock.records.formats.texts import (
    CSV,
    INPUT_KEY,
    JSON_LINES,
    OTHER,
    OUTPUT_KEY,
    PARQUET,
    format_of,
)
from penstock.records.inference_ids import ID_KEY, TIME_KEY, InferenceIds


class Processing:
    """What a job does to each record and answer. Safe for any number of threads.

    Raises:
        CallerError: `filter-invalid`, `processing-unsupported`: the job is not possible.
    """

    def __init__(
        self,
        processing: DataProcessing,
        data: TransformInput,
        output: TransformOutput,
        *,
        inference_ids: bool = False,
    ) -> None:
        kind = format_of(data.content_type)
        self._input = json_path.parse(processing.input_filter, "InputFilter")
        self._output = json_path.parse(processing.output_filter, "OutputFilter")
        self._joins = processing.join == INPUT
        self._columns = data.columns
        self._csv_in = kind == CSV
        #: An answer has the requested content type, else the record's.
        answered = format_of(output.accept) or kind
        self._answers_csv = answered == CSV
        self._writes_table = format_of(output.accept) == PARQUET
        self._writes_csv = self._csv_in if self._joins else self._answers_csv
        self._writes_lines = answered == JSON_LINES and not self._joins
        #: The content type to request from the model: rows of a table are made from JSON.
        self.accept: Final = "application/json" if self._writes_table else output.accept
        #: Content type of the result of `model_input`; a row of columns is CSV.
        self.body_type: Final = _body_type(kind, data)
        #: Whether the model may get the record unchanged, and its answer is written unchanged.
        self.is_plain: Final = (
            self._input.is_all
            and self._output.is_all
            and not self._joins
            and not self._writes_table
            and not data.columns
            and not inference_ids
        )
        #: Whether the whole record is needed, not only the part for the model.
        self.needs_whole_records: Final = (
            self._joins and not self._writes_table
        ) or not data.columns
        if kind == PARQUET and data.compression != NONE:
            raise _unsupported("Parquet is compressed in itself, not by Gzip")
        self._check(kind, answered)
        written = format_of(output.accept) if output.accept and not self._joins else kind
        if inference_ids and (written in (OTHER, PARQUET) or self._writes_table):
            raise _unsupported("GenerateInferenceId is for outputs of text/csv, JSON or JSON Lines")

    def _check(self, kind: str, answered: str) -> None:
        looked_into = not self._input.is_all or self._joins or bool(self._columns)
        if looked_into and kind == OTHER:
            raise _unsupported("ContentType is neither text/csv, JSON nor JSON Lines")
        if not self._output.is_all and answered == OTHER:
            raise _unsupported("Accept is neither text/csv, JSON nor JSON Lines")
        if self._columns and kind not in (JSON_LINES, PARQUET):
            raise _unsupported("columns have names in JSON Lines and Parquet only")
        if self._columns and not self._input.is_all:
            raise _unsupported("an InputFilter and columns both say what the model is given")
        if self._writes_table and kind != PARQUET:
            raise _unsupported("Parquet is written for Parquet only, as its rows are")
        if self._writes_table and self._joins:
            selected_columns(self._output)
        if kind == PARQUET:
            arrow()  # raises before any work if pyarrow is missing

    def model_input(self, record: bytes) -> bytes:
        """The part of a record that the model gets.

        Raises:
            CallerError: `record-invalid`: this record lacks what is selected, or is not of the
                content type.
        """
        if self._columns:
            return texts.csv_line(_columns_of(texts.json_value(record), self._columns))
        if self._input.is_all:
            return record
        if self._csv_in:
            rows = [self._selected(row, "InputFilter") for row in texts.csv_rows(record)]
            return texts.csv_lines(rows)
        return texts.json_bytes(self._picked(self._input, texts.json_value(record), "InputFilter"))

    def output(
        self, record: bytes, answer: bytes, number: int = 0, ids: InferenceIds | None = None
    ) -> bytes:
        """The output for a record with this answer. A newline at the answer's end makes no
        difference.

        Args:
            number: of the record in its span.
            ids: of the span, where each row of the output gets one.

        Raises:
            CallerError: `record-invalid`, or `answer-invalid` where it can't be joined.
        """
        made = self._made(record, answer)
        return made if ids is None else self._named(made, number, ids)

    def _named(self, output: bytes, number: int, ids: InferenceIds) -> bytes:
        if self._writes_csv:
            rows = texts.csv_rows(output, texts.ANSWER)
            return texts.csv_lines(
                [*row, ids.of(number, at), ids.time] for at, row in enumerate(rows)
            )
        output = output.rstrip()
        lines = output.split(b"\n") if self._writes_lines else [output]
        return b"\n".join(
            self._member(line, {ID_KEY: ids.of(number, at), TIME_KEY: ids.time})
            for at, line in enumerate(lines)
        )

    @staticmethod
    def _member(output: bytes, added: dict[str, str]) -> bytes:
        for key, value in added.items():
            output = texts.json_joined(output, texts.json_bytes(value), key, OUTPUT_KEY)
        return output

    def _made(self, record: bytes, answer: bytes) -> bytes:
        if self._writes_table:
            return self._row(answer)
        if not self._joins and self._output.is_all:
            return answer
        answer = answer.removesuffix(b"\n").removesuffix(b"\r")
        if not self._joins:
            return self._of_answer(answer)
        if self._csv_in:
            return self._csv_joined(record, answer)
        if self._output.is_all and not self._answers_csv:
            return texts.json_joined(record, answer, OUTPUT_KEY, INPUT_KEY)
        value = self._answer_value(answer)
        given = texts.json_value(record)
        joined = given if isinstance(given, dict) else {INPUT_KEY: given}
        return texts.json_bytes(
            self._picked(self._output, {**joined, OUTPUT_KEY: value}, "OutputFilter")
        )

    def _row(self, answer: bytes) -> bytes:
        """An answer as columns: its keys, or one column beside those of the joined row."""
        value = texts.json_value(answer, texts.ANSWER)
        if self._joins:
            return texts.json_bytes({OUTPUT_KEY: value})
        value = self._picked(self._output, value, "OutputFilter")
        return texts.json_bytes(value if isinstance(value, dict) else {OUTPUT_KEY: value})

    def _of_answer(self, answer: bytes) -> bytes:
        if self._answers_csv:
            rows = texts.csv_rows(answer, texts.ANSWER)
            return texts.csv_lines([self._selected(row, "OutputFilter") for row in rows])
        value = texts.json_value(answer, texts.ANSWER)
        return texts.json_bytes(self._picked(self._output, value, "OutputFilter"))

    def _csv_joined(self, record: bytes, answer: bytes) -> bytes:
        rows = texts.csv_rows(record)
        answers = self._answer_rows(answer, len(rows))
        if len(answers) != len(rows):
            raise texts.invalid(
                texts.ANSWER, f"it has {len(answers)} rows for {len(rows)} of the record"
            )
        joined = [[*row, *added] for row, added in zip(rows, answers, strict=True)]
        if not self._output.is_all:
            joined = [self._selected(row, "OutputFilter") for row in joined]
        return texts.csv_lines(joined)

    def _answer_rows(self, answer: bytes, count: int) -> list[list[str]]:
        if self._answers_csv:
            return texts.csv_rows(answer, texts.ANSWER)
        value = texts.json_value(answer, texts.ANSWER)
        values = value if count > 1 and isinstance(value, list) else [value]
        return [
            [texts.cell(part) for part in (one if isinstance(one, list) else [one])]
            for one in values
        ]

    def _answer_value(self, answer: bytes) -> Any:
        if not self._answers_csv:
            return texts.json_value(answer, texts.ANSWER)
        rows = texts.csv_rows(answer, texts.ANSWER)
        return rows[0] if len(rows) == 1 else rows

    def _selected(self, row: list[str], which: str) -> list[str]:
        path = self._input if which == "InputFilter" else self._output
        found = self._picked(path, row, which)
        return found if isinstance(found, list) else [found]

    @staticmethod
    def _picked(path: json_path.JsonPath, value: Any, which: str) -> Any:
        try:
            return path.of(value)
        except json_path.NotThereError as error:
            raise texts.invalid(texts.RECORD, f"{which} {path.text}: {error}") from None


def _columns_of(value: Any, columns: tuple[str, ...]) -> list[str]:
    if not isinstance(value, dict):
        raise texts.invalid(texts.RECORD, "it is no object, and columns are asked for")
    for name in columns:
        if name not in value:
            raise texts.invalid(texts.RECORD, f"the column {name!r} is missing")
    return [texts.cell(value[name]) for name in columns]


def _body_type(kind: str, data: TransformInput) -> str:
    if data.columns:
        return "text/csv"
    return "application/jsonlines" if kind == PARQUET else data.content_type


def _unsupported(cause: str) -> CallerError:
    return CallerError(
        "processing-unsupported",
        f"DataProcessing of this kind is not possible: {cause}",
        hint="Filters and joins are for text/csv, application/json, application/jsonlines and "
        "application/x-parquet.",
    )
