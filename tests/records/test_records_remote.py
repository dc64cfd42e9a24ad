"""Buckets and URLs: reading from anywhere in an object's one version, and outputs put there."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_files import SETTINGS, blocks_of, error_of, records_of, write
from tests.kit.object_server import ObjectServer

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import DataProcessing, Span, TransformInput, TransformOutput, cut
from penstock.errors import CallerError
from penstock.records.filters import Processing
from penstock.records.objects.objects import list_objects
from penstock.records.output import assemble, check_apart, check_writable, place_of
from penstock.records.parts import PartWriter

LINES = [b"line %d" % number for number in range(5000)]
CONTENT = b"\n".join(LINES) + b"\n"


def data_in(store: ObjectServer, content: bytes = CONTENT, key: str = "in/a b") -> TransformInput:
    store.objects[f"/bucket/{key}"] = content
    return TransformInput(uri=f"s3://bucket/{key}", split="Line")


def test_spans_of_an_object_in_a_bucket_have_its_lines_once(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    data = data_in(store)
    [one] = list_objects(data, s3)
    assert records_of(one, data, span_bytes=10_000, settings=s3) == LINES


def test_of_a_large_object_a_span_is_read_and_little_more(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    """In ranges, the next asked for while one is worked on; what lies behind is not fetched."""
    data = data_in(store, b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 200_000)
    [one] = list_objects(data, s3)
    store.requests.clear()
    span = Span(object=0, number=0, start=0, stop=10_000_000)
    blocks = blocks_of(one, span, data, settings=s3)
    assert sum(len(block.records) for block in blocks) == 100_000
    assert max(len(block.raw) for block in blocks) < 1_000_000
    assert len(store.requests) == 3  # the span ends where a line does
    store.requests.clear()
    span = Span(object=0, number=1, start=50, stop=150)
    assert [block.records for block in blocks_of(one, span, data, settings=s3)] == [[b"y" * 99]]
    assert len(store.requests) == 2


def test_an_object_of_a_bucket_that_changes_is_refused_at_once(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    data = data_in(store)
    [one] = list_objects(data, s3)
    store.objects["/bucket/in/a b"] = CONTENT[::-1]
    assert error_of(lambda: records_of(one, data, settings=s3)).code == "input-changed"
    del store.objects["/bucket/in/a b"]
    assert error_of(lambda: records_of(one, data, settings=s3)).code == "input-not-found"


def test_an_object_that_changes_between_two_ranges_is_refused(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    data = data_in(store, (b"y" * 99 + b"\n") * 100_000)
    [one] = list_objects(data, s3)

    def change(path: str) -> None:
        if sum(request.startswith("GET /bucket/in") for request in store.requests) > 1:
            store.objects["/bucket/in/a b"] = (b"z" * 99 + b"\n") * 100_000

    store.before = change
    assert error_of(lambda: records_of(one, data, settings=s3)).code == "input-changed"


def test_a_store_that_fails_is_not_the_callers_fault(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    data = data_in(store)
    [one] = list_objects(data, s3)
    store.status = 403
    assert error_of(lambda: records_of(one, data, settings=s3)).code == "artifact-access-denied"


def test_an_object_behind_a_url_is_read_in_one_go_and_nothing_stays_of_it(
    store: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store.objects["/a.txt"] = CONTENT
    data = TransformInput(uri=f"{store.url}/a.txt", split="Line")
    [one] = list_objects(data, SETTINGS)
    assert len(cut([one], data, 10)) == 1
    assert records_of(one, data) == LINES
    assert not list(tmp_path.glob("penstock-*"))
    store.objects["/a.txt"] = CONTENT[::-1]
    assert error_of(lambda: records_of(one, data)).code == "input-changed"
    assert not list(tmp_path.glob("penstock-*"))


def test_an_output_in_a_bucket_is_there_whole_or_not_at_all(
    store: ObjectServer, s3: ArtifactSettings, tmp_path: Path
) -> None:
    """Also one of several parts; an earlier job's errors go."""
    data = data_in(store, b"a\nb\n")
    [one] = list_objects(data, s3)
    output = TransformOutput(uri="s3://bucket/out/", assemble="Line")
    parts = (tmp_path / "parts").as_uri()
    spans = cut([one], data, 2)
    answer = b"x" * 9_000_000
    for span in spans:
        writer = PartWriter(parts, span, output)
        writer.write([answer])
        writer.commit()
    store.objects["/bucket/out/a b.errors"] = b"old"
    assemble(one, spans, parts, output, s3)
    written = {name for name in store.objects if name.startswith("/bucket/out")}
    assert written == {"/bucket/out/a b.out"}
    assert store.objects["/bucket/out/a b.out"] == (answer + b"\n") * 2
    store.objects.pop("/bucket/out/a b.out")
    [part] = (tmp_path / "parts").glob("*-000001.part")
    part.write_bytes(b"!" + part.read_bytes()[1:])
    assert error_of(lambda: assemble(one, spans, parts, output, s3)).code == "part-damaged"
    assert {name for name in store.objects if name.startswith("/bucket/out")} == set()
    assert store.parts == {}  # nor is an upload left open


