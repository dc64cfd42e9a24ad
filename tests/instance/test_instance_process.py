"""A real instance process: loads, answers, refuses, loses workers, ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.wire import frames

SLEEPER = """
import json, os, time
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    if data.get("die"):
        os.kill(os.getpid(), 9)
    time.sleep(data.get("sleep", 0))
    if data.get("fail"):
        raise ValueError("no such luck")
    return data
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    # Some models here leave files where their test looks for them.
    folder = tmp_path_factory.mktemp("instance")
    artifact = {"isolation": False, "environments": {"enabled": False}}
    with instance(folder, artifact=artifact) as running:
        yield running


def test_a_tensor_model_answers_json(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    loaded = client.load(1, model_files.affine(tmp_path / "m"))
    assert loaded["ok"], loaded
    assert loaded["description"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    answer = client.invoke(1, b"[[1, 0, 0, 2]]", content_type="application/json")
    assert answer.json == {"predictions": [[9.0, 10.5, 12.0]]}
    assert answer.reply.batch_rows == 1
    assert client.control(op="unload", copy=1) == {"ok": True, "found": True}


def test_rows_beyond_a_batch_are_split_and_joined(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    client.load(2, model_files.row_sums(tmp_path / "m"))
    rows = [[float(at), 1.0] for at in range(100)]
    answer = client.invoke(2, json.dumps({"inputs": rows}).encode())
    assert [row["sum"] for row in answer.json["predictions"]] == [at + 1.0 for at in range(100)]
    assert answer.json["predictions"][99]["twice"] == [198.0, 2.0]


def test_a_burst_on_one_socket_read_becomes_batches(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(3, model_files.affine(tmp_path / "m"))
    burst = b"".join(client.frame(1000 + at, 3, b"[[1, 0, 0, 0]]") for at in range(8))
    client.socket.sendall(burst)
    answers = [FrameAnswer(client.answer(1000 + at)) for at in range(8)]
    assert all(answer.json == {"predictions": [[0.0, 0.5, 1.0]]} for answer in answers)
    assert {answer.reply.batch_rows for answer in answers} == {8}
    assert {frames.BATCH_REASONS[answer.reply.reason] for answer in answers} == {"batch-full"}


def test_the_guilty_request_fails_alone(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    client.load(4, model_files.picky(tmp_path / "m"))
    bodies = [b"[0]", b"[99]", b"[3]"]
    client.socket.sendall(b"".join(client.frame(1000 + n, 4, b) for n, b in enumerate(bodies)))
    first, guilty, last = (FrameAnswer(client.answer(1000 + n)) for n in range(3))
    assert first.json == {"predictions": [10.0]}
    assert last.json == {"predictions": [13.0]}
    assert guilty.error["family"] == "model"
    assert guilty.error["status"] == 424
    assert guilty.error["code"] == "model-failed"


def test_a_model_that_loses_rows_is_an_error_of_the_model(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(5, model_files.forgetful(tmp_path / "m"))
    assert client.invoke(5, b"[[1, 2]]").json == {"predictions": [3.0]}
    answer = client.invoke(5, b"[[1, 2], [3, 4]]")
    assert answer.error["code"] == "wrong-answer-count"


def test_a_text_classifier_answers_as_the_hugging_face_toolkit(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    loaded = client.load(6, model_files.classifier(tmp_path / "m"))
    assert loaded["ok"], loaded
    assert loaded["description"]["labels"] == ["positive", "negative"]
    one = client.invoke(6, b'{"inputs": "very good film"}').json
    assert one[0]["label"] == "positive"
    assert one[0]["score"] == pytest.approx(0.9046505)  # logits 2.75 and 0.5
    several = client.invoke(
        6, b'{"inputs": ["not good", "bad book"], "parameters": {"top_k": null}}'
    ).json
    assert [[each["label"] for each in text] for text in several] == [
        ["positive", "negative"],
        ["negative", "positive"],
    ]
    assert several[0][0]["score"] == pytest.approx(0.5)  # not good: logits 1 and 1
    plain = client.invoke(6, b"bad film", content_type="text/plain").json
    assert plain[0]["label"] == "negative"


def test_an_embedding_model_answers_one_vector_per_text(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    loaded = client.load(7, model_files.embedder(tmp_path / "m"))
    assert loaded["ok"], loaded
    (vector,) = client.invoke(7, b'{"inputs": "good bad"}').json
    assert vector == pytest.approx([0.7071068, 0.7071068])
    assert len(client.invoke(7, b'{"inputs": ["good", "bad", "not"]}').json) == 3


def test_string_tensors_go_to_onnx_runtime(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    client.load(8, model_files.strings(tmp_path / "m"))
    answer = client.invoke(8, '{"inputs": ["a", "ü", ""]}'.encode())
    assert answer.json == {"predictions": ["a", "ü", ""]}


def test_python_code_answers_and_its_failures_are_its_own(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    loaded = client.load(9, model_files.code(tmp_path / "m", SLEEPER))
    assert loaded["ok"], loaded
    client.socket.sendall(
        client.frame(1001, 9, b'{"a": 1}')
        + client.frame(1002, 9, b'{"fail": true}')
        + client.frame(1003, 9, b"not json")
    )
    assert FrameAnswer(client.answer(1001)).json == {"a": 1}
    failed = FrameAnswer(client.answer(1002)).error
    assert failed["original_status"] == 500
    assert failed["message"] == "ValueError: no such luck"
    assert FrameAnswer(client.answer(1003)).error["original_status"] == 400
    assert "no such luck" in shared.log.read_text()


def test_a_killed_worker_returns_its_batch_and_comes_back(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(10, model_files.code(tmp_path / "m", SLEEPER))
    running = client.send(10, b'{"sleep": 30}')
    queued = client.send(10, b'{"queued": 1}')

    def worker() -> dict[str, int] | None:
        status = client.control(op="status")
        copy = next(each for each in status["copies"] if each["copy"] == 10)
        return copy["workers"][0] if copy["running"] else None

    os.kill(wait_until(worker, "the batch runs")["pid"], signal.SIGKILL)
    assert FrameAnswer(client.answer(running)).kind == frames.RETURNED
    assert FrameAnswer(client.answer(queued)).kind == frames.RETURNED
    lost = client.event("copy-lost")
    assert lost["copy"] == 10
    assert "SIGKILL" in lost["error"]["message"]
    assert client.event("copy-ready") == {"event": "copy-ready", "copy": 10}
    assert client.invoke(10, b'{"back": true}').json == {"back": True}


def test_a_worker_that_always_dies_makes_its_copy_fail(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    folder = tmp_path / "m"
    starts = str(tmp_path / "starts")
    dies_later = SLEEPER.replace(
        "    return None",
        f"    if os.path.exists({starts!r}): os.kill(os.getpid(), 9)\n"
        f"    open({starts!r}, 'w').close()",
        1,
    )
    client.load(11, model_files.code(folder, dies_later))
    assert FrameAnswer(client.answer(client.send(11, b'{"die": true}'))).kind == frames.RETURNED
    assert client.event("copy-failed")["copy"] == 11
    assert client.invoke(11, b"{}").reason == "copy-failed"


def test_a_hanging_model_times_out_alone_and_its_mates_are_returned(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    folder = model_files.code(tmp_path / "m", SLEEPER)
    client.load(12, folder, environment={"SAGEMAKER_MODEL_SERVER_TIMEOUT": "0.5"})
    bodies = [b"{}", b'{"sleep": 60}', b"{}"]
    client.socket.sendall(b"".join(client.frame(1000 + n, 12, b) for n, b in enumerate(bodies)))
    answers = [FrameAnswer(client.answer(1000 + n)) for n in range(3)]
    assert answers[1].error["code"] == "model-timeout"
    assert [answers[0].kind, answers[2].kind] == [frames.RETURNED, frames.RETURNED]
    client.event("copy-ready")
    assert client.invoke(12, b'{"a": 1}').json == {"a": 1}


def test_large_bodies_are_read_and_answered_like_small_ones(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(15, model_files.row_sums(tmp_path / "m"))
    row = [1.0] * 50_000
    answer = client.invoke(15, json.dumps({"inputs": [row, row]}).encode())
    assert [each["sum"] for each in answer.json["predictions"]] == [50_000.0, 50_000.0]
    assert answer.json["predictions"][1]["twice"] == [2.0] * 50_000
    refused = client.invoke(15, b"[" + b"1," * 50_000 + b"]")
    assert refused.error["code"] == "bad-json"


def test_each_lane_of_a_python_model_is_a_process(shared: InstanceProcess, tmp_path: Path) -> None:
    source = "import os\ndef model_fn(d): return None\ndef predict_fn(d, m):\n    import time\n    time.sleep(0.2)\n    return os.getpid()\n"  # noqa: E501
    client = shared.client()
    client.load(16, model_files.code(tmp_path / "m", source, rows_max=1, lanes=2))
    client.socket.sendall(client.frame(1001, 16, b"[]") + client.frame(1002, 16, b"[]"))
    first, second = FrameAnswer(client.answer(1001)), FrameAnswer(client.answer(1002))
    assert {first.reply.lane, second.reply.lane} == {0, 1}
    assert first.json != second.json


def test_unloading_answers_what_is_queued_then_the_copy_is_gone(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(17, model_files.code(tmp_path / "m", SLEEPER, rows_max=1))
    idents = [client.send(17, b'{"sleep": 0.1}') for _ in range(3)]
    assert client.control(op="unload", copy=17, drain_s=20) == {"ok": True, "found": True}
    assert [FrameAnswer(client.answer(ident)).json for ident in idents] == [{"sleep": 0.1}] * 3
    assert client.invoke(17, b"{}").reason == "unknown-copy"
    assert client.control(op="unload", copy=17) == {"ok": True, "found": False}


def test_what_was_prepared_and_is_not_wanted_any_more_is_forgotten(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    """It would stay for ever, or be started in place of another model."""
    client = shared.client()
    source = {"uri": model_files.affine(tmp_path / "m").as_uri()}
    call = {"copy": 40, "endpoint": "e", "variant": "v", "cores": 1.0, "source": source}
    assert client.control(op="prepare", **call)["need"]["memory_bytes"]
    assert client.control(op="unload", copy=40) == {"ok": True, "found": True}
    assert client.control(op="unload", copy=40) == {"ok": True, "found": False}
    loaded = client.load(40, model_files.row_sums(tmp_path / "sums"))
    assert loaded["description"]["outputs"][0]["name"] == "sum", loaded


def test_what_is_unanswered_after_the_drain_time_is_returned(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    client.load(18, model_files.code(tmp_path / "m", SLEEPER, rows_max=1))
    idents = [client.send(18, b'{"sleep": 60}') for _ in range(2)]
    client.control(op="unload", copy=18, drain_s=0.1)
    assert {FrameAnswer(client.answer(ident)).kind for ident in idents} == {frames.RETURNED}


def test_what_cannot_be_loaded_is_named(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    cut = model_files.affine(tmp_path / "cut")
    whole = (cut / "model.onnx").read_bytes()
    (cut / "model.onnx").write_bytes(whole[: len(whole) // 2])
    error = client.load(20, cut)["error"]
    assert "model.onnx" in error["message"]
    assert error["hint"]

    broken = model_files.code(tmp_path / "broken", "import a_package_nobody_has\n")
    (broken / "code" / "requirements.txt").write_text("a_package_nobody_has\n")
    error = client.load(21, broken)["error"]
    assert error["code"] == "model-code-failed"
    assert "a_package_nobody_has" in error["message"]
    assert "code/requirements.txt is not installed by itself" in error["hint"]

    crashing = model_files.code(tmp_path / "crash", "import os\nos.abort()\n")
    error = client.load(22, crashing)["error"]
    assert error["code"] == "worker-died"
    assert "SIGABRT" in error["message"]

    slow = model_files.code(tmp_path / "slow", "import time\ntime.sleep(60)\n")
    error = client.load(23, slow, startup_timeout_s=0.5)["error"]
    assert error["code"] == "load-timeout"
    here = {copy["copy"] for copy in client.control(op="status")["copies"]}
    assert here.isdisjoint({20, 21, 22, 23})


def test_cancelled_requests_are_not_computed(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    marker = tmp_path / "ran"
    source = SLEEPER.replace(
        "    time.sleep",
        f'    open({str(marker)!r}, "a").write(str(data.get("n", "")))\n    time.sleep',
    )
    client.load(13, model_files.code(tmp_path / "m", source, rows_max=1))
    first = client.send(13, b'{"n": 1, "sleep": 0.3}')
    second = client.send(13, b'{"n": 2}')
    third = client.send(13, b'{"n": 3}')
    client.socket.sendall(frames.encode(frames.CANCEL, second))
    gone = shared.client()
    gone.socket.sendall(gone.frame(1, 13, b'{"n": 4}'))
    gone.close()
    assert FrameAnswer(client.answer(first)).json == {"n": 1, "sleep": 0.3}
    assert FrameAnswer(client.answer(third)).json == {"n": 3}
    assert client.invoke(13, b'{"n": 5}').json == {"n": 5}
    assert marker.read_text() == "135"
    assert second not in client.answers


def test_deadlines_and_full_queues_are_not_now(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    folder = model_files.code(tmp_path / "m", SLEEPER, rows_max=1)
    client.load(14, folder, batching={"queue_rows_max": 2})
    client.send(14, b'{"sleep": 0.5}')
    late = client.send(14, b"{}", deadline_ms=50)
    client.send(14, b"{}")
    refused = FrameAnswer(client.answer(client.send(14, b"{}"))).error
    assert refused["code"] == "queue-full"
    assert refused["status"] == 503
    assert refused["retry_after_s"] == 1.0
    expired = FrameAnswer(client.answer(late)).error
    assert expired["code"] == "deadline-passed"
    assert expired["family"] == "not-now"


def test_whoever_waits_goes_before_asynchronous_requests_where_the_copy_is_loaded_for_both(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = shared.client()
    marker = tmp_path / "ran"
    source = SLEEPER.replace(
        "    time.sleep",
        f'    open({str(marker)!r}, "a").write(str(data.get("n", "")))\n    time.sleep',
    )
    folder = model_files.code(tmp_path / "m", source, rows_max=1)
    client.load(51, folder, waits_for_others=True)
    first = client.send(51, b'{"n": 1, "sleep": 0.5}', priority=255)
    later = [client.send(51, b'{"n": %d}' % number, priority=255) for number in (2, 3)]
    online = client.send(51, b'{"n": 4}')
    for ident in (first, *later, online):
        assert FrameAnswer(client.answer(ident)).json["n"]
    assert marker.read_text() == "1423"


def test_requests_for_a_copy_that_is_not_here_are_returned(shared: InstanceProcess) -> None:
    answer = shared.client().invoke(999, b"{}")
    assert answer.kind == frames.RETURNED
    assert answer.reason == "unknown-copy"


def test_torn_frames_end_their_connection_only(shared: InstanceProcess) -> None:
    client, other = shared.client(), shared.client()
    client.socket.sendall(b"\xff" * 64)
    with pytest.raises(ConnectionError):
        client.answer(1)
    assert other.control(op="ping")["instance_id"] == "i-test"


def test_control_calls_that_are_none_are_answered(shared: InstanceProcess) -> None:
    client = shared.client()
    assert client.control(op="dance")["error"]["code"] == "bad-control-call"
    assert client.control(op="load")["error"]["code"] == "bad-control-call"
    assert client.control(op="explain", copy=12345)["error"]["code"] == "unknown-copy"


def test_sigterm_answers_what_is_queued_and_exits_0(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        client.load(1, model_files.code(tmp_path / "m", SLEEPER, rows_max=1))
        idents = [client.send(1, b'{"sleep": 0.2}') for _ in range(3)]
        wait_until(
            lambda: client.control(op="status")["copies"][0]["unanswered"] == 3, "all three wait"
        )
        running.process.send_signal(signal.SIGTERM)
        assert [FrameAnswer(client.answer(ident)).json for ident in idents] == [{"sleep": 0.2}] * 3
        assert running.process.wait(20) == 0


def test_the_end_of_the_server_ends_instance_and_workers(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        client.load(1, model_files.code(tmp_path / "m", SLEEPER))
        pid = client.control(op="status")["copies"][0]["workers"][0]["pid"]
        client.send(1, b'{"sleep": 60}')
        assert running.process.stdin is not None
        running.process.stdin.close()
        running.process.wait(20)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the worker is gone")


def test_long_texts_are_tokenized_beside_the_loop(shared: InstanceProcess, tmp_path: Path) -> None:
    client = shared.client()
    client.load(19, model_files.classifier(tmp_path / "m"))
    texts = ["very good film " * 10] * 1000
    answers = client.invoke(19, json.dumps({"inputs": texts}).encode()).json
    assert [each["label"] for each in answers] == ["positive"] * 1000


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_graph_with_its_batch_size_baked_in_takes_any_number_of_rows(
    shared: InstanceProcess, tmp_path: Path, runtime: str
) -> None:
    client = shared.client()
    folder = model_files.affine(tmp_path / "m", runtime=runtime, rows=2)
    copy = {"openvino": 30, "onnxruntime": 31}[runtime]
    client.serve(copy, folder)
    for count in (1, 2, 5):
        answer = client.invoke(copy, json.dumps([[1, 0, 0, 0]] * count).encode())
        assert answer.json == {"predictions": [[0.0, 0.5, 1.0]] * count}
