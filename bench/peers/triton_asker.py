"""Carries out what `bench/triton` asks of a server, with NVIDIA's clients as they are.

`triton_asker.py`: reads an ask a line, as JSON, and prints its outcome: [code, answer]. Of an error
only the code is told, since texts are each server's own. No ask takes more than ASK_S_MAX.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, shared_memory, triton_to_np_dtype

ASK_S_MAX = 12
CALL_S_MAX = 6
SETTLES_S, SETTLES_TIMES_MAX = 2.0, 4
ERROR = "an error"
Outcome = tuple[Any, Any]


def http(ask: dict[str, Any]) -> Outcome:
    body = base64.b64decode(ask["raw"]) if "raw" in ask else _json_bytes(ask["body"])
    headers = ask.get("headers", {})
    if headers.get("content-encoding") == "gzip":
        body = gzip.compress(body or b"")
    request = urllib.request.Request(
        ask["url"], body, {"content-type": "application/json", **headers}, method=ask["method"]
    )
    try:
        with urllib.request.urlopen(request, timeout=CALL_S_MAX) as answer:
            return answer.status, _read(answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return _original(error.code, error.read()), ERROR


def _original(code: int, body: bytes) -> int:
    """What the container answered, where SageMaker's ModelError tells it."""
    try:
        told = json.loads(body)
    except ValueError:
        return code
    return int(told.get("OriginalStatusCode", code)) if isinstance(told, dict) else code


def _json_bytes(body: Any) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _read(headers: Any, body: bytes) -> Any:
    length = headers.get("inference-header-content-length")
    kind = headers.get("content-type", "")
    if length is None and "json-header-size=" in kind:
        length = kind.partition("json-header-size=")[2]
    if length is not None:
        return [json.loads(body[: int(length)]), body[int(length) :].hex()]
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    text = body.decode(errors="backslashreplace")
    if text.startswith("data:"):
        events = [json.loads(each[5:]) for each in text.split("\n\n") if each]
        return [ERROR if set(each) == {"error"} else each for each in events]
    try:
        return json.loads(text)
    except ValueError:
        return text


def grpc_call(ask: dict[str, Any]) -> Outcome:
    call, given = ask["call"], ask["request"]
    kind = getattr(service_pb2, f"{'ModelInfer' if 'Infer' in call else call}Request")
    metadata = tuple(ask.get("metadata", {}).items())
    with grpc.insecure_channel(ask["grpc"]) as channel:
        made = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), call)
        try:
            if not isinstance(given, list):
                message = json_format.ParseDict(given, kind())
                return "OK", _told(made(message, timeout=CALL_S_MAX, metadata=metadata))
            messages = [json_format.ParseDict(each, kind()) for each in given]
            return _streamed(made, messages, metadata)
        except grpc.RpcError as error:
            return error.code().name, ERROR


def _streamed(made: Any, messages: list[Any], metadata: Any) -> Outcome:
    """What came before the end is part of the outcome, however it ended."""
    came: list[Any] = []
    code = "OK"
    try:
        for each in made(iter(messages), timeout=CALL_S_MAX, metadata=metadata):
            came.append(ERROR if each.error_message else _told(each.infer_response))
    except grpc.RpcError as error:
        code = error.code().name
    return code, came


def _told(message: Any) -> Any:
    told = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if "raw_output_contents" in told:
        told["raw_output_contents"] = [
            base64.b64decode(each).hex() for each in told["raw_output_contents"]
        ]
    return told


def http_client(ask: dict[str, Any]) -> Outcome:
    address = ask["base"].removeprefix("http://")
    client = over_http.InferenceServerClient(
        address, connection_timeout=CALL_S_MAX, network_timeout=CALL_S_MAX
    )
    return _by_client(client, over_http, ask, {})


def grpc_client(ask: dict[str, Any]) -> Outcome:
    client = over_grpc.InferenceServerClient(ask["grpc"])
    return _by_client(client, over_grpc, ask, {"client_timeout": float(CALL_S_MAX)})


def _by_client(client: Any, module: Any, ask: dict[str, Any], more: dict[str, Any]) -> Outcome:
    inputs = []
    for each in ask["inputs"]:
        made = module.InferInput(each["name"], each["shape"], each["datatype"])
        made.set_data_from_numpy(_array(each))
        inputs.append(made)
    named = ask.get("outputs")
    outputs = named and [module.InferRequestedOutput(**each) for each in named]
    try:
        result = client.infer(
            ask["model"], inputs, outputs=outputs, **more, **ask.get("options", {})
        )
    except InferenceServerException as error:
        return error.status() or "the client refused", ERROR
    finally:
        client.close()
    response = result.get_response()
    if not isinstance(response, dict):
        response = _told(response)
    tensors = {
        each["name"]: _shown(result.as_numpy(each["name"])) for each in response.get("outputs", [])
    }
    return "OK", {
        "tensors": tensors, "parameters": response.get("parameters", {}),
        "id": response.get("id", ""), "version": response.get("model_version"),
    }  # fmt: skip


