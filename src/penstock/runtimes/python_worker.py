"""The worker process of the python runtime: `python -m penstock.runtimes.python_worker FD FD`.

Loads the model's code, then answers batches until the socket ends. Runs nothing but the model: one
thread, blocking reads. It dies with its instance (PR_SET_PDEATHSIG, and the end of the socket).
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from penstock.errors import ModelError, PenstockError
from penstock.runtimes import worker_wire
from penstock.runtimes.parent_death import die_with_parent

Answer = tuple[bytes, bytes, bytes, int]


class Contract(Protocol):
    """How the model's code is called: SageMaker's functions or Triton's class."""

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        """One answer per (meta, body); a request that fails is an answer too."""

    def close(self) -> None: ...


def failed(error: PenstockError) -> Answer:
    return orjson.dumps(error.to_dict()), b"", b"", worker_wire.ERROR


def load(init: dict[str, Any]) -> Contract:
    if init["triton_python"]:
        from penstock.runtimes.triton_contract import TritonContract

        return TritonContract(init)
    from penstock.runtimes.sagemaker_contract import SageMakerContract

    return SageMakerContract(init)


def _load_or_explain(init: dict[str, Any]) -> Contract | PenstockError:
    """Whatever the model's code raises, exits included, becomes an error with a hint."""
    try:
        return load(init)
    except PenstockError as error:
        return error
    except BaseException as error:
        traceback.print_exc()
        hint = "The traceback is in the instance's log."
        if isinstance(error, ImportError) and init.get("requirements"):
            hint = (
                f"{init['requirements']} is not installed by itself: install what it names into "
                "the server's Python environment."
            )
        return ModelError(
            "model-code-failed",
            f"{init['file']}: {type(error).__name__}: {str(error)[:1000]}",
            hint=hint,
        )


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
            answers = contract.answer(worker_wire.unpack_batch(payload, count), progress)
            channel.sendall(worker_wire.pack_replies(answers))
        elif kind == worker_wire.INIT:
            loaded = _load_or_explain(orjson.loads(payload))
            if isinstance(loaded, PenstockError):
                body = orjson.dumps(loaded.to_dict())
                channel.sendall(worker_wire.message(worker_wire.FAILED, body))
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
