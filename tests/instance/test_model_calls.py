"""Python models that call the other models of their repository, in a real instance."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import triton_files as files
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance
from tests.kit.model_files import weights
from tests.kit.polling import wait_until
from tests.kit.processes import pids_in

from penstock.wire import frames

X = [("x", "FP32", [4])]
Y = [("y", "FP32", [3])]

#: What it is told to do stands in `what`, one request a batch.
TELLER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        x = given(request, "x")
        what = given(request, "what").reshape(-1)[0].decode()
        if what == "ready":
            names = ("small", "chain", "teller", "nobody")
            said = " ".join(name for name in names if pb_utils.is_model_ready(name))
            return answer(y=np.zeros((len(x), 3), np.float32), said=np.array([[said]] * len(x)))
        if what == "loop":
            total = np.zeros((len(x), 3), np.float32)
            for turn in range(5):  # the big input stays here; each turn is another call
                got = call("small", ["y"], x=x + turn).exec()
                assert not got.has_error(), got.error().message()
                total += pb_utils.get_output_tensor_by_name(got, "y").as_numpy()
            return answer(y=total, said=np.array([["done"]] * len(x)))
        asked = {
            "unknown model": lambda: call("nobody", ["y"], x=x),
            "unknown output": lambda: call("small", ["z"], x=x),
            "version": lambda: pb_utils.InferenceRequest(
                model_name="small", model_version=7, requested_output_names=["y"],
                inputs=[pb_utils.Tensor("x", x)]),
            "shape": lambda: call("small", ["y"], x=x[:, :2]),
            "type": lambda: call("small", ["y"], x=x.astype(np.int64)),
            "raises": lambda: call("broken", ["y"], x=x),
            "itself": lambda: call("teller", ["y"], x=x),
            "around": lambda: call("back", ["y"], x=x),
            "late": lambda: pb_utils.InferenceRequest(
                model_name="sleeper", requested_output_names=["y"], timeout=50_000,
                inputs=[pb_utils.Tensor("x", x)]),
            "dies": lambda: call("deadly", ["y"], x=x * 0),
            "lives": lambda: call("deadly", ["y"], x=x),
            "ensemble": lambda: call("chain", ["Y"], X=x),
            "fine": lambda: call("small", ["y"], x=x),
            "sleeps": lambda: call("sleeper", ["y"], x=x),
            "slow": lambda: call("slow", ["y"], x=x),
        }[what]()
        got = asked.exec()
        if got.has_error():
            said = f"{got.error().code()} {got.error().message()}"
            return answer(y=np.zeros((len(x), 3), np.float32), said=np.array([[said]] * len(x)))
        (tensor,) = got.output_tensors()
        return answer(y=tensor.as_numpy(), said=np.array([["fine"]] * len(x)))
"""

BROKEN = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("spilled the milk")
"""
BACK = """
class TritonPythonModel:
    def execute(self, requests):
        got = call("teller", ["y"], x=given(requests[0], "x")).exec()
        raise RuntimeError(got.error().message())
"""
SLEEPER = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(3600)
"""
#: Time for another call to come into its queue; what is right does not depend on it.
DEADLY = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            if not given(request, "x").any():
                time.sleep(0.2)
                os._exit(3)
        return [answer(y=given(request, "x")[:, :3]) for request in requests]
"""
SLOW = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.5)
        return [answer(y=given(request, "x")[:, :3]) for request in requests]
"""
ASYNC = """
class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            x = given(request, "x")
            calls = [call("small", ["y"], x=x * n).async_exec() for n in range(1, 9)]
            got = await asyncio.gather(*calls)
            responses.append(answer(y=sum(each.output_tensors()[0].as_numpy() for each in got)))
        return responses
"""
SOURCES = {
    "broken": BROKEN, "back": BACK, "sleeper": SLEEPER, "deadly": DEADLY, "gather": ASYNC,
    "slow": SLOW,
}  # fmt: skip


def repository(root: Path, *names: str) -> Path:
    """With `teller` and `small`, and the others that are named."""
    outputs = [*Y, ("said", "STRING", [1])]
    files.python(
        root / "teller", TELLER, inputs=[*X, ("what", "STRING", [1])], outputs=outputs,
        rows_max=1, more="instance_group { count: 2 }",
    )  # fmt: skip
    for name in names:
        files.python(root / name, SOURCES[name], inputs=X, outputs=Y)
    files.affine(root / "small", delay_us=20_000)
    files.ensemble(
        root / "chain", ("small", {"x": "X"}, {"y": "Y"}),
        inputs=[("X", "FP32", [4])], outputs=[("Y", "FP32", [3])],
    )  # fmt: skip
    return root


def load(client: FrameClient, copy: int, root: Path, model: str) -> dict[str, Any]:
    source = {
        "uri": f"file://{root}",
        "environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": model},
    }
    loaded = client.load(copy, root, source=source)
    assert loaded.get("ok"), loaded
    return loaded


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    folder = tmp_path_factory.mktemp("calls")
    every = repository(folder / "repository", "broken", "back", "sleeper", "deadly")
    other = repository(folder / "other", "gather")
    with instance(folder) as running:
        client = running.client()
        load(client, 1, every, "teller")
        load(client, 2, other, "gather")
        yield running


