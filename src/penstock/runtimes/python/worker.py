"""The worker process of the python runtime: `python -m penstock.runtimes.python.worker FD FD`.

Loads the model's code, then answers batches until the socket ends. Runs nothing but the model: one
thread, blocking reads. It dies with its instance (PR_SET_PDEATHSIG, and the end of the socket).
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from penstock.errors import PenstockError
from penstock.runtimes.confinement.parent_death import die_with_parent
from penstock.runtimes.workers import wire as worker_wire
from penstock.runtimes.workers.failures import (
    ANSWER_BYTES_MAX,
    LOG_HINT,
    checked_answer,
    error_bytes,
    log_traceback,
    model_error,
)

Answer = tuple[bytes, bytes, bytes, int]


class Contract(Protocol):
    """How the model's code is called: SageMaker's functions or Triton's class."""

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        """One answer per (meta, body); a request that fails is an answer too."""

    def close(self) -> None: ...


def failed(error: BaseException) -> Answer:
    """The answer for whatever the model's code raised; its story goes to the log."""
    if not isinstance(error, PenstockError):
        log_traceback(error)
    return error_bytes(error), b"", b"", worker_wire.ERROR


def answered(body: Any, content_type: Any, attributes: Any = None) -> Answer:
    """The answer with what the model's code returned. Raises ModelError for what can't be one."""
    outcome = worker_wire.PLAIN if attributes is None else worker_wire.WITH_ATTRIBUTES
    given = "" if attributes is None else attributes
    return *checked_answer(body, content_type, given), outcome


def load(init: dict[str, Any]) -> Contract:
    if init["triton_python"]:
        from penstock.runtimes.python.triton_contract import TritonContract

        return TritonContract(init)
    from penstock.runtimes.python.sagemaker_contract import SageMakerContract

    return SageMakerContract(init)


def _load_or_explain(init: dict[str, Any]) -> Contract | PenstockError:
    """Whatever the model's code raises, exits included, becomes an error with a hint."""
    try:
        return load(init)
    except BaseException as error:
        if isinstance(error, PenstockError):
            return model_error(error)
        log_traceback(error)
        hint = LOG_HINT
        if isinstance(error, ImportError) and init.get("requirements"):
            hint = (
                f"{init['requirements']} is not installed by itself: install what it names into "
                "the server's Python environment."
            )
        return model_error(error, where=init["file"], hint=hint)


def _answers(
    contract: Contract, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
) -> list[Answer]:
    """One answer per item, whatever the contract does, and no more than one message holds."""
    try:
        answers = contract.answer(items, progress)
    except BaseException as error:  # the contracts see to each item; this is for what they miss
        answers = [failed(error)] * len(items)
    room = ANSWER_BYTES_MAX
    for index, (body, *_) in enumerate(answers):
        room -= len(body)
        if room < 0:
            answers[index] = failed(worker_wire.too_many_bytes())
    return answers


def serve(channel: socket.socket, progress_map: mmap.mmap) -> None:
    """Reads messages until the instance closes its end."""
    reader = channel.makefile("rb", buffering=1 << 16)
    view = memoryview(progress_map).cast("I")

    def progress(index: int) -> None:
        view[0] = index

    contract: Contract | None = None
    head = worker_wire.HEAD
    while True:
        raw = reader.read(8)
        if len(raw) < 8:
            break
        size, kind, count = head.unpack(raw)
        payload = reader.read(size)
        if len(payload) < size:
            break
        if kind == worker_wire.BATCH and contract is not None:
            answers = _answers(contract, worker_wire.unpack_batch(payload, count), progress)
            channel.sendall(worker_wire.pack_replies(answers))
        elif kind == worker_wire.INIT:
            loaded = _load_or_explain(orjson.loads(payload))
            if isinstance(loaded, PenstockError):
                channel.sendall(worker_wire.message(worker_wire.FAILED, error_bytes(loaded)))
                return
            contract = loaded
            channel.sendall(worker_wire.message(worker_wire.READY, b"{}"))
    if contract is not None:
        contract.close()


def main() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.setblocking(True)
    progress_map = mmap.mmap(int(sys.argv[2]), mmap.PAGESIZE)
    serve(channel, progress_map)
    sys.stdout.flush()
    os._exit(0)  # user threads must not keep a worker alive that nobody talks to


if __name__ == "__main__":
    main()
