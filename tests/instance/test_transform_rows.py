"""Spans through models of the instance's own process: full batches, answers in their order."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.kit import model_files
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until
from text_task_files import multi_head
from transform_spans import SpanJob, lines_job

from penstock.core.jobs.spec import INPUT, NONE, DataProcessing, Span, TransformCapture
from penstock.records.parts import part_path

LINES = "application/jsonlines"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("instance"), artifact={"isolation": False}) as running:
        yield running


def texts(count: int) -> list[str]:
    """Of one to twelve words."""
    rng = random.Random(7)
    return [
        " ".join(rng.choices(model_files.WORDS[2:], k=rng.randint(1, 12))) for _ in range(count)
    ]


def of_job(name: str = "j") -> dict[str, object]:
    """As a copy of a job is loaded: what it answers depends on the rows alone."""
    return {"endpoint": f"transform-job/{name}"}


def test_a_span_of_texts_is_answered_in_order_as_requests_are(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(1, model_files.classifier(tmp_path / "m"))
    lines = [json.dumps({"inputs": text}) for text in texts(300)]
    job = lines_job(tmp_path, lines)
    done = job.run(client, 1)
    assert done["ok"], done
    assert (done["records"], done["refused"]) == (300, 0)
    outputs = [json.loads(line) for line in job.outputs()]
    asked = [client.invoke(1, line.encode()).json for line in lines]
    assert [each[0]["label"] for each in outputs] == [each[0]["label"] for each in asked]
    for mine, theirs in zip(outputs, asked, strict=True):
        assert mine[0]["score"] == pytest.approx(theirs[0]["score"])


def test_a_window_and_a_batch_more_than_memory_needs_are_answered_too(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """Records of several windows, none of whose answers may get into another's place."""
    client = shared.client()
    client.load(2, model_files.classifier(tmp_path / "m"), **of_job())
    lines = texts(9000)
    job = lines_job(tmp_path, lines, content_type="text/plain")
    done = job.run(client, 2)
    assert (done["records"], done["refused"], done["run_s"] > 0) == (9000, 0, True)
    logits = np.array(model_files.WORD_LOGITS)
    places = {word: at for at, word in enumerate(model_files.WORDS)}
    sums = [sum(logits[places[word]] for word in line.split()) for line in lines]
    for output, (positive, negative) in zip(map(json.loads, job.outputs()), sums, strict=True):
        best = max(positive, negative)
        wanted = np.exp(best) / (np.exp(positive) + np.exp(negative))
        assert output[0]["score"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("copy", "content_type"), [(41, "text/plain"), (42, "text/csv")])
def test_answers_to_texts_are_lines_of_json_where_that_is_asked_for(
    shared: InstanceProcess, tmp_path: Path, copy: int, content_type: str
) -> None:
    client = shared.client()
    client.load(copy, model_files.classifier(tmp_path / "m"), **of_job())
    job = lines_job(tmp_path, ["good film", "bad"], content_type=content_type, accept=LINES)
    done = job.run(client, copy)
    assert (done["records"], done["refused"]) == (2, 0), done
    assert "positive" in job.outputs()[0]


