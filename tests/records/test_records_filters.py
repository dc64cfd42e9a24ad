"""DataProcessing: what a model is given of a record, and what is written of both.

Cases of SageMaker's documentation first ("Associate prediction results with input records").
"""

from __future__ import annotations

from typing import Any

import pytest
from record_files import error_of

from penstock.core.jobs.spec import DataProcessing, Span, TransformInput, TransformOutput
from penstock.records.filters import Processing
from penstock.records.inference_ids import InferenceIds

CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"
PARQUET = "application/x-parquet"
SELECTS_ID = "$['id','SageMakerOutput']"


def processing(content_type: str, accept: str | None = None, **members: Any) -> Processing:
    columns, named = members.pop("columns", ()), members.pop("inference_ids", False)
    return Processing(
        DataProcessing(**members),
        TransformInput(uri="file:///in", split="Line", content_type=content_type, columns=columns),
        TransformOutput(uri="file:///out", accept=content_type if accept is None else accept),
        inference_ids=named,
    )


def test_without_filters_bytes_go_through_as_they_are() -> None:
    for content_type in (CSV, JSON, "image/png", ""):
        given = processing(content_type)
        assert given.is_plain
        assert given.model_input(b"\xff,1") == b"\xff,1"
        assert given.output(b"\xff,1", b"\x00\n") == b"\x00\n"


@pytest.mark.parametrize(
    ("members", "record", "model_input", "answer", "output"),
    [
        ({"join": "Input"}, b"1,2,3", b"1,2,3", b"1", b"1,2,3,1"),
        ({"join": "Input", "input_filter": "$[1:]"}, b"id,2,3", b"2,3", b"0.9\n", b"id,2,3,0.9"),
        (
            {"join": "Input", "input_filter": "$[1:]", "output_filter": "$[0,-1]"},
            b"id,2,3", b"2,3", b"0.9", b"id,0.9",
        ),
        ({"input_filter": "$[0]"}, b"a,b", b"a", b"x,y", b"x,y"),
        ({"output_filter": "$[1]"}, b"a,b", b"a,b", b"x,y", b"y"),
        ({"join": "Input"}, b'"a,""b""",c', b'"a,""b""",c', b"1,2", b'"a,""b""",c,1,2'),
        ({"input_filter": "$[0]"}, b'"a,b",c', b'"a,b"', b"1", b"1"),
        ({"input_filter": "$[0:2]"}, b'"a,b",c,d', b'"a,b",c', b"1", b"1"),
        ({"input_filter": "$[0]"}, b'"a\nb",c', b'"a\nb"', b"1", b"1"),
        ({"join": "Input"}, b"a,b\r\nc,d\r\n", b"a,b\r\nc,d\r\n", b"1\n2\n", b"a,b,1\nc,d,2"),
        ({"input_filter": "$[0]"}, b"a,b\nc,d\n", b"a\nc", b"1", b"1"),
        ({"join": "Input"}, b"", b"", b"1", b",1"),
        ({"input_filter": "$[0]"}, b",b", b'""', b"1", b"1"),
    ],
)  # fmt: skip
def test_csv_rows_are_arrays(
    members: dict[str, str], record: bytes, model_input: bytes, answer: bytes, output: bytes
) -> None:
    given = processing(CSV, **members)
    assert given.model_input(record) == model_input
    assert given.output(record, answer) == output


