"""Spans through models whose bodies only they can read: Python code and foreign servers."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import model_files
from tests.kit.instances import FrameClient, InstanceProcess, instance
from transform_spans import SpanJob, lines_job

from penstock.core.jobs.spec import (
    INPUT,
    MULTI_RECORD,
    NONE,
    SINGLE_RECORD,
    DataProcessing,
    TransformCapture,
    TransformInput,
)

#: Answers each line of its body; a line may make it fail or die.
LINES = """
import json, os
def model_fn(model_dir):
    return None
def input_fn(data, content_type):
    return [json.loads(line) for line in data.splitlines()]
def predict_fn(rows, model):
    for row in rows:
        if row.get("die"):
            os.kill(os.getpid(), 9)
        if row.get("fail"):
            raise ValueError(f"no such luck with {row['n']}")
    return [{"twice": 2 * row["n"]} for row in rows]
def output_fn(answers, accept):
    return "".join(json.dumps(each) + "\\n" for each in answers)
"""

#: Sums its body, however many lines it has: no answer for each.
SUMS = LINES.replace(
    'return [{"twice": 2 * row["n"]} for row in rows]',
    'return [{"sum": sum(row["n"] for row in rows)}]',
)


#: One object of JSON for the whole body, as models without code of their own answer.
PREDICTIONS = LINES.replace(
    'return "".join(json.dumps(each) + "\\n" for each in answers)',
    'return json.dumps({"predictions": [each["twice"] for each in answers]})',
)


def sleeping(seconds: str) -> str:
    """`seconds` may speak of the rows."""
    before = f"    import time; time.sleep({seconds})\n"
    return LINES.replace("    for row in rows:", before + "    for row in rows:")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("instance"), artifact={"isolation": False}) as running:
        yield running


def numbers(folder: Path, count: int, *special: dict[str, object], **fields: object) -> SpanJob:
    """Lines of n from 0 on; those in `special` have more in them."""
    more = {each["n"]: each for each in special}
    lines = [json.dumps({"n": n} | more.get(n, {})) for n in range(count)]
    return lines_job(folder, lines, content_type="application/jsonlines", **fields)


def twice(*besides: int, count: int) -> list[dict[str, int]]:
    return [{"twice": 2 * n} for n in range(count) if n not in besides]


def test_records_share_bodies_and_are_answered_line_by_line(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(1, model_files.code(tmp_path / "m", LINES))["ok"]
    # 100 lines of 8 to 9 bytes in bodies of 64: several bodies, each of several records
    job = numbers(tmp_path, 100, payload_bytes_max=64)
    done = job.run(client, 1)
    assert done["ok"], done
    assert (done["records"], done["refused"]) == (100, 0)
    assert [json.loads(line) for line in job.outputs()] == twice(count=100)


def test_an_answer_that_has_no_part_for_each_record_is_written_whole(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(2, model_files.code(tmp_path / "m", SUMS))["ok"]
    whole = numbers(tmp_path / "whole", 10)
    done = whole.run(client, 2)
    assert (done["records"], done["refused"]) == (10, 0)
    assert [json.loads(line) for line in whole.outputs()] == [{"sum": 45}]
    single = numbers(tmp_path / "single", 10, strategy=SINGLE_RECORD)
    assert single.run(client, 2)["records"] == 10
    assert [json.loads(line)["sum"] for line in single.outputs()] == list(range(10))


def test_answers_are_written_as_the_model_returned_them_however_many_records_they_answer(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """One record or several share a body, by its size, by its place at the end, or because another
    one of it failed: the shape is the model's own."""
    client = shared.client()
    assert client.load(31, model_files.code(tmp_path / "m", PREDICTIONS))["ok"]
    job = numbers(
        tmp_path, 25, {"n": 7, "fail": 1}, accept="application/json", payload_bytes_max=64
    )
    assert job.run(client, 31)["records"] == 25
    answers = [json.loads(line) for line in job.outputs()]
    assert all(list(each) == ["predictions"] for each in answers)
    counts = {len(each["predictions"]) for each in answers}
    assert 1 in counts, "one record alone in its body"
    assert len(counts) > 1, "and several together"
    assert [n for each in answers for n in each["predictions"]] == [
        2 * n for n in range(25) if n != 7
    ]