def test_pairs_as_json_lines_are_answered_by_all_heads_without_a_list(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(3, multi_head(tmp_path / "m"), **of_job())["ok"]
    pairs = list(zip(texts(200), reversed(texts(200)), strict=True))
    lines = [json.dumps({"text": one, "text_pair": other}) for one, other in pairs]
    job = lines_job(tmp_path, lines, content_type=LINES)
    assert job.run(client, 3)["records"] == 200
    for line, output in zip(lines, job.outputs(), strict=True):
        asked = client.invoke(3, f'{{"inputs": {line}}}'.encode()).json
        mine = json.loads(output)
        assert mine["better"]["label"] == asked["better"]["label"]
        assert mine["gap"]["score"] == pytest.approx(asked["gap"]["score"])
        assert mine["mean-worth"] == pytest.approx(asked["mean-worth"])


def test_the_same_span_gives_the_same_bytes_and_spans_may_lie_otherwise(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """Bytes are the same for the same span. Where spans lie otherwise rows have other mates: the
    numbers are the same up to rounding, and the lines are in the same order."""
    client = shared.client()
    client.load(4, model_files.classifier(tmp_path / "m"), **of_job())
    job = lines_job(tmp_path, [json.dumps(text) for text in texts(5000)], content_type=LINES)
    parts = part_path(f"file://{tmp_path / 'parts'}", 0, 0)
    assert job.run(client, 4)["ok"]
    first = parts.read_bytes()
    parts.unlink()
    assert job.run(client, 4)["ok"]
    assert parts.read_bytes() == first
    whole = [json.loads(line) for line in job.outputs()]
    middle = job.one.size // 3
    spans = [
        Span(object=0, number=0, start=0, stop=middle),
        Span(object=0, number=1, start=middle, stop=job.one.size),
    ]
    records = [job.run(client, 4, span)["records"] for span in spans]
    assert sum(records) == 5000
    for mine, other in zip(map(json.loads, job.outputs(spans)), whole, strict=True):
        assert mine["label"] == other["label"]
        assert mine["score"] == pytest.approx(other["score"])


def test_records_that_can_not_be_read_are_refused_each_with_its_reason_and_place(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(5, model_files.classifier(tmp_path / "m"), **of_job())
    lines = ['"good film"', "not json", '{"inputs": 5}', "", '{"inputs": ["bad", "good"]}']
    job = lines_job(tmp_path, lines, content_type=LINES)
    done = job.run(client, 5)
    assert (done["records"], done["refused"]) == (5, 3)
    outputs = [json.loads(line) for line in job.outputs()]
    assert outputs[0]["label"] == "positive"
    assert [each["label"] for each in outputs[1]] == ["negative", "positive"]
    refused = job.refused()
    assert [each["error"]["code"] for each in refused] == ["bad-json", "bad-input", "bad-json"]
    assert [each["error"]["original_status"] for each in refused] == [400, 400, 400]
    assert [each["offset"] for each in refused] == [12, 21, 35]


@pytest.mark.parametrize(
    ("content_type", "good"),
    [(LINES, '"good film"'), ("application/json", '{"inputs": "good film"}'),
     ("text/plain", "good film"), ("text/csv", "good film")],
)  # fmt: skip
def test_records_that_are_not_utf_8_are_refused_and_the_others_answered(
    shared: InstanceProcess, tmp_path: Path, content_type: str, good: str
) -> None:
    client = shared.client()
    client.load(31, model_files.classifier(tmp_path / "m"), **of_job())
    try:
        job = lines_job(tmp_path, [], content_type=content_type)
        whole = good.encode()
        broken = whole.replace(b"good", b"\xe9\xff")
        (tmp_path / "data.jsonl").write_bytes(b"\n".join((whole, broken, whole)) + b"\n")
        done = job.run(client, 31)
        assert (done["ok"], done["records"], done["refused"]) == (True, 3, 1), done
        assert len(job.outputs()) == 2
        (refused,) = job.refused()
        assert (refused["record"], refused["offset"]) == (1, len(whole) + 1)
        assert refused["error"]["original_status"] == 400
        assert "UTF-8" in refused["error"]["message"]
    finally:
        client.control(op="unload", copy=31)


@pytest.mark.parametrize("split", ["RecordIO", "TFRecord"])
def test_an_object_of_another_split_type_fails_and_says_where(
    shared: InstanceProcess, tmp_path: Path, split: str
) -> None:
    client = shared.client()
    client.load(32, model_files.classifier(tmp_path / "m"), **of_job())
    try:
        job = lines_job(tmp_path, ['"good film"'] * 3, content_type=LINES)
        job = job.with_(input=replace(job.spec.input, split=split))
        done = job.run(client, 32)
        assert done["error"]["code"] == "record-unreadable", done
        assert "byte 0" in done["error"]["message"]
    finally:
        client.control(op="unload", copy=32)


def test_of_a_batch_that_fails_the_guilty_records_are_refused_and_the_others_answered(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """`picky` fails on a whole batch when one of its rows is out of range."""
    client = shared.client()
    client.load(6, model_files.picky(tmp_path / "m"), **of_job())
    rows = [at % 4 for at in range(1000)]
    rows[17], rows[600], rows[601] = 99, -50, 77
    job = lines_job(tmp_path, map(str, rows), content_type=LINES)
    done = job.run(client, 6)
    assert (done["records"], done["refused"]) == (1000, 3)
    outputs = [json.loads(line) for line in job.outputs()]
    assert outputs == [10.0 + row for row in rows if row in range(4)]
    assert [each["error"]["code"] for each in job.refused()] == ["model-failed"] * 3


@pytest.mark.parametrize(
    ("content_type", "accept", "lines", "outputs"),
    [
        # a line is a row: its answer is a line, whatever the format
        ("text/csv", "", ["1,0,0,2", "0,0,0,0"], ["9.0,10.5,12.0", "0.0,0.0,0.0"]),
        ("text/csv", "application/json", ["1,0,0,2"], ["[9.0,10.5,12.0]"]),
        (LINES, LINES, ["[1,0,0,2]", "[0,0,0,1]"], ["[9.0,10.5,12.0]", "[4.5,5.0,5.5]"]),
        # one that can't be read does not spoil the others
        (LINES, "", ["[1,0,0,2]", "[1,0]", "[0,0,0,1]"], ["[9.0,10.5,12.0]", "[4.5,5.0,5.5]"]),
        # a whole body of its own in each line
        ("application/json", "", ["[[1,0,0,2]]"], ['{"predictions":[[9.0,10.5,12.0]]}']),
        (
            "application/json",
            "",
            ["[[1,0,0,2],[0,0,0,1]]", "[[0,0,0,0]]"],
            [
                '{"predictions":[[9.0,10.5,12.0],[4.5,5.0,5.5]]}',
                '{"predictions":[[0.0,0.0,0.0]]}',
            ],
        ),
    ],
)
def test_tensors_are_answered_in_the_format_that_is_asked_for(
    shared: InstanceProcess,
    tmp_path: Path,
    content_type: str,
    accept: str,
    lines: list[str],
    outputs: list[str],
) -> None:
    client = shared.client()
    client.load(7, model_files.affine(tmp_path / "m"), **of_job())
    try:
        job = lines_job(tmp_path, lines, content_type=content_type, accept=accept)
        done = job.run(client, 7)
        assert done["ok"], done
        assert job.outputs() == outputs
    finally:
        client.control(op="unload", copy=7)


def test_without_assembly_answers_follow_each_other_as_those_of_requests_would(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(27, model_files.affine(tmp_path / "m"), **of_job())
    lines = ["1,2,3,4", "4,3,2,1", "0,0,0,1"]
    asked = [client.invoke(27, f"{one}\n".encode(), content_type="text/csv").body for one in lines]
    job = lines_job(tmp_path, lines, content_type="text/csv", accept="text/csv")
    job = job.with_(output=replace(job.spec.output, assemble=NONE))
    assert job.run(client, 27)["records"] == 3
    assert job.outputs() == b"".join(asked).decode().splitlines()


def test_a_graph_that_insists_on_its_batch_size_gets_full_batches(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(14, model_files.affine(tmp_path / "m", runtime="onnxruntime", rows=4))["ok"]
    job = lines_job(tmp_path, [f"{at},0,0,0" for at in range(10)], content_type="text/csv")
    assert job.run(client, 14)["refused"] == 0
    assert job.outputs() == [f"0.0,{at / 2},{float(at)}" for at in range(10)]


def test_a_text_graph_that_insists_on_rows_and_tokens_gets_both(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    folder = model_files.classifier(tmp_path / "m", runtime="onnxruntime")
    graph = onnx.load(str(folder / "model.onnx"))
    for each in graph.graph.input:
        for dimension, size in zip(each.type.tensor_type.shape.dim, (4, 6), strict=True):
            dimension.dim_value = size
    onnx.save(graph, str(folder / "model.onnx"))
    client.serve(15, folder)
    lines = texts(30)  # some are longer than six tokens: they are cut
    job = lines_job(tmp_path, lines, content_type="text/plain")
    assert job.run(client, 15)["refused"] == 0
    for line, output in zip(lines, map(json.loads, job.outputs()), strict=True):
        (asked,) = client.invoke(15, line.encode(), content_type="text/plain").json
        assert output[0]["label"] == asked["label"]
        assert output[0]["score"] == pytest.approx(asked["score"])


def test_rows_of_several_shapes_share_a_window_but_no_batch(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(8, model_files.row_sums(tmp_path / "m"), **of_job())
    rows = [[float(at)] * (1 + at % 3) for at in range(30)]
    job = lines_job(tmp_path, map(json.dumps, rows), content_type=LINES)
    assert job.run(client, 8)["refused"] == 0
    outputs = [json.loads(line) for line in job.outputs()]
    assert [each["sum"] for each in outputs] == [sum(row) for row in rows]
    assert [each["twice"] for each in outputs] == [[2 * cell for cell in row] for row in rows]


def test_a_record_and_its_answer_are_joined_and_a_column_is_selected(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(9, model_files.classifier(tmp_path / "m"), **of_job())
    lines = [json.dumps({"id": at, "title": text}) for at, text in enumerate(texts(50))]
    lines[20] = json.dumps({"id": 20})
    processing = DataProcessing(input_filter="$.title", join=INPUT)
    job = lines_job(tmp_path, lines, content_type=LINES, processing=processing)
    done = job.run(client, 9)
    assert (done["records"], done["refused"]) == (50, 1)
    outputs = [json.loads(line) for line in job.outputs()]
    assert [each["id"] for each in outputs] == [at for at in range(50) if at != 20]
    assert all(each["SageMakerOutput"]["label"] in ("positive", "negative") for each in outputs)
    assert job.refused()[0]["error"]["code"] == "record-invalid"


def test_each_row_has_an_id_whatever_its_window_and_its_batch(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(23, model_files.row_sums(tmp_path / "m"), **of_job())
    capture = TransformCapture(uri="file:///never", inference_ids=True)
    rows = [[float(at)] * (1 + at % 3) for at in range(30)]
    job = lines_job(tmp_path, map(json.dumps, rows), content_type=LINES, capture=capture)
    written = []
    for _ in range(2):
        done = client.control(**job.call(23) | {"began": 1_661_820_555.0})
        assert (done["records"], done["refused"]) == (30, 0)
        written.append([json.loads(line) for line in job.outputs()])
    assert written[0] == written[1]
    assert [each["sum"] for each in written[0]] == [sum(row) for row in rows]
    assert len({each["SageMakerInferenceId"] for each in written[0]}) == 30
    assert {each["SageMakerInferenceTime"] for each in written[0]} == {"2022-08-30T00:49:15Z"}


# ends


def long_job(folder: Path) -> SpanJob:
    """Longer than any test waits for."""
    line = json.dumps({"inputs": "good film " * 5}) + "\n"
    job = lines_job(folder, [])
    (folder / "data.jsonl").write_text(line * 400_000)
    return job


def is_empty(folder: Path) -> bool:
    return not folder.exists() or not any(folder.iterdir())


def test_a_job_that_is_stopped_leaves_nothing_and_the_copy_goes_on(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client, other = shared.client(), shared.client()
    client.load(10, model_files.classifier(tmp_path / "m"), **of_job())
    job = long_job(tmp_path)
    ident = client.begin_control(**job.call(10))
    progress = client.event("transform-progress")
    assert progress["job"] == "j"
    assert (progress["object"], progress["span"], progress["refused"]) == (0, 0, 0)
    while client.event("transform-progress")["records"] <= progress["records"]:
        pass  # it grows
    assert other.control(op="transform-stop", job="another")["count"] == 0
    assert other.control(op="transform-stop", job="j") == {"ok": True, "count": 1}
    error = client.result(ident)["error"]
    assert (error["family"], error["code"]) == ("not-now", "transform-stopped")
    assert is_empty(tmp_path / "parts")
    small = lines_job(tmp_path / "small", ['{"inputs": "good"}'])
    assert small.run(client, 10)["records"] == 1


def test_a_span_ends_with_the_connection_that_asked_for_it_and_may_be_asked_for_again(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client, gone = shared.client(), shared.client()
    client.load(11, model_files.classifier(tmp_path / "m"), **of_job())
    job = long_job(tmp_path)
    gone.begin_control(**job.call(11))
    gone.event("transform-progress")
    refused = job.run(client, 11)
    assert refused["error"]["code"] == "transform-span-running"
    gone.close()
    wait_until(lambda: is_empty(tmp_path / "parts"), "the draft of the part is gone")
    small = lines_job(tmp_path / "small", ['{"inputs": "good"}'])
    wait_until(lambda: small.run(client, 11).get("records") == 1, "the span is over")


def test_a_copy_that_is_unloaded_ends_its_spans_first(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client, other = shared.client(), shared.client()
    client.load(12, model_files.classifier(tmp_path / "m"), **of_job())
    ident = client.begin_control(**long_job(tmp_path).call(12))
    client.event("transform-progress")
    assert other.control(op="unload", copy=12)["found"]
    assert client.result(ident)["error"]["code"] == "transform-copy-ending"
    assert is_empty(tmp_path / "parts")


def test_an_instance_that_is_told_to_end_ends_its_spans(tmp_path: Path) -> None:
    with instance(tmp_path / "i", artifact={"isolation": False}) as running:
        client = running.client()
        client.load(1, model_files.classifier(tmp_path / "m"), **of_job())
        client.begin_control(**long_job(tmp_path).call(1))
        client.event("transform-progress")
        os.kill(running.process.pid, signal.SIGTERM)
        assert running.process.wait(20) == 0
    assert is_empty(tmp_path / "parts")


# calls that can't be


def test_what_is_asked_for_is_checked(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    client.load(13, model_files.classifier(tmp_path / "m"), **of_job())
    job = lines_job(tmp_path, ['{"inputs": "good"}'])

    def code(**fields: object) -> str:
        return str(client.control(**(job.call(13) | fields))["error"]["code"])

    assert code(copy=999) == "unknown-copy"
    assert code(span={"object": 0}) == "bad-control-call"
    assert code(spec=None) == "bad-control-call"
    bad = job.with_(processing=DataProcessing(input_filter="$.a["))
    assert bad.run(client, 13)["error"]["code"] == "filter-invalid"
    assert client.control(op="transform-stop")["error"]["code"] == "bad-control-call"
    numpy = lines_job(tmp_path / "npy", ['{"inputs": "good"}'], accept="application/x-npy")
    answered = numpy.run(client, 13)["error"]
    assert (answered["code"], answered["family"]) == ("not-acceptable", "caller")
    changed = job.call(13)
    (tmp_path / "data.jsonl").write_text("another text\n")
    assert client.control(**changed)["error"]["code"] == "input-changed"
    assert is_empty(tmp_path / "parts")