def body(what: str | None = None, x: Any = ((1.0, 0.0, 0.0, 0.0),)) -> bytes:
    rows = np.array(x, np.float32)
    inputs: list[dict[str, Any]] = [
        {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "data": rows.tolist()}
    ]
    if what is not None:
        data = [what] * len(rows)
        inputs.append({"name": "what", "datatype": "BYTES", "shape": [len(rows), 1], "data": data})
    return json.dumps({"inputs": inputs}).encode()


def outcome(answer: FrameAnswer) -> tuple[np.ndarray, str]:
    made = {each["name"]: each for each in answer.json["outputs"]}
    y = np.array(made["y"]["data"]).reshape(made["y"]["shape"])
    return y, made["said"]["data"][0] if "said" in made else ""


def test_a_model_calls_another_in_a_loop_and_keeps_what_it_needs_meanwhile(
    served: InstanceProcess,
) -> None:
    y, said = outcome(served.client().invoke(1, body("loop"), door="oip"))
    x = np.array([[1.0, 0.0, 0.0, 0.0]])
    expected = sum((x + turn) @ weights() for turn in range(5))
    assert said == "done"
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_calls_of_an_async_execute_are_one_batch_of_the_model_that_is_called(
    served: InstanceProcess,
) -> None:
    client = served.client()
    before = client.control(op="explain", copy=2)["models"]["small"]
    y, _ = outcome(client.invoke(2, body(), door="oip"))
    after = client.control(op="explain", copy=2)["models"]["small"]
    np.testing.assert_allclose(y, np.array([[1.0, 0, 0, 0]]) @ weights() * 36, rtol=1e-5)
    assert after["requests"] - before["requests"] == 8
    assert after["batches"] - before["batches"] < 8


def test_a_model_can_ask_which_others_there_are(served: InstanceProcess) -> None:
    assert outcome(served.client().invoke(1, body("ready"), door="oip"))[1] == "small chain"


def test_an_ensemble_can_be_called_as_well(served: InstanceProcess) -> None:
    y, said = outcome(served.client().invoke(1, body("ensemble"), door="oip"))
    assert said == "fine"
    np.testing.assert_allclose(y, np.array([[1.0, 0, 0, 0]]) @ weights(), rtol=1e-5)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("unknown model", 2, "Model 'nobody' is not ready"),
        ("version", 2, "Version 7 of the model 'small' is not ready"),
        ("unknown output", 3, "has no output 'z'"),
        ("shape", 3, "input 'x' has shape [1, 2]"),
        ("type", 3, "input 'x' is INT64, the model takes FP32"),
        ("raises", 1, "spilled the milk"),
        ("itself", 1, "a call that would wait for itself: teller -> teller"),
        ("around", 1, "a call that would wait for itself: teller -> back -> teller"),
        ("late", 4, "the deadline passed before the model 'sleeper' answered"),
        ("dies", 1, "the model 'deadly': The model's process ended on this request, 2 times."),
    ],
)
def test_what_goes_wrong_in_a_call_is_the_responses_error_and_the_caller_goes_on(
    served: InstanceProcess, what: str, code: int, words: str
) -> None:
    """With Triton's codes: INTERNAL 1, NOT_FOUND 2, INVALID_ARG 3, UNAVAILABLE 4."""
    client = served.client()
    _, said = outcome(client.invoke(1, body(what), door="oip"))
    assert said.startswith(f"{code} ")
    assert words in said
    assert outcome(client.invoke(1, body("fine"), door="oip"))[1] == "fine"


def test_a_call_that_had_not_begun_when_the_other_models_process_died_is_asked_again(
    served: InstanceProcess,
) -> None:
    """Two callers at a time: one call ends the process, the other one waits for it or for the next.
    It may also have been in one batch with the guilty one: then it is asked again, alone."""
    client = served.client()
    for _ in range(3):
        dies = client.send(1, body("dies"), door="oip")
        lives = client.send(1, body("lives"), door="oip")
        assert "ended on this request" in outcome(FrameAnswer(client.answer(dies)))[1]
        assert outcome(FrameAnswer(client.answer(lives)))[1] == "fine"


def test_a_call_whose_models_process_is_killed_is_made_again(tmp_path: Path) -> None:
    """Every call is killed once, in the middle of it; the request ends none by itself."""
    root = repository(tmp_path / "repository", "slow")
    with instance(tmp_path) as running:
        client = running.client()
        load(client, 1, root, "teller")
        for _ in range(5):
            ident = client.send(1, body("slow"), door="oip")
            wait_until(lambda: calls_of(client, "slow"), "the call is under way")
            [victim] = pids_in("slow", below=running.process.pid)
            os.kill(victim, signal.SIGKILL)
            assert outcome(FrameAnswer(client.answer(ident)))[1] == "fine"
        client.close()


