"""The worker process of the python runtime: `python -m penstock.runtimes.python.worker FD FD`.

Loads the model's code, then answers batches until the socket ends. It runs only the model: one
thread with blocking reads, and a second one if the model may call others (`caller`).
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol

from penstock.runtimes.python import batches
from penstock.runtimes.python.batches import Answer, failed
from penstock.runtimes.workers import inside
from penstock.runtimes.workers.failures import ANSWER_BYTES_MAX


class Contract(Protocol):
    """How the model is called: SageMaker's functions, Triton's class, or a predictor of ours."""

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        """One answer per (meta, body); a request that fails is an answer too."""

    def close(self) -> None: ...


def load(init: dict[str, Any]) -> Contract:
    if init["triton_python"]:
        from penstock.runtimes.python.triton_contract import TritonContract

        return TritonContract(init)
    if init.get("task") == "tensor":
        from penstock.runtimes.python.predictor_contract import PredictorContract

        return PredictorContract(init)
    from penstock.runtimes.python.sagemaker_contract import SageMakerContract

    return SageMakerContract(init)


def about(contract: Contract) -> dict[str, Any]:
    """What the instance needs to know of the loaded model."""
    told = getattr(contract, "about", dict)
    return dict(told())


def answers_of(
    contract: Contract, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
) -> list[Answer]:
    """One answer per item, whatever the contract does; together they fit into one message."""
    try:
        answers = contract.answer(items, progress)
    except BaseException as error:  # for errors that a contract's own handling misses
        answers = [failed(error)] * len(items)
    room = ANSWER_BYTES_MAX
    for index, (body, *_) in enumerate(answers):
        room -= len(body)
        if room < 0:
            answers[index] = failed(batches.too_many_bytes())
    return answers


def serve(channel: socket.socket) -> None:
    """Reads messages until the instance closes its end."""
    busy = batches.Busy(int(sys.argv[2]))
    loaded = inside.loaded(channel, load, about=about)
    if loaded is None:
        return
    contract, init, messages = loaded
    send: Callable[[bytes], None] = channel.sendall
    if init["triton_python"]:
        from penstock.runtimes.python.caller import Caller
        from penstock.runtimes.python.pb_utils.requests import connect

        caller = Caller(channel)
        send = caller.send
        if init.get("calls"):
            connect(caller)
            messages = caller.batches(messages)
        contract.attach(send, busy)  # type: ignore[attr-defined]  # a TritonContract
    for kind, count, payload in messages:
        if kind == batches.BATCH:
            answers = answers_of(contract, batches.unpack_batch(payload, count), busy.item)
            send(batches.pack_replies(answers))
    contract.close()


if __name__ == "__main__":
    inside.main(serve)
