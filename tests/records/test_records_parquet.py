"""Parquet: row groups as spans, rows as JSON, and outputs that are tables again."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_files import SETTINGS, blocks_of, error_of, one_object, records_of

from penstock.core.jobs.spec import (
    DataProcessing,
    InputObject,
    TransformInput,
    TransformOutput,
    cut,
)
from penstock.errors import CallerError
from penstock.records.filters import Processing
from penstock.records.formats import tables
from penstock.records.output import assemble
from penstock.records.parts import PartWriter
from penstock.records.reader import RecordReader

PARQUET = "application/x-parquet"


def parquet(columns: dict[str, Any], *, rows: int = 100) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=rows)
    return buffer.getvalue()


def test_a_row_is_a_line_of_json(tmp_path: Path) -> None:
    content = parquet(
        {
            "text": ["a, ü", None],
            "n": [1, 2],
            "x": [0.5, float("nan")],
            "day": [datetime.date(2024, 1, 2), None],
            "price": [Decimal("1.50"), None],
            "raw": [b"abc", b"\xff"],
            "list": [[1, 2], None],
            "struct": [{"a": 1}, {"a": None}],
        }
    )
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    rows = [json.loads(record) for record in records_of(one, data)]
    assert rows == [
        {
            "text": "a, ü", "n": 1, "x": 0.5, "day": "2024-01-02", "price": "1.50", "raw": "abc",
            "list": [1, 2], "struct": {"a": 1},
        },
        {
            "text": None, "n": 2, "x": None, "day": None, "price": None, "raw": "/w==",
            "list": None, "struct": {"a": None},
        },
    ]  # fmt: skip


@pytest.mark.parametrize("span_bytes", [50, 500, 3000, 2**40])
def test_spans_together_have_each_row_once(tmp_path: Path, span_bytes: int) -> None:
    """A row group belongs to the span in which it begins."""
    content = parquet({"n": list(range(500)), "t": [f"text {n}" for n in range(500)]}, rows=60)
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    rows = [json.loads(record)["n"] for record in records_of(one, data, span_bytes=span_bytes)]
    assert rows == list(range(500))


def test_indices_of_rows_go_on_through_a_spans_row_groups(tmp_path: Path) -> None:
    content = parquet({"n": list(range(300))}, rows=100)
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    [span] = cut([one], data)
    blocks = blocks_of(one, span, data)
    assert [block.first for block in blocks] == [0, 100, 200]
    assert blocks[1].offset_of(150) == blocks[1].start > blocks[0].start


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    content = parquet({"a": [1], "b": [2], "c": [3]})
    one, data = one_object(tmp_path, content, content_type=PARQUET, columns=("c", "a"))
    [span] = cut([one], data)
    given = Processing(DataProcessing(), data, TransformOutput(uri="file:///out"))
    assert not given.needs_whole_records
    [block] = blocks_of(one, span, data, whole_records=False)
    assert json.loads(block.records[0]) == {"a": 1, "c": 3}
    assert given.model_input(block.records[0]) == b"3,1"
    joined = Processing(DataProcessing(join="Input"), data, TransformOutput(uri="file:///out"))
    assert joined.needs_whole_records


def test_what_is_no_parquet_or_lacks_a_column_is_refused(tmp_path: Path) -> None:
    whole = parquet({"a": [1, 2]})
    for content in (b"a,b\n", whole[:-1], whole[:40], b"PAR1" + b"\xff" * 60 + whole[-8:]):
        one, data = one_object(tmp_path, content, content_type=PARQUET)
        assert error_of(lambda o=one, d=data: records_of(o, d)).code == "record-unreadable"
    one, data = one_object(tmp_path, whole, content_type=PARQUET, columns=("gone",))
    error = error_of(lambda: records_of(one, data))
    assert (error.code, "'gone'" in error.message) == ("column-missing", True)
    empty, data = one_object(tmp_path, b"", content_type=PARQUET)
    assert records_of(empty, data) == []


def test_a_broken_page_is_refused_and_no_span_is_read_twice_for_it(tmp_path: Path) -> None:
    content = bytearray(parquet({"a": [f"{n}" * 50 for n in range(1000)]}))
    for at in range(4, 2000, 7):
        content[at] ^= 0x55
    one, data = one_object(tmp_path, bytes(content), content_type=PARQUET)
    assert error_of(lambda: records_of(one, data)).code == "record-unreadable"


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    data = TransformInput(uri="file:///in", content_type=PARQUET)
    error = error_of(lambda: Processing(DataProcessing(), data, TransformOutput(uri="file:///out")))
    assert (error.code, "[parquet]" in error.hint) == ("parquet-missing", True)


def test_reading_lines_does_not_import_pyarrow() -> None:

    code = (
        "import sys, penstock.records.reader, penstock.records.output, penstock.records.filters\n"
        "assert not [name for name in sys.modules if name.startswith('pyarrow')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def table(
    tmp_path: Path, one: InputObject, data: TransformInput, answers: list[bytes | None],
    *, span_bytes: int = 2**40, **members: str,
) -> pa.Table:  # fmt: skip
    """The output of an object whose rows were answered so, None standing for a refused one."""
    output = TransformOutput(uri=(tmp_path / "out").as_uri(), accept=PARQUET)
    asked = DataProcessing(**members)
    processing = Processing(asked, data, output)
    assert processing.accept == "application/json"
    spans = cut([one], data, span_bytes)
    parts = (tmp_path / "parts").as_uri()
    waiting = iter(answers)
    for span in spans:
        writer = PartWriter(parts, span, output)
        rows = [row for block in blocks_of(one, span, data) for row in block.records]
        for index, row in enumerate(rows):
            answer = next(waiting)
            if answer is None:
                writer.refuse(index, 4, CallerError("bad", "bad", hint="x").to_dict())
            else:
                writer.write([processing.output(row, answer)])
        writer.commit()
    assert next(waiting, "all") == "all"
    assemble(one, spans, parts, output, SETTINGS, processing=asked)
    return pq.read_table(tmp_path / "out/data.out")


def test_answers_are_joined_to_the_columns_of_their_rows(tmp_path: Path) -> None:
    """Types of the input stay; rows that were refused are left out."""
    when = [datetime.datetime(2024, 1, day + 1) for day in range(4)]
    content = parquet({"id": [1, 2, 3, 4], "at": when}, rows=2)
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    answers = [b"0.5", None, b'{"l": 1}', b"7"]
    joined = table(tmp_path, one, data, answers, span_bytes=100, join="Input")
    assert joined.to_pydict() == {
        "id": [1, 3, 4], "at": [when[0], when[2], when[3]],
        "SageMakerOutput": ["0.5", '{"l":1}', "7"],
    }  # fmt: skip
    assert joined.schema.field("at").type == pa.timestamp("us")


@pytest.mark.parametrize(
    ("answers", "kind", "values"),
    [
        ([b"1", b"2"], pa.int64(), [1, 2]),
        ([b"1", b"0.5"], pa.float64(), [1.0, 0.5]),
        ([b"null", b"2"], pa.int64(), [None, 2]),
        ([b'"a"', b'"b"'], pa.string(), ["a", "b"]),
        ([b"[1]", b"[2,3]"], pa.list_(pa.int64()), [[1], [2, 3]]),
        ([b"true", b"1"], pa.string(), ["true", "1"]),
        ([b"1", b"36893488147419103232"], pa.string(), ["1", "36893488147419103232"]),
    ],
)
def test_a_column_of_answers_has_the_type_that_holds_all_of_them(
    tmp_path: Path, answers: list[bytes], kind: pa.DataType, values: list[Any]
) -> None:
    one, data = one_object(tmp_path, parquet({"id": [1, 2]}, rows=1), content_type=PARQUET)
    for span_bytes in (60, 2**40):
        found = table(tmp_path, one, data, answers, span_bytes=span_bytes, join="Input")
        assert found.schema.field("SageMakerOutput").type == kind
        assert found.column("SageMakerOutput").to_pylist() == values


def test_without_a_join_the_keys_of_answers_are_columns(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, parquet({"id": [1, 2]}), content_type=PARQUET)
    found = table(tmp_path, one, data, [b'{"l":"x","s":1}', b'{"s":2.5,"t":[]}'])
    assert found.to_pydict() == {"l": ["x", None], "s": [1.0, 2.5], "t": [None, []]}
    found = table(tmp_path, one, data, [b"[1,2]", b"[3,4]"], output_filter="$[0]")
    assert found.to_pydict() == {"SageMakerOutput": [1, 3]}


def test_an_output_filter_selects_columns(tmp_path: Path) -> None:
    content = parquet({"id": [1, 2], "text": ["a", "b"]})
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    found = table(
        tmp_path, one, data, [b"5", b"6"], join="Input",
        output_filter="$['SageMakerOutput','id']",
    )  # fmt: skip
    assert found.to_pydict() == {"SageMakerOutput": [5, 6], "id": [1, 2]}
    assert found.schema.names == ["SageMakerOutput", "id"]


def test_tables_without_rows_are_tables(tmp_path: Path) -> None:
    empty = pa.table({"id": pa.array([], pa.int64())})
    buffer = io.BytesIO()
    pq.write_table(empty, buffer)
    one, data = one_object(tmp_path, buffer.getvalue(), content_type=PARQUET)
    assert table(tmp_path, one, data, [], join="Input").to_pydict() == {"id": []}
    one, data = one_object(tmp_path, parquet({"id": [1]}), content_type=PARQUET)
    assert table(tmp_path, one, data, [None], join="Input").to_pydict() == {"id": []}


def test_answers_that_are_not_one_for_each_row_make_no_table(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, parquet({"id": [1, 2]}), content_type=PARQUET)
    for answers in ([b"1"], [b"1", b"2", None]):
        output = TransformOutput(uri=(tmp_path / "out").as_uri(), accept=PARQUET)
        [span] = cut([one], data)
        writer = PartWriter((tmp_path / "p").as_uri(), span, output)
        writer.write([b'{"SageMakerOutput":1}'] * (3 if None in answers else 1))
        writer.commit()
        error = error_of(
            lambda s=span, o=output: assemble(
                one, [s], (tmp_path / "p").as_uri(), o, SETTINGS,
                processing=DataProcessing(join="Input"),
            )
        )  # fmt: skip
        assert error.code == "answers-miscounted"


def repeated(rows: int, **columns: Any) -> bytes:
    """The same values in each row: a small file, since each is stored once."""
    table = pa.table({name: pa.array([value] * rows) for name, value in columns.items()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "value",
    ["x" * 300_000, b"x" * 300_000, [["x" * 100_000] * 3], {"a": {"b": "x" * 300_000}}],
    ids=["text", "bytes", "lists", "structs"],
)
def test_a_small_file_that_says_the_same_in_each_row_is_read_in_bounded_memory(
    tmp_path: Path, value: Any
) -> None:
    content = repeated(600, it=value, n=1)
    assert len(content) < 100_000
    one, data = one_object(tmp_path, content, content_type=PARQUET)
    [span] = cut([one], data)
    code = (
        "import sys, msgspec, pyarrow as pa\n"
        "from penstock.artifacts.sources.source import ArtifactSettings\n"
        "from penstock.core.jobs.spec import InputObject, Span, TransformInput\n"
        "from penstock.records.reader import RecordReader\n"
        "kinds = (InputObject, Span, TransformInput)\n"
        "given = [msgspec.json.decode(sys.argv[at], type=it) for at, it in enumerate(kinds, 1)]\n"
        "blocks = RecordReader(*given, ArtifactSettings()).blocks()\n"
        "sizes = [sum(map(len, block.records)) for block in blocks]\n"
        "print(sum(sizes), max(sizes), pa.default_memory_pool().max_memory())\n"
    )
    told = [json.dumps(asdict(each)) for each in (one, span, data)]
    words = [sys.executable, "-c", code, *told]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    total, largest, memory = map(int, done.stdout.split())
    assert total > 600 * 300_000
    assert largest < 2 * 1024 * 1024
    assert memory < 32 * 1024 * 1024


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_that_are_stored_otherwise_are_bounded_too(tmp_path: Path, encoding: str) -> None:
    """Of the first each has the beginning of the one before: 600 rows are stored in one's bytes."""
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"it": ["x" * 300_000] * 600}), buffer,
        use_dictionary=False, column_encoding={"it": encoding}, compression="zstd",
    )  # fmt: skip
    one, data = one_object(tmp_path, buffer.getvalue(), content_type=PARQUET)
    [span] = cut([one], data)
    with closing(RecordReader(one, span, data, SETTINGS).blocks()) as blocks:
        sizes = [sum(map(len, block.records)) for block in blocks]
    assert sum(sizes) > 600 * 300_000
    assert max(sizes) < 2 * 1024 * 1024