@pytest.mark.parametrize("strategy", [SINGLE_RECORD, MULTI_RECORD])
def test_without_assembly_bytes_follow_each_other_as_the_model_returned_them(
    shared: InstanceProcess, tmp_path: Path, strategy: str
) -> None:
    client = shared.client()
    copy = 34 if strategy == SINGLE_RECORD else 35
    assert client.load(copy, model_files.code(tmp_path / "m", LINES))["ok"]
    job = numbers(tmp_path, 12, strategy=strategy, payload_bytes_max=32)
    job = job.with_(output=replace(job.spec.output, assemble=NONE))
    assert job.run(client, copy)["records"] == 12
    assert [json.loads(line) for line in job.outputs()] == twice(count=12)


def test_a_record_alone_in_its_body_is_joined_as_those_in_company_are(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(33, model_files.code(tmp_path / "m", PREDICTIONS))["ok"]
    job = numbers(
        tmp_path, 25, {"n": 7, "fail": 1},
        accept="application/json", payload_bytes_max=64, processing=DataProcessing(join=INPUT),
    )  # fmt: skip
    assert job.run(client, 33)["records"] == 25
    outputs = [json.loads(line) for line in job.outputs()]
    assert outputs == [{"n": n, "SageMakerOutput": 2 * n} for n in range(25) if n != 7]


def test_rows_of_parquet_that_are_too_large_are_refused_and_the_others_answered(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """A small file of 300 rows, each third of which says a text of 300 kB."""
    client = shared.client()
    assert client.load(36, model_files.code(tmp_path / "m", LINES))["ok"]
    texts = ["x" * 300_000 if n % 3 == 0 else "x" for n in range(300)]
    pq.write_table(pa.table({"n": list(range(300)), "text": texts}), tmp_path / "rows.parquet")
    job = numbers(tmp_path / "job", 1, payload_bytes_max=100_000)
    asked = TransformInput(
        uri=(tmp_path / "rows.parquet").as_uri(), content_type="application/x-parquet"
    )
    output = replace(job.spec.output, accept="application/jsonlines")
    job = job.with_(input=asked, output=output)
    done = job.run(client, 36)
    assert (done["records"], done["refused"]) == (300, 100), done
    assert [json.loads(line) for line in job.outputs()] == [
        {"twice": 2 * n} for n in range(300) if n % 3
    ]
    assert {each["error"]["code"] for each in job.refused()} == {"record-too-large"}
    assert [each["record"] for each in job.refused()] == list(range(0, 300, 3))


def test_records_that_fail_are_refused_with_the_models_words_and_no_others(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(3, model_files.code(tmp_path / "m", LINES))["ok"]
    job = numbers(tmp_path, 60, {"n": 7, "fail": 1}, {"n": 31, "fail": 1})
    done = job.run(client, 3)
    assert (done["records"], done["refused"]) == (60, 2)
    assert [json.loads(line) for line in job.outputs()] == twice(7, 31, count=60)
    assert [each["error"]["message"] for each in job.refused()] == [
        "ValueError: no such luck with 7",
        "ValueError: no such luck with 31",
    ]


def test_a_record_that_kills_its_worker_is_refused_and_no_other(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(4, model_files.code(tmp_path / "m", LINES))["ok"]
    job = numbers(tmp_path, 20, {"n": 13, "die": 1})
    done = job.run(client, 4)
    assert (done["records"], done["refused"]) == (20, 1)
    assert [json.loads(line) for line in job.outputs()] == twice(13, count=20)
    (refused,) = job.refused()
    assert refused["error"]["code"] == "model-worker-died"


def test_what_is_joined_is_the_record_and_its_own_answer(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(5, model_files.code(tmp_path / "m", LINES))["ok"]
    processing = DataProcessing(join=INPUT)
    job = numbers(tmp_path, 30, {"n": 3, "fail": 1}, processing=processing)
    done = job.run(client, 5)
    assert (done["records"], done["refused"]) == (30, 1)
    outputs = [json.loads(line) for line in job.outputs()]
    assert outputs == [{"n": n, "SageMakerOutput": {"twice": 2 * n}} for n in range(30) if n != 3]


def test_each_record_of_a_body_has_an_id_and_the_same_one_again(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(37, model_files.code(tmp_path / "m", LINES))["ok"]
    capture = TransformCapture(uri="file:///never", inference_ids=True)
    job = numbers(tmp_path, 30, {"n": 3, "fail": 1}, payload_bytes_max=64, capture=capture)
    written = []
    for _ in range(2):
        assert client.control(**job.call(37) | {"began": 1_661_820_555.0})["refused"] == 1
        written.append([json.loads(line) for line in job.outputs()])
    assert written[0] == written[1]
    assert len({each.pop("SageMakerInferenceId") for each in written[0]}) == 29
    assert {each.pop("SageMakerInferenceTime") for each in written[0]} == {"2022-08-30T00:49:15Z"}
    assert written[0] == twice(3, count=30)


def test_a_worker_that_is_killed_costs_no_record(shared: InstanceProcess, tmp_path: Path) -> None:
    client, other = shared.client(), shared.client()
    slow = sleeping("0.01")
    assert client.load(6, model_files.code(tmp_path / "m", slow))["ok"]
    job = numbers(tmp_path, 300, strategy=SINGLE_RECORD)
    ident = client.begin_control(**job.call(6))
    assert client.event("transform-progress")["records"] < 300
    (copy,) = [each for each in other.control(op="status")["copies"] if each["copy"] == 6]
    os.kill(copy["workers"][0]["pid"], signal.SIGKILL)
    done = client.result(ident)
    assert (done["records"], done["refused"]) == (300, 0)
    assert [json.loads(line) for line in job.outputs()] == twice(count=300)


def test_a_stopped_job_gives_its_bodies_up(shared: InstanceProcess, tmp_path: Path) -> None:
    client, other = shared.client(), shared.client()
    hangs = sleeping("600")
    assert client.load(7, model_files.code(tmp_path / "m", hangs))["ok"]
    ident = client.begin_control(**numbers(tmp_path, 10).call(7))
    client.event("transform-progress")
    assert other.control(op="transform-stop", job="j")["count"] == 1
    assert client.result(ident)["error"]["code"] == "transform-stopped"
    (copy,) = [each for each in other.control(op="status")["copies"] if each["copy"] == 7]
    assert copy["unanswered"] == 0
    assert not list((tmp_path / "parts").iterdir())
    other.control(op="unload", copy=7, drain_s=0)


#: Tells how many requests it has seen at once; some are failed a number of times first.
SERVER = """
import json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
lock, now, most, failures = threading.Lock(), 0, 0, {}
together = int(os.environ.get("TOGETHER", 1))  # so many are waited for, the first time
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/execution-parameters":
            told = os.environ.get("PARAMETERS", "")
            return self.answer(200 if told else 404, told.encode())
        self.answer(200, b"")
    def do_POST(self):
        global now, most
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock:
            now += 1
            most = max(most, now)
        until = time.monotonic() + 20
        while most < together and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(0.05)  # in which more could come
        with lock:
            now -= 1
            left = failures.setdefault(asked["n"], asked.get("fails", 0))
            failures[asked["n"]] -= left > 0
        if left:
            return self.answer(asked.get("status", 503), b"not well")
        self.answer(200, json.dumps({"twice": 2 * asked["n"], "most": most}).encode())
    def log_message(self, *a): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(folder: Path, *, lanes: int = 1, **environment: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "{model_dir}/server.py", "{port}"]
    return model_files.describe(
        folder, runtime="process", task="payload", command=command, lanes=lanes,
        environment=environment,
    )  # fmt: skip


def most_at_once(job: SpanJob) -> int:
    return int(max(json.loads(line)["most"] for line in job.outputs()))


@pytest.mark.parametrize(
    ("told", "asked", "most"),
    [
        ("", 0, 1),  # a container that says nothing is asked one thing at a time
        ('{"MaxConcurrentTransforms": 3, "BatchStrategy": "SINGLE_RECORD"}', 0, 3),
        ('{"MaxConcurrentTransforms": 3}', 2, 2),  # the job says otherwise
        ("nonsense", 0, 1),
    ],
)
def test_a_container_is_asked_as_many_bodies_at_once_as_it_or_the_job_says(
    shared: InstanceProcess, tmp_path: Path, told: str, asked: int, most: int
) -> None:
    client = shared.client()
    try:
        assert client.load(8, server(tmp_path / "m", lanes=4, PARAMETERS=told, TOGETHER=str(most)))[
            "ok"
        ]
        job = numbers(tmp_path, 12, strategy=SINGLE_RECORD, concurrency_max=asked)
        assert job.run(client, 8)["records"] == 12
        assert most_at_once(job) == most
    finally:
        client.control(op="unload", copy=8)


def sent(client: FrameClient, copy: int) -> int:
    """Requests that a copy was asked."""
    copies = client.control(op="status")["copies"]
    return int(next(each for each in copies if each["copy"] == copy)["requests"])


def test_a_container_says_how_bodies_are_made_where_the_job_does_not(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    told = '{"BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 1}'
    try:
        assert client.load(8, server(tmp_path / "m", PARAMETERS=told))["ok"]
        job = numbers(tmp_path, 5, unset=("strategy", "payload_bytes_max"))
        done = job.run(client, 8)
        assert (done["records"], done["refused"], len(job.outputs())) == (5, 0, 5)
        assert sent(client, 8) == 5  # each by itself: none had to be found out by halving
        large = {"n": 1, "more": "x" * 1_200_000}
        job = numbers(tmp_path / "large", 3, large, unset=("payload_bytes_max",))
        assert job.run(client, 8)["error"]["code"] == "record-too-large"
        assert numbers(tmp_path / "asked", 3, large, strategy=SINGLE_RECORD).run(client, 8)["ok"]
    finally:
        client.control(op="unload", copy=8)


def test_spans_of_a_copy_share_what_it_is_asked_at_once(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """The next span is read while one runs: the container knows nothing of spans."""
    client = shared.client()
    try:
        assert client.load(8, server(tmp_path / "m", lanes=4))["ok"]
        job = numbers(tmp_path, 12, strategy=SINGLE_RECORD, concurrency_max=2)
        cut = job.one.size // 2
        spans = [replace(job.whole, stop=cut), replace(job.whole, number=1, start=cut)]
        begun = [client.begin_control(**job.call(8, span)) for span in spans]
        assert sum(client.result(ident)["records"] for ident in begun) == 12
        most = max(json.loads(line)["most"] for line in job.outputs(spans))
        assert most == 2
    finally:
        client.control(op="unload", copy=8)


def test_failures_of_a_container_are_tried_again_and_its_refusals_are_not(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    assert client.load(9, server(tmp_path / "m"))["ok"]
    job = numbers(
        tmp_path, 8,
        {"n": 1, "fails": 2},  # twice unwell, then well
        {"n": 3, "fails": 3},  # once more than it is tried
        {"n": 5, "fails": 1, "status": 422},
        strategy=SINGLE_RECORD, invocation_retries_max=2,
    )  # fmt: skip
    done = job.run(client, 9)
    assert (done["records"], done["refused"]) == (8, 2)
    assert [json.loads(line)["twice"] for line in job.outputs()] == [0, 2, 4, 8, 12, 14]
    assert [each["error"]["original_status"] for each in job.refused()] == [503, 422]


def test_a_body_that_is_not_answered_in_time_is_refused_and_no_other_that_waits_behind_it(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """The worker goes on with what nobody waits for any more: the next body waits all that time."""
    client = shared.client()
    slow = sleeping("rows[0].get('s', 0)")
    assert client.load(10, model_files.code(tmp_path / "m", slow))["ok"]
    job = numbers(
        tmp_path, 3, {"n": 1, "s": 3}, strategy=SINGLE_RECORD, invocation_timeout_s=1.0,
        invocation_retries_max=0,
    )  # fmt: skip
    done = job.run(client, 10)
    assert (done["records"], done["refused"]) == (3, 1)
    assert [json.loads(line)["twice"] for line in job.outputs()] == [0, 4]
    assert job.refused()[0]["error"]["code"] == "invocation-timeout"
