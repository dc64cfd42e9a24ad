"""Triton ensembles in a real instance: tensors in, each step by its own runtime, tensors out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import triton_files as files
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance
from tests.kit.model_files import weights
from tests.kit.polling import wait_until

from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[InstanceProcess, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ensemble")
    root = files.embeddings(folder / "repository", delay_us=20_000)
    with instance(folder) as running:
        yield running, running.client().load(1, root)


def body(*texts: str, **more: Any) -> bytes:
    data = {"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": list(texts)}
    return json.dumps({"inputs": [data], **more}).encode()


def tensors(answer: FrameAnswer) -> dict[str, np.ndarray]:
    return {
        each["name"]: np.array(each["data"]).reshape(each["shape"])
        for each in answer.json["outputs"]
    }


def test_an_ensemble_answers_with_what_its_models_make_one_after_the_other(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    running, loaded = served
    assert loaded.get("ok"), loaded
    answer = running.client().invoke(1, body("ab", "cd"), door="oip")
    made = tensors(answer)
    expected = files.letters("ab", "cd") @ weights()
    np.testing.assert_allclose(made["SMALL"], expected, rtol=1e-5)
    np.testing.assert_allclose(made["LARGE"], expected * 10, rtol=1e-5)


def test_it_is_one_model_from_outside(served: tuple[InstanceProcess, dict[str, Any]]) -> None:
    _, loaded = served
    told = loaded["description"]
    assert (told["platform"], told["name"], told["task"]) == ("ensemble", "embed", "tensor")
    assert told["inputs"] == [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}]
    assert [each["name"] for each in told["outputs"]] == ["SMALL", "LARGE"]


def test_an_answer_has_the_outputs_that_were_asked_for(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    running, _ = served
    answer = running.client().invoke(1, body("ab", outputs=[{"name": "LARGE"}]), door="oip")
    assert list(tensors(answer)) == ["LARGE"]


def test_it_answers_over_grpc_and_with_binary_tensors(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    running, _ = served
    client = running.client()
    expected = (files.letters("ab") @ weights()).astype(np.float32)
    asked = ModelInferRequest(model_name="e")
    asked.inputs.add(name="TEXT", datatype="BYTES", shape=(1, 1))
    asked.inputs[0].contents.bytes_contents.append(b"ab")
    asked.outputs.add(name="SMALL")
    answer = client.invoke(
        1, asked.SerializeToString(), door="oip-grpc", content_type="application/x-oip-grpc"
    )
    said = ModelInferResponse.FromString(answer.body)
    assert [each.name for each in said.outputs] == ["SMALL"]
    assert np.allclose(np.frombuffer(said.raw_output_contents[0], np.float32), expected)
    outputs = [{"name": "SMALL", "parameters": {"binary_data": True}}]
    answer = client.invoke(1, body("ab", outputs=outputs), door="oip")
    cut = answer.meta.json_header_bytes
    assert cut is not None
    assert json.loads(answer.body[:cut])["outputs"][0]["name"] == "SMALL"
    assert np.allclose(np.frombuffer(answer.body[cut:], np.float32), expected)


def test_requests_at_one_time_share_the_batches_of_every_step(tmp_path: Path) -> None:
    """Eight requests arrive in one read: no model runs eight times for them."""
    root = files.embeddings(tmp_path / "repository", delay_us=20_000)
    with instance(tmp_path) as running:
        client = running.client()
        assert client.load(1, root).get("ok")
        idents = range(101, 109)
        burst = [FrameClient.frame(each, 1, body("ab"), door="oip") for each in idents]
        client.socket.sendall(b"".join(burst))
        for each in idents:
            assert "SMALL" in tensors(FrameAnswer(client.answer(each)))
        told = client.control(op="explain", copy=1)
        for name in ("letters", "small", "large"):
            model = told["models"][name]
            assert model["requests"] == 8
            assert model["batches"] <= 2, name
        assert told["pipeline"]["steps"]["1 (letters)"]["calls"] == 8
        assert told["pipeline"]["steps"]["1 (letters)"]["mean_ms"] > 0


def test_a_request_larger_than_a_models_batch_is_computed_in_parts(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    running, _ = served
    texts = [chr(97 + at) * 3 for at in range(20)]
    made = tensors(running.client().invoke(1, body(*texts), door="oip"))
    np.testing.assert_allclose(made["SMALL"], files.letters(*texts) @ weights(), rtol=1e-5)


def test_what_a_step_refuses_is_the_answer_and_names_the_step(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    """Its mates in the batch are answered."""
    running, _ = served
    client = running.client()
    frame = FrameClient.frame
    both = frame(201, 1, body("?"), door="oip") + frame(202, 1, body("ab"), door="oip")
    client.socket.sendall(both)
    error = FrameAnswer(client.answer(201)).error
    assert (error["code"], error["original_status"]) == ("model-code-failed", 400)
    assert "step '1 (letters)': no questions" in error["message"]
    assert "SMALL" in tensors(FrameAnswer(client.answer(202)))


def test_a_step_whose_process_dies_gives_its_requests_back_and_comes_again(
    served: tuple[InstanceProcess, dict[str, Any]],
) -> None:
    """The rule of any Python model: the one that it died of is suspected, its mates are told apart,
    and the copy takes no requests until the step has a process."""
    running, _ = served
    client = running.client()
    frame = FrameClient.frame
    client.socket.sendall(frame(301, 1, body("!"), door="oip"))
    gone = FrameAnswer(client.answer(301))
    assert (gone.kind, gone.reason) == (frames.RETURNED, "worker-died")
    client.event("copy-lost")
    client.event("copy-ready")
    both = frame(302, 1, body("!"), door="oip") + frame(303, 1, body("ab"), door="oip")
    client.socket.sendall(both)
    for each in (302, 303):
        answer = FrameAnswer(client.answer(each))
        assert (answer.kind, answer.reason) == (frames.RETURNED, "worker-died-in-company")
    client.event("copy-ready")
    assert "SMALL" in tensors(client.invoke(1, body("ab"), door="oip"))


MEETING = """
class TritonPythonModel:
    def execute(self, requests):
        here, there = os.path.join(FOLDER, ME), os.path.join(FOLDER, OTHER)
        open(here, "w").close()
        end = time.monotonic() + 30
        while not os.path.exists(there) and time.monotonic() < end:
            time.sleep(0.005)
        met = np.array([[os.path.exists(there)]])
        return [answer(met=met) for request in requests]