def test_a_row_that_is_too_large_is_refused_by_itself(tmp_path: Path) -> None:
    texts = ["short", "x" * 3_000_000, "short", "the end"]
    one, data = one_object(tmp_path, parquet({"it": texts}), content_type=PARQUET)
    [span] = cut([one], data)
    refused: dict[int, Any] = {}
    blocks = blocks_of(one, span, data, record_bytes_max=1_000_000, refused=refused)
    records = [record for block in blocks for record in block.records]
    assert [json.loads(one or b"null") for one in records] == [
        {"it": "short"}, None, {"it": "short"}, {"it": "the end"}
    ]  # fmt: skip
    assert {number: error.code for number, error in refused.items()} == {1: "record-too-large"}
    error = error_of(lambda: records_of(one, data, record_bytes_max=1_000_000))
    assert error.code == "record-too-large"
    # 900,000 quotes are read, and are too many once they are written as JSON.
    quotes, data = one_object(tmp_path, parquet({"it": ['"' * 900_000]}), content_type=PARQUET)
    refused = {}
    [block] = blocks_of(quotes, span, data, record_bytes_max=1_000_000, refused=refused)
    assert (block.records, list(refused)) == ([b""], [0])


def test_long_texts_that_are_joined_to_answers_keep_their_types(tmp_path: Path) -> None:
    given = pa.table(
        {
            "text": ["x" * 200_000] * 50,
            "list": [["a", None], None] * 25,
            "struct": [{"a": "b"}] * 50,
            "map": pa.array([[("k", "v")]] * 50, pa.map_(pa.string(), pa.string())),
            "raw": [b"\xff"] * 50,
        }
    )
    buffer = io.BytesIO()
    pq.write_table(given, buffer)
    one, data = one_object(tmp_path, buffer.getvalue(), content_type=PARQUET)
    joined = table(tmp_path, one, data, [b"1"] * 50, join="Input")
    assert joined.select(given.column_names).equals(given)
    assert joined.column("SageMakerOutput").to_pylist() == [1] * 50


def test_long_answers_are_joined_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two bytes may have answers of a megabyte: these bound what is read together."""
    together: list[int] = []
    columns = tables._answer_columns
    monkeypatch.setattr(
        tables,
        "_answer_columns",
        lambda rows, added: together.append(len(rows)) or columns(rows, added),
    )
    one, data = one_object(tmp_path, parquet({"id": list(range(40))}), content_type=PARQUET)
    answer = json.dumps("x" * 300_000).encode()
    joined = table(tmp_path, one, data, [answer] * 40, join="Input")
    assert joined.column("id").to_pylist() == list(range(40))
    assert {len(text) for text in joined.column("SageMakerOutput").to_pylist()} == {300_000}
    assert together == [4] * 10
