"""Records into bodies and answers back: BatchStrategy and MaxPayloadInMB."""

from __future__ import annotations

from typing import Any

import pytest
from record_files import error_of

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import DataProcessing, TransformInput, TransformOutput, TransformSpec
from penstock.records.bodies import Bodies
from penstock.records.formats.frames import record_io_framed, tf_record_framed


def bodies(
    split: str = "Line", accept: str = "", content_type: str = "text/csv", **members: Any
) -> Bodies:
    return Bodies(
        TransformSpec(
            job="j",
            model=ModelSource(model_name="m"),
            instance_type="ml.local",
            instance_count=1,
            input=TransformInput(uri="file:///in", split=split, content_type=content_type),
            output=TransformOutput(uri="file:///out", accept=accept),
            **members,
        )
    )


def test_several_records_are_as_many_as_the_payload_may_have() -> None:
    given = bodies(payload_bytes_max=6)
    groups = list(given.grouped([b"a", b"bb", b"", b"cccccc", b"d"]))
    assert groups == [[b"a", b"bb", b""], [b"cccccc"], [b"d"]]
    assert [given.joined(group) for group in groups] == [b"a\nbb\n\n", b"cccccc", b"d"]


def test_a_single_record_is_a_body() -> None:
    for given in (bodies(strategy="SingleRecord"), bodies("None")):
        assert list(given.grouped([b"a", b"b"])) == [[b"a"], [b"b"]]
        assert given.joined([b"a"]) == b"a"
    for split in ("RecordIO", "TFRecord"):
        assert bodies(split, strategy="SingleRecord").joined([b"a"]) == b"a"


def test_frames_stand_around_several_records_again() -> None:
    """SageMaker removes padding from single records only."""
    records = [b"abc", b""]
    assert bodies("RecordIO").joined(records) == b"".join(map(record_io_framed, records))
    assert bodies("TFRecord").joined(records) == b"".join(map(tf_record_framed, records))
    assert bodies("RecordIO").joined([b"abc"]) == record_io_framed(b"abc")
    sizes = [len(g) for g in bodies("TFRecord", payload_bytes_max=40).grouped([b"abcd"] * 5)]
    assert sizes == [2, 2, 1]


def test_a_body_of_very_short_records_has_a_bounded_number_of_them() -> None:
    """One of 6 MB has three million digits, and what is kept of each takes a hundred bytes."""
    given = bodies("Line").grouped(b"0" for _ in range(2 * 65_536 + 1))
    assert [len(group) for group in given] == [65_536, 65_536, 1]


def test_a_record_over_the_payload_is_refused() -> None:
    for given in (bodies(payload_bytes_max=3), bodies("None", payload_bytes_max=3)):
        error = error_of(lambda g=given: list(g.grouped([b"abcd"])))
        assert error.code == "record-too-large"


@pytest.mark.parametrize(
    ("accept", "answer", "count", "expected"),
    [
        ("", b"1\n2\n", 2, [b"1", b"2"]),
        ("", b"1\n2", 2, [b"1", b"2"]),
        ("", b"1\r\n2\r\n", 2, [b"1", b"2"]),
        ("", b"1\n\n", 2, [b"1", b""]),
        ("", b"a\nb\n", 1, [b"a\nb"]),
        ("", b"", 1, [b""]),
        ("application/json", b"[1,[2]]", 2, [b"1", b"[2]"]),
        ("application/json", b'{"predictions": [\n1,\n2]}', 2, [b"1", b"2"]),
        ("application/json", b"[[2]]", 1, [b"[2]"]),
        ("application/json", b'{"predictions": [1]}', 1, [b"1"]),
        ("application/json", b'{"label": "a", "score": 1}\n', 1, [b'{"label": "a", "score": 1}']),
        ("application/json", b"[1,2]", 1, [b"[1,2]"]),
        ("application/jsonlines", b"[1,2]\n[3,4]\n", 2, [b"[1,2]", b"[3,4]"]),
        ("application/jsonlines", b"[1]\n", 1, [b"[1]"]),
    ],
)
def test_an_answer_to_several_records_has_one_for_each(
    accept: str, answer: bytes, count: int, expected: list[bytes]
) -> None:
    assert bodies(accept=accept).parted(answer, count) == expected


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", b"1\n2\n3\n"),
        ("", b""),
        ("", b"[1,2]"),
        ("application/json", b"[1]"),
        ("application/json", b"{}"),
        ("application/json", b'{"a":1,"b":[1,2]}'),
        ("application/json", b"[1,2"),
        ("application/jsonlines", b"[1,2]"),
    ],
)
def test_an_answer_to_more_or_fewer_records_is_the_models_error(accept: str, answer: bytes) -> None:
    assert error_of(lambda: bodies(accept=accept).parted(answer, 2)).code == "answers-miscounted"


def test_an_answer_for_each_record_is_needed_where_records_are_joined_or_filtered() -> None:
    assert not bodies().needs_parts
    assert bodies(processing=DataProcessing(join="Input")).needs_parts
    assert bodies(processing=DataProcessing(output_filter="$[0]")).needs_parts
    assert bodies(accept="application/x-parquet").needs_parts


def test_rows_of_parquet_are_lines_of_a_body() -> None:
    given = bodies("None", "application/x-parquet", "application/x-parquet")
    assert list(given.grouped([b"1", b"2"])) == [[b"1", b"2"]]
    assert given.joined([b"1", b"2"]) == b"1\n2\n"
    assert given.parted(b"[3,4]", 2) == [b"3", b"4"]


def test_where_a_job_asks_for_bodies_of_one_record_an_answer_is_as_it_is() -> None:
    for given in (
        bodies(accept="application/json", strategy="SingleRecord"),
        bodies("None", accept="application/json"),
    ):
        assert given.parted(b"[1]\n", 1) == [b"[1]"]