def _array(one: dict[str, Any]) -> Any:
    kind = triton_to_np_dtype(one["datatype"])
    data = [each.encode() for each in one["data"]] if one["datatype"] == "BYTES" else one["data"]
    return np.array(data, kind).reshape(one["shape"])


def _shown(array: Any) -> Any:
    if array is None:
        return None
    values = [each.decode("latin-1") if isinstance(each, bytes) else each
              for each in array.reshape(-1).tolist()]  # fmt: skip
    return [str(array.dtype), list(array.shape), values]


def together(ask: dict[str, Any]) -> Outcome:
    """Several asks, each begun a little after the one before; their outcomes in that order."""
    found: list[Any] = [None] * len(ask["asks"])

    def put(at: int, one: dict[str, Any]) -> None:
        found[at] = _bounded(one)

    threads = []
    for at, one in enumerate(ask["asks"]):
        threads.append(threading.Thread(target=put, args=(at, one)))
        threads[-1].start()
        time.sleep(ask.get("apart_s", 0.3))
    for thread in threads:
        thread.join(CALL_S_MAX)
    return "all", found


def shared_regions(ask: dict[str, Any]) -> Outcome:
    """One life of a region of shared memory: each step's code."""
    key, steps = f"/penstock-answers-{time.monotonic_ns()}", []
    client: Any = (
        over_http.InferenceServerClient(ask["base"].removeprefix("http://"))
        if ask["by"] == "http"
        else over_grpc.InferenceServerClient(ask["grpc"])
    )
    module = over_http if ask["by"] == "http" else over_grpc
    region = shared_memory.create_shared_memory_region("both", key, 16)

    def step(name: str, act: Any) -> None:
        try:
            steps.append([name, "OK", act()])
        except InferenceServerException as error:
            steps.append([name, error.status(), ERROR])

    def inferred(size: int, offset: int = 0, known: str = "both") -> Any:
        given = module.InferInput("x", [1, 2], "FP32")
        given.set_shared_memory(known, size, offset)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("both", 8, 8)
        client.infer(ask["model"], [given], outputs=[wanted])
        return shared_memory.get_contents_as_numpy(region, np.float32, [4]).tolist()

    def status() -> Any:
        answer = client.get_system_shared_memory_status()
        if ask["by"] == "grpc":
            return sorted(answer.regions)
        return sorted(each["name"] for each in answer)

    try:
        shared_memory.set_shared_memory_region(region, [np.array([1, 2], np.float32)])
        step("infer before", lambda: inferred(8))
        step("register", lambda: client.register_system_shared_memory("both", key, 16))
        step("register again", lambda: client.register_system_shared_memory("both", key, 16))
        step("register larger", lambda: client.register_system_shared_memory("wide", key, 64))
        step("register none", lambda: client.register_system_shared_memory("none", "/no-such", 8))
        step("status", status)
        step("infer", lambda: inferred(8))
        step("infer beyond", lambda: inferred(8, 12))
        step("infer short", lambda: inferred(4))
        step("infer elsewhere", lambda: inferred(8, 0, "unknown"))
        step("unregister none", lambda: client.unregister_system_shared_memory("none"))
        step("unregister", lambda: client.unregister_system_shared_memory("both"))
        step("status after", status)
        step("unregister all", client.unregister_system_shared_memory)
    finally:
        shared_memory.destroy_shared_memory_region(region)
        client.close()
    return "all", steps


DOORS = {
    "http": http, "grpc": grpc_call, "http-client": http_client, "grpc-client": grpc_client,
    "together": together, "shared-memory": shared_regions,
}  # fmt: skip


def _settled(ask: dict[str, Any]) -> Outcome:
    """What is answered once it no longer changes: figures may be a moment old."""
    before = DOORS[ask["door"]](ask)
    for _ in range(SETTLES_TIMES_MAX):
        time.sleep(SETTLES_S)
        now = DOORS[ask["door"]](ask)
        if now == before:
            break
        before = now
    return before


def _bounded(ask: dict[str, Any]) -> Outcome:
    try:
        if ask.get("settles"):
            return _settled(ask)
        return DOORS[ask["door"]](ask)
    except TimeoutError:
        return "no answer", ""
    except (OSError, InferenceServerException) as error:
        lost = isinstance(error, ConnectionError) or "refused" in str(error)
        return ("connection lost", "") if lost else (f"failed: {type(error).__name__}", "")


def _late(*_: object) -> None:
    raise TimeoutError


def _plain(value: Any) -> Any:
    """JSON has no NaN that is equal to itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _late)
    for line in sys.stdin:
        signal.alarm(ASK_S_MAX)
        try:
            outcome: Outcome = _bounded(json.loads(line))
        except TimeoutError:
            outcome = ("no answer", "")
        except Exception as error:  # of the client itself: the same for both servers
            outcome = (f"the client failed: {type(error).__name__}: {error}"[:200], "")
        signal.alarm(0)
        print(json.dumps(_plain(outcome)), flush=True)
