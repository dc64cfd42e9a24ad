"""Parts and outputs: whole or not there, the same if done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_files import SETTINGS, error_of, one_object

from penstock.core.jobs.spec import InputObject, Span, TransformOutput, cut
from penstock.errors import CallerError
from penstock.records.output import assemble, check_writable
from penstock.records.parts import PartWriter, forget, part_summary

REFUSED = CallerError("bad", "not a number", hint="Send a number.").to_dict()


def written(parts: str, span: Span, output: TransformOutput, *answers: bytes | None) -> None:
    """A part with an output for each record, None standing for one that is refused."""
    writer = PartWriter(parts, span, output)
    for index, answer in enumerate(answers):
        if answer is None:
            writer.refuse(index, span.start + index, REFUSED)
        else:
            writer.write([answer])
    writer.commit()


Place = tuple[InputObject, tuple[Span, ...], str, TransformOutput]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    one, data = one_object(tmp_path / "in", b"a\nb\nc\nd\n", name="a b/ü.txt", split="Line")
    output = TransformOutput(uri=(tmp_path / "out").as_uri(), assemble="Line")
    return one, cut([one], data, 4), (tmp_path / "parts").as_uri(), output


def test_an_output_is_its_parts_in_order_and_errors_count_from_the_objects_start(
    tmp_path: Path, place: Place
) -> None:
    one, (first, second), parts, output = place
    written(parts, second, output, b"C", None)
    written(parts, first, output, None, b"B")
    assemble(one, (second, first), parts, output, SETTINGS)
    assert (tmp_path / "out/ü.txt.out").read_bytes() == b"B\nC\n"
    lines = (tmp_path / "out/ü.txt.errors").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"record": 0, "offset": 0, "error": REFUSED},
        {"record": 3, "offset": 5, "error": REFUSED},
    ]


def test_a_part_done_again_has_the_same_bytes(tmp_path: Path, place: Place) -> None:
    _, (first, _), parts, output = place
    written(parts, first, output, b"A", None)
    [part] = (tmp_path / "parts").iterdir()
    before = part.read_bytes()
    written(parts, first, output, b"A", None)
    assert [part.read_bytes() for part in (tmp_path / "parts").iterdir()] == [before]


def test_what_is_not_committed_is_not_there(tmp_path: Path, place: Place) -> None:
    one, (first, second), parts, output = place
    written(parts, first, output, b"A", b"B")
    writer = PartWriter(parts, second, output)
    writer.write([b"C"])
    assert part_summary(parts, 0, 1) is None
    assert error_of(lambda: assemble(one, (first, second), parts, output, SETTINGS)).code == (
        "part-missing"
    )
    writer.abandon()
    writer.abandon()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["000000-000000.part"]
    assert not list((tmp_path / "out").rglob("*.out"))


def test_the_summary_of_a_part_says_what_became_of_each_record(
    place: Place,
) -> None:
    _, (first, _), parts, output = place
    writer = PartWriter(parts, first, output)
    writer.write([b"A", b"BB"])
    writer.refuse(2, 7, REFUSED)
    writer.write([b"{}"], records=3)
    said = writer.commit()
    assert said == part_summary(parts, 0, 0)
    assert (said.records, said.refused, said.bytes_in, said.bytes_out) == (6, 1, 4, 8)


def test_assembling_nothing_stands_between_the_answers_unless_asked(
    tmp_path: Path, place: Place
) -> None:
    one, (first, _), parts, _ = place
    output = TransformOutput(uri=(tmp_path / "out").as_uri())
    written(parts, first, output, b"A", b"B")
    assemble(one, [first], parts, output, SETTINGS)
    assert (tmp_path / "out/ü.txt.out").read_bytes() == b"AB"
    assert not (tmp_path / "out/ü.txt.errors").exists()


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b"x" + b[1:], lambda b: b""])
def test_a_damaged_part_makes_no_output(
    tmp_path: Path,
    place: Place,
    change: object,
) -> None:
    one, (first, _), parts, output = place
    written(parts, first, output, b"A", None)
    [part] = (tmp_path / "parts").iterdir()
    part.write_bytes(change(part.read_bytes()))  # type: ignore[operator]
    assert error_of(lambda: assemble(one, [first], parts, output, SETTINGS)).code == "part-damaged"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix != ".errors"]


def test_errors_of_an_earlier_job_do_not_stay_beside_a_new_output(
    tmp_path: Path, place: Place
) -> None:
    one, (first, _), parts, output = place
    written(parts, first, output, None, b"B")
    assemble(one, [first], parts, output, SETTINGS)
    written(parts, first, output, b"A", b"B")
    assemble(one, [first], parts, output, SETTINGS)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ü.txt.out"]


def test_parts_are_forgotten_whole(tmp_path: Path, place: Place) -> None:
    _, (first, second), parts, output = place
    written(parts, first, output, b"A")
    PartWriter(parts, second, output).write([b"C"])
    forget(parts)
    forget(parts)
    assert not (tmp_path / "parts").exists()


def test_an_output_location_is_tried_before_any_work(tmp_path: Path) -> None:
    good = TransformOutput(uri=(tmp_path / "new/folder").as_uri())
    check_writable(good, SETTINGS)
    assert not list((tmp_path / "new/folder").iterdir())
    (tmp_path / "file").write_bytes(b"")
    bad = TransformOutput(uri=(tmp_path / "file/below").as_uri())
    assert error_of(lambda: check_writable(bad, SETTINGS)).code == "output-unwritable"