@pytest.mark.parametrize(
    ("members", "record", "model_input", "answer", "output"),
    [
        (
            {"join": "Input"},
            b'{"key":1}', b'{"key":1}', b'{"label":1}',
            b'{"key":1,"SageMakerOutput":{"label":1}}',
        ),
        (
            {"join": "Input"},
            b"[1,2]", b"[1,2]", b"3",
            b'{"SageMakerInput":[1,2],"SageMakerOutput":3}',
        ),
        ({"join": "Input"}, b"{}", b"{}", b"3", b'{"SageMakerOutput":3}'),
        (
            {"join": "Input"},
            b' {"a": 1 } ', b' {"a": 1 } ', b"3\n",
            b' {"a": 1,"SageMakerOutput":3}',
        ),
        (
            {"join": "Input"},
            b'{"a":1}', b'{"a":1}', b'{"b":\n 2}',
            b'{"a":1,"SageMakerOutput":{"b":2}}',
        ),
        (
            {"join": "Input"},
            b'{"SageMakerOutput":1,"a":2}', b'{"SageMakerOutput":1,"a":2}', b"3",
            b'{"SageMakerOutput":3,"a":2}',
        ),
        (
            {"join": "Input", "input_filter": "$.features", "output_filter": SELECTS_ID},
            b'{"id":"x","features":[1,2]}', b"[1,2]", b"0.5",
            b'{"id":"x","SageMakerOutput":0.5}',
        ),
        ({"input_filter": "$.text"}, '{"text":"ü"}'.encode(), '"ü"'.encode(), b"1", b"1"),
        ({"output_filter": "$.predictions[0]"}, b"{}", b"{}", b'{"predictions":[7]}', b"7"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("content_type", [JSON, LINES, "application/jsonlines; charset=utf-8"])
def test_json_is_joined_by_an_attribute(
    content_type: str, members: dict[str, str], record: bytes, model_input: bytes, answer: bytes,
    output: bytes,
) -> None:  # fmt: skip
    given = processing(content_type, **members)
    assert given.model_input(record) == model_input
    assert given.output(record, answer) == output


def test_long_integers_are_not_rounded() -> None:
    """Ids of more than 64 bits, which fast parsers take for floats."""
    record = b'{"id":123456789012345678901234567890,"x":18446744073709551616}'
    joined = processing(JSON, join="Input").output(record, b"[1.5]")
    assert joined == record[:-1] + b',"SageMakerOutput":[1.5]}'
    given = processing(JSON, input_filter="$['id']")
    assert given.model_input(record) == b"123456789012345678901234567890"
    given = processing(JSON, join="Input", output_filter=SELECTS_ID)
    assert (
        given.output(record, b"1") == b'{"id":123456789012345678901234567890,"SageMakerOutput":1}'
    )


def test_large_values_are_read_as_small_ones() -> None:
    text = "ü" * 100_000
    given = processing(JSON, input_filter="$.t", join="Input")
    assert given.model_input(f'{{"t":"{text}"}}'.encode()) == f'"{text}"'.encode()
    long = f'{{"t":"{text}","id":123456789012345678901234567890}}'.encode()
    assert processing(JSON, input_filter="$['t','id']").model_input(long) == long


def test_csv_with_answers_of_json() -> None:
    """An array is as many cells, a text one without quotes, anything else one of JSON."""
    given = processing(CSV, JSON, join="Input")
    assert given.output(b"a", b'[1,"x",null]') == b"a,1,x,"
    assert given.output(b"a", b'{"l":1}') == b'a,"{""l"":1}"'
    assert given.output(b"a\nb", b"[[1],[2]]") == b"a,1\nb,2"
    assert (
        processing(CSV, JSON, output_filter="$['class']").output(b"a", b'{"class":"x"}') == b'"x"'
    )


def test_json_with_answers_of_csv() -> None:
    given = processing(JSON, CSV, join="Input")
    assert given.output(b'{"a":1}', b"x,2\n") == b'{"a":1,"SageMakerOutput":["x","2"]}'


def test_rows_of_parquet_are_json_to_a_model() -> None:
    given = processing(PARQUET)
    assert (given.body_type, given.accept) == (LINES, JSON)
    assert processing(CSV).body_type == CSV
    assert processing(CSV).accept == CSV
    assert given.output(b"{}", b"5\n") == b'{"SageMakerOutput":5}'
    assert given.output(b"{}", b'{"a":5}') == b'{"a":5}'
    given = processing(PARQUET, join="Input")
    assert given.output(b'{"b":1}', b'{"a":5}') == b'{"SageMakerOutput":{"a":5}}'
    given = processing(PARQUET, output_filter="$.a")
    assert given.output(b"{}", b'{"a":5}') == b'{"SageMakerOutput":5}'


def test_parquet_is_not_unpacked() -> None:
    def made(content_type: str) -> Processing:
        data = TransformInput(uri="file:///in", content_type=content_type, compression="Gzip")
        return Processing(DataProcessing(), data, TransformOutput(uri="file:///out"))

    assert made(CSV).is_plain
    assert error_of(lambda: made(PARQUET)).code == "processing-unsupported"


def test_columns_are_given_to_the_model_as_a_row() -> None:
    given = processing(LINES, columns=("b", "a"), join="Input")
    assert (given.body_type, given.accept) == ("text/csv", LINES)
    assert given.needs_whole_records
    assert not processing(LINES, columns=("b", "a")).needs_whole_records
    assert processing(LINES).needs_whole_records
    assert not processing(LINES, columns=("b",)).is_plain
    record = b'{"a":"x, y","b":null,"c":[1]}'
    assert given.model_input(record) == b',"x, y"'
    assert given.output(record, b"1") == record[:-1] + b',"SageMakerOutput":1}'
    for bad in (b'{"a":1}', b"[1]"):
        assert error_of(lambda b=bad: given.model_input(b)).code == "record-invalid"


@pytest.mark.parametrize(
    ("content_type", "members", "record", "answer", "code"),
    [
        (CSV, {"input_filter": "$[3]"}, b"a,b", b"", "record-invalid"),
        (CSV, {"input_filter": "$.a"}, b"a,b", b"", "record-invalid"),
        (CSV, {"input_filter": "$[0]"}, b"\xff", b"", "record-invalid"),
        (CSV, {"input_filter": "$[0]"}, b'"a', b"", "record-invalid"),
        (JSON, {"input_filter": "$.a"}, b"{", b"", "record-invalid"),
        (JSON, {"input_filter": "$.a"}, b"", b"", "record-invalid"),
        (JSON, {"input_filter": "$.a"}, b'{"b":1}', b"", "record-invalid"),
        (JSON, {"input_filter": "$.a"}, b'{"b":' + b"[" * 100_000, b"", "record-invalid"),
        (JSON, {"input_filter": "$.a"}, b"[NaN,1234567890123456789]", b"", "record-invalid"),
        (JSON, {"join": "Input"}, b"{}", b"no json", "answer-invalid"),
        (JSON, {"join": "Input"}, b"\xff", b"1", "record-invalid"),
        (CSV, {"join": "Input"}, b"a", b"1\n2", "answer-invalid"),
        (CSV, {"join": "Input"}, b"a", b'"', "answer-invalid"),
    ],
)  # fmt: skip
def test_a_record_that_is_not_what_it_should_be_is_refused_alone(
    content_type: str, members: dict[str, str], record: bytes, answer: bytes, code: str
) -> None:
    given = processing(content_type, **members)
    call = given.output if answer else lambda record, _: given.model_input(record)
    assert error_of(lambda: call(record, answer)).code == code


@pytest.mark.parametrize(
    ("content_type", "accept", "members"),
    [
        ("image/png", "", {"input_filter": "$.a"}),
        ("image/png", "", {"join": "Input"}),
        ("image/png", "", {"output_filter": "$.a"}),
        (CSV, CSV, {"columns": ("a",)}),
        (LINES, LINES, {"columns": ("a",), "input_filter": "$.a"}),
        (CSV, PARQUET, {}),
        (PARQUET, PARQUET, {"join": "Input", "output_filter": "$.a.b"}),
        (PARQUET, PARQUET, {"join": "Input", "output_filter": "$[0]"}),
    ],
)
def test_what_cannot_be_processed_is_refused_before_any_work(
    content_type: str, accept: str, members: dict[str, Any]
) -> None:
    error = error_of(lambda: processing(content_type, accept, **members))
    assert error.code == "processing-unsupported"


IDS = InferenceIds("j", Span(object=0, number=2, start=0, stop=9), began=1_661_820_555.9)
TIME = "2022-08-30T00:49:15Z"
FIRST, SECOND = IDS.of(7), IDS.of(7, 1)
MEMBERS = f'"SageMakerInferenceId":"{FIRST}","SageMakerInferenceTime":"{TIME}"}}'


@pytest.mark.parametrize(
    ("content_type", "accept", "members", "record", "answer", "output"),
    [
        (CSV, CSV, {}, b"a,b", b"0\n", f"0,{FIRST},{TIME}"),
        (CSV, CSV, {}, b"a\nb", b"0\n1\n", f"0,{FIRST},{TIME}\n1,{SECOND},{TIME}"),
        (CSV, CSV, {"join": "Input"}, b"a,b", b"0", f"a,b,0,{FIRST},{TIME}"),
        (CSV, JSON, {"join": "Input"}, b"a,b", b'{"x":1}', f'a,b,"{{""x"":1}}",{FIRST},{TIME}'),
        (CSV, JSON, {"output_filter": "$.x"}, b"a", b'{"x":1}', f'{{"SageMakerOutput":1,{MEMBERS}'),
        (LINES, LINES, {}, b"{}", b'{"output": 0}\n', f'{{"output": 0,{MEMBERS}'),
        (LINES, LINES, {}, b"{}", b"{}", f"{{{MEMBERS}"),
        (JSON, JSON, {}, b"{}", b"[1, 2]", f'{{"SageMakerOutput":[1, 2],{MEMBERS}'),
        (
            LINES, LINES, {"join": "Input"}, b'{"n": 1}', b"0.5",
            f'{{"n": 1,"SageMakerOutput":0.5,{MEMBERS}',
        ),
    ],
)  # fmt: skip
def test_an_id_and_the_jobs_begin_are_the_last_of_what_is_written(
    content_type: str, accept: str, members: Any, record: bytes, answer: bytes, output: str
) -> None:
    """The forms of AWS's page on capture of transform jobs."""
    given = processing(content_type, accept, inference_ids=True, **members)
    assert not given.is_plain
    assert given.output(record, answer, 7, IDS).decode() == output


def test_each_line_of_an_answer_of_lines_has_its_own_id() -> None:
    given = processing(LINES, inference_ids=True)
    lines = given.output(b"{}", b'{"a":1}\n{"a":2}\n', 7, IDS).decode().split("\n")
    assert [line.count(one) for line, one in zip(lines, (FIRST, SECOND), strict=True)] == [1, 1]


def test_ids_are_of_the_job_its_begin_and_the_records_place() -> None:
    span = Span(object=0, number=2, start=0, stop=9)
    again = InferenceIds("j", span, began=1_661_820_555.9)
    assert again.of(7) == FIRST
    others = [
        InferenceIds("k", span, began=1_661_820_555.9),
        InferenceIds("j", span, began=1_661_820_556.0),
        InferenceIds("j", Span(object=1, number=2, start=0, stop=9), began=1_661_820_555.9),
        InferenceIds("j", Span(object=0, number=3, start=0, stop=9), began=1_661_820_555.9),
    ]
    assert len({FIRST, SECOND, IDS.of(8), *(one.of(7) for one in others)}) == 7


@pytest.mark.parametrize(
    ("content_type", "accept", "members"),
    [
        ("image/png", "image/png", {}),
        (JSON, "image/png", {}),
        (PARQUET, PARQUET, {}),
        (PARQUET, "", {}),
    ],
)
def test_what_has_no_place_for_an_id_is_refused(
    content_type: str, accept: str, members: Any
) -> None:
    error = error_of(lambda: processing(content_type, accept, inference_ids=True, **members))
    assert error.code == "processing-unsupported"
    assert "GenerateInferenceId is for outputs of text/csv, JSON or JSON Lines" in error.message