def test_an_empty_output_is_an_empty_object(store: ObjectServer, s3: ArtifactSettings) -> None:
    place = place_of(TransformOutput(uri="s3://bucket"), s3)
    for pieces in ([], [b""]):
        store.objects.clear()
        place.put("a b/ü.out", pieces)
        assert store.objects == {"/bucket/a b/ü.out": b""}
    place.remove("a b/ü.out")
    place.remove("gone")
    assert store.objects == {}


def test_a_bucket_is_tried_out_before_any_work(store: ObjectServer, s3: ArtifactSettings) -> None:
    output = TransformOutput(uri="s3://bucket/out")
    check_writable(output, s3)
    assert not store.objects
    store.status = 403
    assert error_of(lambda: check_writable(output, s3)).code == "output-unwritable"
    error = error_of(lambda: check_writable(TransformOutput(uri="https://h/out"), s3))
    assert error.code == "output-scheme"


def test_an_output_does_not_follow_links_out_of_its_place(tmp_path: Path) -> None:
    write(tmp_path, {"other/x": b"x", "out/a.out": b""})
    (tmp_path / "out/sub").symlink_to(tmp_path / "other")
    place = place_of(TransformOutput(uri=(tmp_path / "out").as_uri()), SETTINGS)
    error = error_of(lambda: place.put("sub/y.out", [b"y"]))
    assert (error.code, sorted(p.name for p in (tmp_path / "other").iterdir())) == (
        "output-unwritable", ["x"],
    )  # fmt: skip
    (tmp_path / "out/a.out").unlink()
    (tmp_path / "out/a.out").symlink_to(tmp_path / "other/x")
    place.put("a.out", [b"new"])
    assert (tmp_path / "other/x").read_bytes() == b"x"
    assert (tmp_path / "out/a.out").read_bytes() == b"new"


def test_what_fails_while_an_output_is_made_leaves_the_old_one(tmp_path: Path) -> None:
    def pieces() -> object:
        yield b"half"
        raise CallerError("x", "x", hint="x")

    place = place_of(TransformOutput(uri=tmp_path.as_uri()), SETTINGS)
    place.put("a.out", [b"old"])
    assert error_of(lambda: place.put("a.out", pieces())).code == "x"  # type: ignore[arg-type]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.out", b"old")]


def test_an_output_may_not_take_the_place_of_what_is_read(
    tmp_path: Path, store: ObjectServer, s3: ArtifactSettings
) -> None:
    """Reading a folder and writing into it is well as long as no name meets another."""
    uri = write(tmp_path / "in", {"a": b"", "b/a.out": b"", "b/b": b""})
    (tmp_path / "link").symlink_to(tmp_path / "in")
    objects = list_objects(TransformInput(uri=uri), SETTINGS)
    check_apart(objects, TransformOutput(uri=uri), SETTINGS)
    for place in (f"{uri}/b", (tmp_path / "link/b").as_uri()):
        output = TransformOutput(uri=place)
        error = error_of(lambda o=output: check_apart(objects, o, SETTINGS))
        assert error.code == "output-over-input"
    store.objects |= {"/bucket/in/a": b"", "/bucket/in/a.errors": b""}
    objects = list_objects(TransformInput(uri="s3://bucket/in/"), s3)
    check_apart(objects, TransformOutput(uri="s3://bucket/out"), s3)
    error = error_of(lambda: check_apart(objects, TransformOutput(uri="s3://bucket/in"), s3))
    assert error.code == "output-over-input"


def test_gzip_and_parquet_of_a_bucket_and_a_table_put_there(
    store: ObjectServer, s3: ArtifactSettings, tmp_path: Path
) -> None:
    store.objects["/bucket/in/z"] = gzip.compress(CONTENT)
    data = TransformInput(uri="s3://bucket/in/z", split="Line", compression="Gzip")
    [one] = list_objects(data, s3)
    assert records_of(one, data, settings=s3) == LINES

    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(1000))}), buffer, row_group_size=300)
    store.objects["/bucket/in/t"] = buffer.getvalue()
    data = TransformInput(uri="s3://bucket/in/t", content_type="application/x-parquet")
    output = TransformOutput(uri="s3://bucket/out", accept="application/x-parquet")
    processing = DataProcessing(join="Input")
    [one] = list_objects(data, s3)
    spans = cut([one], data, 1000)
    for span in spans:
        writer = PartWriter(tmp_path.as_uri(), span, output)
        made = Processing(processing, data, output)
        for block in blocks_of(one, span, data, settings=s3):
            writer.write([made.output(record, b"0.5") for record in block.records])
        writer.commit()
    assemble(one, spans, tmp_path.as_uri(), output, s3, processing=processing)
    written = pq.read_table(io.BytesIO(store.objects["/bucket/out/t.out"]))
    assert written.to_pydict() == {"id": list(range(1000)), "SageMakerOutput": [0.5] * 1000}
