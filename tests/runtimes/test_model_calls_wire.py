"""Calls of a Python model on its worker's socket: golden bytes, both ends, threads that wait."""

from __future__ import annotations

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.python import triton_backend_utils as utils
from penstock.runtimes.python.caller import (
    CALL,
    INFER,
    Caller,
    WorkerCall,
    pack_call,
    pack_called,
    pack_refused,
    unpack_call,
    unpack_called,
)
from penstock.runtimes.workers.wire import HEAD, read_messages

X = {"x": np.array([[1.0, 2.0]], np.float32)}


def test_a_call_is_a_head_and_a_pack_of_tensors() -> None:
    metadata = InferMetadata(
        request_id="r", correlation_id="c", flags=1, timeout_us=2_000_000, parameters={"a": 1},
        outputs=("y",),
    )  # fmt: skip
    said = pack_call(7, "encoder", -1, metadata, X)
    head = (
        b'{"i":7,"d":"infer","m":"encoder","v":-1,"o":["y"],"t":2000000,"r":"r","s":"c","f":1,'
        b'"p":{"a":1}}'
    )
    tensors = b'[["x","FP32",[1,2],8]]      '  # up to a multiple of 16, with its length before it
    assert said == (
        HEAD.pack(4 + len(head) + 4 + len(tensors) + 16, CALL, 0)
        + struct.pack("<I", len(head))
        + head
        + struct.pack("<I", len(tensors))
        + tensors
        + struct.pack("<2f", 1.0, 2.0)
        + bytes(8)
    )
    call = unpack_call(said[HEAD.size :])
    assert call._replace(tensors={}) == WorkerCall(7, INFER, "encoder", -1, metadata, {})
    assert call.timeout_s == 2.0
    assert call.tensors["x"].tolist() == [[1.0, 2.0]]


def test_an_answer_has_tensors_or_words_and_a_code() -> None:
    called = unpack_called(pack_called(7, X)[HEAD.size :])
    assert (called.number, called.error) == (7, None)
    assert called.tensors["x"].tolist() == [[1.0, 2.0]]
    refused = unpack_called(pack_refused(8, "not ready", 2)[HEAD.size :])
    assert refused == (8, {}, "not ready", 2, {}, True)
    more = unpack_called(pack_called(9, X, last=False)[HEAD.size :])
    assert (more.number, more.last) == (9, False)


@pytest.mark.parametrize("payload", [b"", b"\xff\0\0\0", b"\x02\0\0\0[]", b"\x02\0\0\0{}"])
def test_what_is_no_call_is_an_error_and_nothing_else(payload: bytes) -> None:
    with pytest.raises((ValueError, KeyError, struct.error)):
        unpack_call(payload)


def test_threads_of_a_model_wait_for_their_own_answers_in_any_order() -> None:
    """Batches go to the main thread; the end of the socket answers whoever still waits."""
    ours, theirs = socket.socketpair()
    caller = Caller(ours)
    batches = caller.batches(read_messages(ours.makefile("rb")))
    seen: list[tuple[int, int, bytes]] = []
    main = threading.Thread(target=lambda: seen.extend(batches))
    main.start()
    far = read_messages(theirs.makefile("rb"))
    with ThreadPoolExecutor(3) as threads:
        waiting = [
            threads.submit(lambda name=name: caller.call(name, -1, InferMetadata(), X).result(20))
            for name in ("a", "b", "c")
        ]
        calls = [unpack_call(payload) for _, _, payload in (next(far), next(far), next(far))]
        theirs.sendall(HEAD.pack(3, 4, 1) + b"abc")
        for call in reversed(calls[1:]):
            theirs.sendall(pack_refused(call.number, call.model, 4))
        answered = {call.model for call in calls[1:]}
        theirs.shutdown(socket.SHUT_WR)
        said = {each.result(20).error for each in waiting}
    main.join(20)
    assert said == {*answered, "the instance is gone"}
    assert seen == [(4, 1, b"abc")]
    ours.close()
    theirs.close()


def test_a_request_that_is_none_raises_where_it_is_made() -> None:
    """Before anything is sent; what the other model says is the response's."""
    request = utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[])
    for call, words in (
        (request.exec, "other models can be called in execute"),
        (lambda: request.exec(decoupled=True), "other models can be called in execute"),
        (utils.InferenceRequest(inputs=[]).exec, "model_name is missing"),
    ):
        with pytest.raises(utils.TritonModelException, match=words):
            call()
