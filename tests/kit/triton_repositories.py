"""A Triton repository whose models call one another: each does one thing that tests need."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from tests.kit import triton_files as files
from tests.kit.model_files import weights

X, Y = [("x", "FP32", [4])], [("y", "FP32", [3])]

#: Does what its request says, and answers with one row of numbers and a text.
ASKER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        do, _, model = given(request, "what").reshape(-1)[0].decode().partition(" ")
        x, said = given(request, "x"), ""
        y = np.zeros((1, 3), np.float32)
        try:
            if do in ("call", "die"):
                got = call(model, [], x=-x if do == "die" else x).exec()
                if got.has_error():
                    return pb_utils.InferenceResponse(error=got.error())
                y = got.output_tensors()[0].as_numpy().reshape(1, 3)
            elif do == "ready":
                said = str(pb_utils.is_model_ready(model))
            elif do == "stream":
                said = " ".join(
                    str(len(got.output_tensors()) and got.output_tensors()[0].as_numpy().sum())
                    if not got.has_error() else "error: " + got.error().message()
                    for got in call(model, [], x=x).exec(decoupled=True))
            elif do == "first":
                said = str(next(iter(call(model, [], x=x).exec(decoupled=True)))
                           .output_tensors()[0].as_numpy().sum())
            elif do == "config":
                pb_utils.load_model(model, config="{}")
            else:
                getattr(pb_utils, do + "_model")(model)
        except pb_utils.TritonModelException as error:
            said = str(error)
        return answer(y=y, said=np.array([[said]], np.object_))
"""

#: Sends x[0] responses with 0, 1, 2, ...; the end is a response of its own. It counts what it sent,
#: and dies before number x[1].
COUNTER = """
class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("sent_total", "responses", pb_utils.MetricFamily.COUNTER)
        self.sent = family.Metric({})
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(given(request, "x")[0, 0])):
                if sender.is_cancelled():
                    break
                if number and number == given(request, "x")[0, 1]:
                    os._exit(3)
                sender.send(answer(y=np.full((1, 3), number / 3, np.float32)))
                self.sent.increment(1)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

#: Asks the counter of each request in a thread of its own, after `execute` has returned.
RELAY = """
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            given_to = request.get_response_sender(), given(request, "x")
            threading.Thread(target=self.go_on, args=given_to).start()
    def go_on(self, sender, x):
        for got in call("counter", [], x=x).exec(decoupled=True):
            if got.has_error():
                sender.send(pb_utils.InferenceResponse(error=got.error()))
            elif got.output_tensors():
                sender.send(answer(y=got.output_tensors()[0].as_numpy()))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

BACK = """
class TritonPythonModel:
    def execute(self, requests):
        got = [pb_utils.InferenceRequest(model_name="asker", requested_output_names=["y"], inputs=[
            pb_utils.Tensor("x", given(r, "x")),
            pb_utils.Tensor("what", np.array([["call back"]], np.object_))]).exec()
            for r in requests]
        return [pb_utils.InferenceResponse(error=g.error()) if g.has_error() else answer(
            y=g.output_tensors()[0].as_numpy()) for g in got]
"""

#: Dies of x[0] < 0; counts what it answered, in a process that it shares.
MORTAL = """
class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("answered_total", "them", pb_utils.MetricFamily.COUNTER)
        self.count = family.Metric({})
    def execute(self, requests):
        if any((given(r, "x") < 0).any() for r in requests):
            os._exit(3)
        self.count.increment(len(requests))
        return [answer(y=given(r, "x")[:, :3]) for r in requests]
"""

WANTS = """
class TritonPythonModel:
    def initialize(self, args):
        assert args["model_name"] == "wants", args["model_name"]
        pb_utils.load_model("affine")
    def execute(self, requests):
        return [answer(y=given(r, "x")[:, :3]) for r in requests]
"""


def repository(root: Path) -> Path:
    files.affine(root / "affine")
    files.ensemble(
        root / "chain", ("affine", {"x": "x"}, {"y": "y"}), inputs=X, outputs=Y
    )  # fmt: skip
    asks = {"inputs": [*X, ("what", "STRING", [1])], "outputs": [*Y, ("said", "STRING", [1])]}
    files.python(root / "asker", ASKER, **asks)
    for name, source in (("back", BACK), ("mortal", MORTAL), ("wants", WANTS)):
        files.python(root / name, source, inputs=X, outputs=Y)
    for name, source in (("counter", COUNTER), ("relay", RELAY)):
        files.python(
            root / name, source, inputs=X, outputs=Y,
            more="model_transaction_policy { decoupled: true }",
        )  # fmt: skip
    files.ensemble(root / "round", ("round", {"x": "x"}, {"y": "y"}), inputs=X, outputs=Y)
    (root / "wrong").mkdir()
    (root / "wrong" / "config.pbtxt").write_text("max_batch_size: many")
    files.ensemble(root / "short", ("nobody", {"x": "x"}, {"y": "y"}), inputs=X, outputs=Y)
    return root


_LARGE = """
class TritonPythonModel:
    def initialize(self, args):
        self.held = np.ones(30 << 20)
    def execute(self, requests):
        return [self.one(given(request, "x")) for request in requests]
"""
_ANSWERS = """
    def one(self, x):
        return answer(y=x[:, :3])
"""
_CALLS = """
    def one(self, x):
        got = call("called", ["y"], x=x).exec()
        return pb_utils.InferenceResponse(got.output_tensors(), got.error())
"""


def large(root: Path) -> Path:
    """`caller` and `called`, of 240 MiB each."""
    files.python(root / "called", _LARGE + _ANSWERS, inputs=X, outputs=Y)
    files.python(root / "caller", _LARGE + _CALLS, inputs=X, outputs=Y)
    return root


def archived(root: Path, prefix: Path) -> Path:
    """Each model as NAME.tar.gz with its folder in it, as SageMaker has them."""
    prefix.mkdir(parents=True)
    for model in sorted(path for path in root.iterdir() if path.is_dir()):
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz") as tar:
            tar.add(model, model.name)
        (prefix / f"{model.name}.tar.gz").write_bytes(held.getvalue())
    return prefix


#: What `affine` and `chain` make of the row that tests send.
ANSWER = (np.array([[1.0, 0.0, 0.0, 2.0]], np.float32) @ weights()).reshape(-1).tolist()
