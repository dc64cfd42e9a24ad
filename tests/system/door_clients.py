"""One client loop per door: asks for its own id, and writes down what came of it.

They speak the doors' wire forms themselves, on connections of their own, so that a byte too many
or an answer that ends early is seen and not smoothed over. The models of `test_nemesis.py` say the
id back: `echo` as a whole, `talk` as pieces `<id>-0`, `<id>-1`, ….
"""

from __future__ import annotations

import http.client
import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from botocore.eventstream import EventStreamBuffer
from tests.kit.history import History

from penstock.wire.oip_messages import SERVICE, method_classes

PIECES = 4
#: A client that waits longer than this says `unknown`; far above every deadline of the test.
PATIENCE_S = 40.0


class Clients:
    """`per_door` threads for each door, until the block ends; each ends with its last outcome."""

    def __init__(self, history: History, port: int, grpc_port: int, *, per_door: int) -> None:
        self._history = history
        self._port = port
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self._stop = threading.Event()
        self._numbers = itertools.count()
        doors = self._doors()
        self.doors = tuple(doors)
        self._threads = [
            threading.Thread(target=self._run, args=(door, ask), daemon=True)
            for door, ask in doors.items()
            for _ in range(per_door)
        ]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S + 5)
        self._channel.close()

    def _doors(self) -> dict[str, Callable[[str, str], None]]:
        return {
            "invoke": self._invoke,
            "stream": self._stream,
            "oip-http": self._oip_http,
            "oip-generate": self._generate,
            "oip-grpc": self._oip_grpc,
            "oip-grpc-stream": self._oip_grpc_stream,
            "openai": self._openai,
        }

    def _run(self, door: str, ask: Callable[[str, str], None]) -> None:
        while not self._stop.is_set():
            ident = f"r{next(self._numbers)}"
            try:
                ask(ident, door)
            except (OSError, http.client.HTTPException) as error:
                self._history.add(ident, "unknown", door, repr(error))
                self._stop.wait(0.05)
            self._stop.wait(0.005)

    # whole answers

    def _invoke(self, ident: str, door: str) -> None:
        self._history.add(ident, "invoke", door, ident)
        body = json.dumps({"instances": [[ident]]}).encode()
        status, body = self._post("/endpoints/echo/invocations", body)
        if status == 200:
            self._history.add(ident, "ok", door, *json.loads(body)["predictions"][0])
        else:
            self._fail(ident, door, body)

    def _oip_http(self, ident: str, door: str) -> None:
        self._history.add(ident, "invoke", door, ident)
        status, body = self._post("/v2/models/echo/infer", json.dumps(_tensor(ident)).encode())
        if status == 200:
            self._history.add(ident, "ok", door, *_first_data(json.loads(body)))
        else:
            self._fail(ident, door, body)

    def _oip_grpc(self, ident: str, door: str) -> None:
        request, response = method_classes("ModelInfer")
        call = self._channel.unary_unary(
            f"/{SERVICE}/ModelInfer", request.SerializeToString, response.FromString
        )
        self._history.add(ident, "invoke", door, ident)
        try:
            answer = call(_infer(request, "echo", ident), timeout=PATIENCE_S)
        except grpc.RpcError as error:
            self._fail_grpc(ident, door, error)
        else:
            self._history.add(ident, "ok", door, *_texts(answer))

    # answers in pieces

    def _stream(self, ident: str, door: str) -> None:
        due = self._due(ident)
        self._history.add(ident, "invoke", door, *due)
        frames, left_bytes = EventStreamBuffer(), 0
        sse = ""
        with self._posted("/endpoints/talk/invocations-response-stream", _said(ident)) as answer:
            if answer.status != 200:
                self._fail(ident, door, answer.read())
                return
            while data := answer.read1():
                frames.add_data(data)
                left_bytes += len(data)
                for message in frames:
                    left_bytes -= message.prelude.total_length
                    if message.headers[":message-type"] != "event":
                        self._fail(ident, door, message.payload)
                    else:
                        sse = self._take_sse(ident, door, sse + message.payload.decode())
        assert not left_bytes, "a stream ended in the middle of a frame"

    def _generate(self, ident: str, door: str) -> None:
        self._history.add(ident, "invoke", door, *self._due(ident))
        sse = ""
        with self._posted("/v2/models/talk/generate_stream", _said(ident)) as answer:
            if answer.status != 200:
                self._fail(ident, door, answer.read())
                return
            while data := answer.read1():
                sse = self._take_sse(ident, door, sse + data.decode())

    def _take_sse(self, ident: str, door: str, text: str) -> str:
        """Whole events of `text` are written down; returns the rest."""
        *blocks, rest = text.split("\n\n")
        for block in blocks:
            kind, _, data = block.rpartition("\n")
            told = json.loads(data.removeprefix("data: "))
            if kind == "event: text":
                self._history.add(ident, "piece", door, told["text"])
            elif kind == "event: done":
                self._history.add(ident, "ok", door)
            elif kind == "event: error":
                continue  # the pipeline's own word for what the door says next
            elif "error" in told:
                self._fail(ident, door, json.dumps(told).encode())
            else:
                self._fail(ident, door, data.encode())
        return rest

    def _openai(self, ident: str, door: str) -> None:
        self._history.add(ident, "invoke", door, *self._due(ident))
        text = ""
        with self._posted("/v1/chat/completions", _said(ident)) as answer:
            if answer.status != 200:
                self._fail(ident, door, answer.read())
                return
            while data := answer.read1():
                *events, text = (text + data.decode()).split("\n\n")
                for event in events:
                    self._take_openai(ident, door, event.removeprefix("data: "))

    def _take_openai(self, ident: str, door: str, data: str) -> None:
        if data == "[DONE]":
            self._history.add(ident, "ok", door)
            return
        told = json.loads(data)
        if "error" in told:
            self._fail(ident, door, data.encode())
            return
        for choice in told.get("choices", ()):
            if choice["delta"].get("content"):
                self._history.add(ident, "piece", door, choice["delta"]["content"])

    def _oip_grpc_stream(self, ident: str, door: str) -> None:
        request, response = method_classes("ModelStreamInfer")
        call = self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", request.SerializeToString, response.FromString
        )
        self._history.add(ident, "invoke", door, *self._due(ident))
        asked: queue.Queue[Any] = queue.Queue()
        asked.put(
            _infer(
                request, "talk", json.dumps(_said(ident)), name="request", shape=(1,), final=True
            )
        )
        try:
            for answer in call(_until_none(asked), timeout=PATIENCE_S):
                if answer.error_message:
                    self._fail(ident, door, answer.error_message.encode())
                    asked.put(None)
                    continue
                said = answer.infer_response
                texts = _texts(said)
                if texts and texts[0] == "text":
                    self._history.add(ident, "piece", door, json.loads(texts[1])["text"])
                if said.parameters["triton_final_response"].bool_param:
                    self._history.add(ident, "ok", door)
                    asked.put(None)
        except grpc.RpcError as error:
            self._fail_grpc(ident, door, error)
        finally:
            asked.put(None)

    # the same for all

    def _due(self, ident: str) -> list[str]:
        return [f"{ident}-{at}" for at in range(PIECES)]

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        with self._posted(path, body) as answer:
            return answer.status, answer.read()

    def _posted(self, path: str, body: bytes | dict[str, Any]) -> _Answer:
        return _Answer(
            self._port, path, body if isinstance(body, bytes) else json.dumps(body).encode()
        )

    def _fail(self, ident: str, door: str, body: bytes) -> None:
        self._history.add(ident, "fail", door, code_of(body.decode("utf-8", "replace")))
        self._stop.wait(0.05)  # a client backs off

    def _fail_grpc(self, ident: str, door: str, error: grpc.RpcError) -> None:
        self._history.add(ident, "fail", door, code_of(f"{error.code()} {error.details()}"))
        self._stop.wait(0.05)