def calls_of(client: FrameClient, model: str) -> int:
    """Calls to the model that are being computed."""
    told = client.control(op="explain", copy=1)["models"][model]
    return int(told["unanswered"] and not told["lanes_lost"])


def test_a_cancelled_request_ends_what_is_called_for_it(tmp_path: Path) -> None:
    """`exec` comes back with an error, so the lane is free again although the other still runs."""
    root = repository(tmp_path / "repository", "sleeper")
    with instance(tmp_path) as running:
        client = running.client()
        load(client, 1, root, "teller")
        stuck = client.send(1, body("sleeps"), door="oip")

        def calls() -> Any:
            return client.control(op="explain", copy=1)["nested_calls"]

        wait_until(lambda: calls() == {"teller": {"sleeper": 1}}, "the call is under way")
        client.socket.sendall(frames.encode(frames.CANCEL, stuck))
        assert outcome(client.invoke(1, body("fine"), door="oip"))[1] == "fine"
        assert calls() == {}


def test_a_callers_death_ends_its_calls_and_only_its_own_request(tmp_path: Path) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        x = given(requests[0], "x")
        if x[0, 0] > 5:
            import threading
            threading.Thread(target=lambda: call("sleeper", ["y"], x=x).exec(), daemon=True).start()
            while not os.path.exists(os.path.join(FOLDER, "asleep")):
                time.sleep(0.005)
            os._exit(4)
        return [answer(y=x[:, :3]) for request in requests]
"""
    root = tmp_path / "repository"
    marks = f"FOLDER = {str(tmp_path)!r}\n"
    asleep = SLEEPER.replace(
        "        time",
        """
        open(os.path.join(FOLDER, "asleep"), "w").close()
        time""",
    )
    files.python(root / "caller", marks + source, inputs=X, outputs=Y)
    files.python(root / "sleeper", marks + asleep, inputs=X, outputs=Y)
    with instance(tmp_path, artifact={"isolation": False}) as running:
        client = running.client()
        load(client, 1, root, "caller")
        gone = client.invoke(1, body(x=[[9.0, 0, 0, 0]]), door="oip")
        assert (gone.kind, gone.reason) == (frames.RETURNED, "worker-died")
        client.event("copy-ready")
        assert client.control(op="explain", copy=1)["nested_calls"] == {}
        assert client.control(op="explain", copy=1)["models"]["sleeper"]["unanswered"] == 0
        assert outcome(client.invoke(1, body(), door="oip"))[0].tolist() == [[1.0, 0.0, 0.0]]


CROSS = """
class TritonPythonModel:
    def execute(self, requests):
        request = requests[0]
        x = given(request, "x")
        if x[0, 0] == 0:  # the second call: the other one is already under way
            return [answer(y=np.ones((1, 3), np.float32))]
        open(os.path.join(FOLDER, ME), "w").close()
        end = time.monotonic() + 30
        while not os.path.exists(os.path.join(FOLDER, OTHER)) and time.monotonic() < end:
            time.sleep(0.005)
        got = call(OTHER, ["y"], x=x * 0).exec()
        words = got.error().message() if got.has_error() else ""
        failed = "wait for calls that wait for one another" in words
        return [answer(y=np.full((1, 3), 7.0 if failed else 2.0, np.float32))]
"""
FORK = """
class TritonPythonModel:
    def execute(self, requests):
        x = given(requests[0], "x")
        got = call("left" if x[0, 1] else "right", ["y"], x=x).exec()
        assert not got.has_error(), got.error().message()
        return [answer(y=got.output_tensors()[0].as_numpy())]
"""


def test_models_that_wait_for_one_anothers_only_lane_do_not_hang(tmp_path: Path) -> None:
    """Two requests: one goes left -> right, the other right -> left, at the same time. The call
    that closes the circle is refused; the other one has its answer."""
    root, meeting = tmp_path / "repository", tmp_path / "meeting"
    meeting.mkdir()
    for me, other in (("left", "right"), ("right", "left")):
        names = f"FOLDER, ME, OTHER = {str(meeting)!r}, {me!r}, {other!r}\n"
        files.python(root / me, names + CROSS, inputs=X, outputs=Y, rows_max=1)
    files.python(
        root / "fork", FORK, inputs=X, outputs=Y, rows_max=1, more="instance_group { count: 2 }"
    )
    with instance(tmp_path, artifact={"isolation": False}) as running:
        client = running.client()
        load(client, 1, root, "fork")
        idents = [client.send(1, body(x=[[1.0, way, 0, 0]]), door="oip") for way in (0, 1)]
        made = sorted(outcome(FrameAnswer(client.answer(each)))[0][0, 0] for each in idents)
        assert made == [2.0, 7.0]


def test_a_model_that_speaks_of_no_request_loads_no_other(tmp_path: Path) -> None:
    root = repository(tmp_path / "repository", "broken")
    source = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
    (root / "broken" / "1" / "model.py").write_text(source)
    with instance(tmp_path) as running:
        client = running.client()
        load(client, 1, root, "broken")
        assert len(client.control(op="status")["copies"][0]["workers"]) == 1
        assert "models" not in client.control(op="explain", copy=1)