"""


def test_steps_that_need_nothing_of_one_another_run_at_the_same_time(tmp_path: Path) -> None:
    """Each of the two ends only once the other has begun."""
    root, meeting = tmp_path / "repository", tmp_path / "meeting"
    meeting.mkdir()
    for me, other in (("left", "right"), ("right", "left")):
        names = f"FOLDER, ME, OTHER = {str(meeting)!r}, {me!r}, {other!r}\n"
        files.python(
            root / me, names + MEETING, inputs=[("x", "FP32", [1])], outputs=[("met", "BOOL", [1])]
        )
    files.ensemble(
        root / "both",
        ("left", {"x": "X"}, {"met": "LEFT"}),
        ("right", {"x": "X"}, {"met": "RIGHT"}),
        inputs=[("X", "FP32", [1])],
        outputs=[("LEFT", "BOOL", [1]), ("RIGHT", "BOOL", [1])],
    )
    data = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    # Without walls: the two meet in a folder that is neither's own.
    with instance(tmp_path, artifact={"isolation": False}) as running:
        client = running.client()
        assert client.load(1, root).get("ok")
        answer = client.invoke(1, json.dumps({"inputs": [data]}).encode(), door="oip")
        assert {name: array.all() for name, array in tensors(answer).items()} == {
            "LEFT": True, "RIGHT": True,
        }  # fmt: skip


SLOW = """
class TritonPythonModel:
    def execute(self, requests):
        if given(requests[0], "x")[0, 0] > 0:
            time.sleep(3600)
        return [answer(y=given(request, "x")) for request in requests]