class _Answer:
    """The answer to one POST on a connection of its own, which nothing may follow."""

    def __init__(self, port: int, path: str, body: bytes) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.read = self._answer.read
        self.read1 = self._answer.read1

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._socket.setblocking(False)
            try:
                more = self._socket.recv(1)
            except BlockingIOError:
                more = b""
            assert not more, "bytes came behind the end of an answer"
        self._connection.close()


def code_of(text: str) -> str:
    """Which of the gateway's own errors a door's words tell; else the words."""
    for words, code in (
        ("has no copy that is well", "no-healthy-copy"),
        ("part of the answer was sent", "stream-broken"),
        ("as many requests waiting", "all-copies-full"),
        ("gave the request back", "copies-lost"),
        ("did not answer within", "deadline-passed"),
        ("process was ended by", "worker-died"),
        ("Python steps restarts", "worker-down"),
    ):
        if words in text:
            return code
    return text


def _said(ident: str) -> dict[str, Any]:
    return {"model": "talk", "stream": True, "messages": [{"role": "user", "content": ident}]}


def _tensor(ident: str) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": [ident]}
    return {"inputs": [tensor]}


def _first_data(answer: dict[str, Any]) -> list[str]:
    return [str(text) for text in answer["outputs"][0]["data"]]


def _infer(
    request: Any,
    model: str,
    text: str,
    *,
    name: str = "x",
    shape: tuple[int, ...] = (1, 1),
    final: bool = False,
) -> Any:
    asked = request(model_name=model)
    tensor = asked.inputs.add(name=name, datatype="BYTES", shape=shape)
    tensor.contents.bytes_contents.append(text.encode())
    if final:
        asked.parameters["triton_enable_empty_final_response"].bool_param = True
    return asked


def _texts(answer: Any) -> list[str]:
    """The BYTES tensors of an answer, each with one element, in either form."""
    if answer.raw_output_contents:
        return [raw[4:].decode() for raw in answer.raw_output_contents]
    return [tensor.contents.bytes_contents[0].decode() for tensor in answer.outputs]


def _until_none(asked: queue.Queue[Any]) -> Iterator[Any]:
    while (request := asked.get()) is not None:
        yield request
