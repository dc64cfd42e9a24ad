"""Decoupled Python models in a real instance: any number of responses, from any thread, at any
time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.instance.generation_client import Generated, StreamClient
from tests.kit import triton_files as files
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

#: Sends `n` responses with 0 ... n - 1, in the way that `how` names.
REPEATER = """
import threading
import triton_python_backend_utils as pb_utils
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def one(number):
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("y", np.array([number], np.int64))], parameters={"at": number})

class TritonPythonModel:
    def initialize(self, args):
        import json
        self.cancelled = 0
        config = json.loads(args["model_config"])
        assert pb_utils.using_decoupled_model_transaction_policy(config)

    def execute(self, requests):
        for request in requests:
            n = int(given(request, "n").reshape(-1)[0])
            how = given(request, "how").reshape(-1)[0].decode()
            if how == "raises":
                raise RuntimeError("spilled the milk")
            if how == "returns":
                return [one(1)]
            if how == "ignores":
                continue
            sender = request.get_response_sender()
            if how == "later":
                threading.Thread(target=self.send, args=(sender, n, how)).start()
            elif how == "cancelled":
                sender.send(one(self.cancelled), FINAL)
            elif how == "endless":
                threading.Thread(target=self.endless, args=(sender, request)).start()
            else:
                self.send(sender, n, how)

    def send(self, sender, n, how):
        for number in range(n):
            last = how == "marked" and number == n - 1
            sender.send(one(number), FINAL if last else 0)
            if how == "dies" and number == n - 1:
                os._exit(3)
        if how == "error":
            error = pb_utils.TritonError("no more", pb_utils.TritonError.UNAVAILABLE)
            sender.send(pb_utils.InferenceResponse(error=error))
        if how == "forgets":
            return
        if how != "marked":
            sender.send(flags=FINAL)
        try:
            sender.send(one(0))
        except pb_utils.TritonModelException as error:
            assert "closed" in str(error)
        else:
            raise AssertionError("it was closed")

    def endless(self, sender, request):
        number = 0
        while not request.is_cancelled():
            sender.send(one(number))
            number += 1
            time.sleep(0.001)
        assert sender.is_cancelled()
        self.cancelled += 1