"""


def test_a_cancelled_or_late_request_ends_in_all_its_steps_and_unloading_ends_all_processes(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repository"
    tensor = ("FP32", [1])
    files.python(root / "slow", SLOW, inputs=[("x", *tensor)], outputs=[("y", *tensor)])
    files.python(root / "next", SLOW, inputs=[("x", *tensor)], outputs=[("y", *tensor)])
    files.ensemble(
        root / "chain",
        ("slow", {"x": "X"}, {"y": "between"}),
        ("next", {"x": "between"}, {"y": "Y"}),
        inputs=[("X", *tensor)], outputs=[("Y", *tensor)],
    )  # fmt: skip

    def ask(number: float) -> bytes:
        data = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [number]}
        return json.dumps({"inputs": [data]}).encode()

    def unanswered(client: FrameClient) -> bool:
        told = client.control(op="explain", copy=1)
        return any(each["unanswered"] for each in (told, *told["models"].values()))

    with instance(tmp_path) as running:
        client = running.client()
        assert client.load(1, root).get("ok")
        stuck = client.send(1, ask(1.0), door="oip")
        wait_until(
            lambda: client.control(op="explain", copy=1)["models"]["slow"]["batches"], "it runs"
        )
        late = client.send(1, ask(0.0), deadline_ms=50, door="oip")
        error = FrameAnswer(client.answer(late)).error
        assert error["code"] in ("deadline-passed", "deadline-cannot-be-met")
        client.socket.sendall(frames.encode(frames.CANCEL, stuck))
        wait_until(lambda: not unanswered(client), "nothing of them is left")
        pids = [each["pid"] for each in client.control(op="status")["copies"][0]["workers"]]
        assert len(pids) == 2
        client.control(op="unload", copy=1, drain_s=0.0)
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their processes ended"
        )


def test_an_ensemble_may_be_a_step_of_another(tmp_path: Path) -> None:
    root = files.embeddings(tmp_path / "repository")
    files.affine(root / "other", factor=2.0)
    files.ensemble(
        root / "outer",
        ("embed", {"TEXT": "WORDS"}, {"SMALL": "FIRST"}),
        ("letters", {"text": "WORDS"}, {"letters": "numbers"}),
        ("other", {"x": "numbers"}, {"y": "SECOND"}),
        inputs=[("WORDS", "STRING", [1])],
        outputs=[("FIRST", "FP32", [3]), ("SECOND", "FP32", [3]), ("WORDS", "STRING", [1])],
    )
    data = {"name": "WORDS", "datatype": "BYTES", "shape": [1, 1], "data": ["ab"]}
    with instance(tmp_path) as running:
        client = running.client()
        loaded = client.load(1, root)
        assert loaded.get("ok"), loaded
        assert loaded["description"]["name"] == "outer"
        made = tensors(client.invoke(1, json.dumps({"inputs": [data]}).encode(), door="oip"))
        np.testing.assert_allclose(made["SECOND"], made["FIRST"] * 2, rtol=1e-5)
        assert made["WORDS"].tolist() == [["ab"]], "an input that is an output is passed on"


def test_a_model_file_that_does_not_fit_the_ensemble_is_told_when_it_loads(tmp_path: Path) -> None:
    """The configuration leaves its tensors to the file: the file decides."""
    root = files.embeddings(tmp_path / "repository")
    (root / "small" / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 8')
    (root / "letters" / "config.pbtxt").write_text(
        (root / "letters" / "config.pbtxt").read_text().replace("[4]", "[5]")
    )
    files.ensemble(
        root / "embed",
        ("letters", {"text": "TEXT"}, {"letters": "numbers"}),
        ("small", {"x": "numbers"}, {"y": "SMALL"}),
        inputs=[("TEXT", "STRING", [1])], outputs=[("SMALL", "FP32", [3])],
    )  # fmt: skip
    with instance(tmp_path) as running:
        error = running.client().load(1, root)["error"]
        assert error["code"] == "triton-ensemble-invalid"
        assert "embed/config.pbtxt, step 1 (small), input 'x'" in error["message"]
        assert "[-1, 5], [-1, 4] is wanted" in error["message"]