"""
#: Answers by a sender although it is not decoupled, from another thread.
SENDER = """
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.one, args=(request,)).start()

    def one(self, request):
        sender = request.get_response_sender()
        x = given(request, "x")
        sender.send(answer(y=x * 2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
INPUTS = [("n", "INT64", [1]), ("how", "STRING", [1])]
Y = [("y", "INT64", [-1])]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    root = tmp_path_factory.mktemp("decoupled")
    files.python(
        root / "repository" / "repeater", REPEATER, inputs=INPUTS, outputs=Y, rows_max=0,
        more="model_transaction_policy { decoupled: true }",
    )  # fmt: skip
    with instance(root) as running:
        source = {"uri": f"file://{root / 'repository'}"}
        loaded = running.client().load(1, root, source=source)
        assert loaded.get("ok"), loaded
        yield running


@pytest.fixture
def client(served: InstanceProcess) -> Iterator[StreamClient]:
    made = StreamClient(served.path)
    yield made
    made.close()


def begin(client: StreamClient, n: int, how: str, operation: str = "generate_stream") -> int:
    client.next_id += 1000  # ids are the connection's own
    return client.begin(1, {"n": n, "how": how}, door="oip", asked={"operation": operation})


def events(answer: Generated) -> list[Any]:
    assert all(each.startswith(b"data: ") and each.endswith(b"\n\n") for each in answer.chunks)
    return [json.loads(each[6:]) for each in answer.chunks]


@pytest.mark.parametrize("how", ["here", "marked", "later"])
@pytest.mark.parametrize("n", [1, 2, 100])
def test_every_response_comes_once_and_in_order(client: StreamClient, how: str, n: int) -> None:
    answer = client.whole(begin(client, n, how))
    assert answer.kind == frames.END
    assert events(answer) == [
        {"model_name": "e", "model_version": "1", "y": number, "at": number} for number in range(n)
    ]


def test_an_answer_may_have_no_response_at_all(client: StreamClient) -> None:
    answer = client.whole(begin(client, 0, "here"))
    assert (answer.kind, answer.chunks) == (frames.END, [])


def test_many_streams_at_once_have_their_own_responses(client: StreamClient) -> None:
    idents = {begin(client, n % 7, "later"): n % 7 for n in range(200)}
    for ident, n in idents.items():
        assert [each["y"] for each in events(client.whole(ident))] == list(range(n))


@pytest.mark.parametrize(
    ("how", "came", "status", "words"),
    [
        ("error", 2, 503, "no more"),
        ("forgets", 2, 500, "without a final response"),
        ("raises", 0, 500, "spilled the milk"),
        ("returns", 0, 500, "returned something"),
        ("ignores", 0, 500, "took no response sender"),
    ],
)
def test_what_goes_wrong_ends_the_answer_with_its_cause(
    client: StreamClient, how: str, came: int, status: int, words: str
) -> None:
    answer = client.whole(begin(client, 2, how))
    assert len(events(answer)) == came
    assert words in answer.error["message"]
    assert answer.error["original_status"] == status


def test_generate_has_the_one_response_and_says_so_where_there_are_more(
    client: StreamClient,
) -> None:
    answer = client.whole(begin(client, 1, "here", "generate"))
    assert answer.json == {"model_name": "e", "model_version": "1", "y": 0, "at": 0}
    for n in (0, 2):
        refused = client.whole(begin(client, n, "here", "generate"))
        assert "generate_stream" in refused.error["message"]


def by_grpc(n: int, how: str) -> bytes:
    request = ModelInferRequest(model_name="repeater", id="g")
    request.inputs.add(name="n", datatype="INT64", shape=(1,))
    request.inputs.add(name="how", datatype="BYTES", shape=(1,))
    request.raw_input_contents.append(np.int64(n).tobytes())
    request.raw_input_contents.append(len(how).to_bytes(4, "little") + how.encode())
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(("how", "marks"), [("here", 0), ("marked", 1)])
def test_over_grpc_only_the_last_response_is_marked_final(
    client: StreamClient, how: str, marks: int
) -> None:
    answer = client.ask(
        1, by_grpc(3, how), door="oip-grpc", content_type="application/x-oip-grpc",
        asked={"operation": "stream_infer"},
    )  # fmt: skip
    told = [ModelInferResponse.FromString(each) for each in answer.chunks]
    assert [np.frombuffer(each.raw_output_contents[0], np.int64)[0] for each in told] == [0, 1, 2]
    assert [each.id for each in told] == ["g"] * 3
    final = [each.parameters["triton_final_response"].bool_param for each in told]
    assert final == [False, False, bool(marks)]


@pytest.mark.parametrize("door", ["oip", "oip-grpc", "runtime"])
def test_where_one_answer_is_asked_for_it_is_refused(client: StreamClient, door: str) -> None:
    kind = "application/x-oip-grpc" if door == "oip-grpc" else "application/json"
    refused = client.ask(1, by_grpc(1, "here"), door=door, content_type=kind)
    assert "decoupled" in refused.error["message"]
    assert refused.error["original_status"] == 501


def test_a_cancelled_request_is_told_to_the_model(client: StreamClient) -> None:
    ident = begin(client, 0, "endless")
    client.begun(ident)
    client.cancel(ident)
    wait_until(lambda: events(client.whole(begin(client, 0, "cancelled")))[0]["y"] == 1)


def test_a_reader_that_stops_for_a_while_misses_nothing(
    client: StreamClient, served: InstanceProcess
) -> None:
    """Others are answered meanwhile, and no response of its own is lost."""
    slow = StreamClient(served.path)
    ident = begin(slow, 200_000, "later")
    slow.begun(ident)
    others = client.whole(begin(client, 3, "later"))
    assert len(events(others)) == 3
    assert [each["y"] for each in events(slow.whole(ident))] == list(range(200_000))
    slow.close()


def test_the_end_of_the_process_ends_the_answers_that_it_had_begun(client: StreamClient) -> None:
    """One that has nothing yet is given back; the others break, and a new process serves."""
    begun = begin(client, 0, "endless")
    client.begun(begun)
    killer = client.whole(begin(client, 1, "dies"))
    assert killer.error["code"] == "stream-broken"
    assert client.whole(begun).error["code"] == "stream-broken"
    client.event("copy-ready")
    assert len(events(client.whole(begin(client, 2, "here")))) == 2


def test_a_model_that_is_not_decoupled_may_use_a_sender_too(tmp_path: Path) -> None:
    x = [("x", "FP32", [1])]
    files.python(tmp_path / "r" / "s", SENDER, inputs=x, outputs=[("y", "FP32", [1])])
    with instance(tmp_path) as running:
        client = running.client()
        client.serve(1, tmp_path / "r")
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [2]}
        body = json.dumps({"inputs": [tensor]}).encode()
        assert client.invoke(1, body, door="oip").json["outputs"][0]["data"] == [4.0]
