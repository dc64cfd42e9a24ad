"""The process that hosts several Python models: `python -m penstock.runtimes.python.shared.inside`.

One thread, blocking reads: jobs are done in order, so one model's code runs at any time, and the
shared memory says whose. After a model is unloaded, only objects remain that other code refers to:
threads that it started go on, and find its modules empty.

`LibraryGrowth` measures the memory of libraries that a model is the first to import: a process
needs it only once.

Imports the standard library alone.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.runtimes.python import batches
from penstock.runtimes.python.shared.stage import Stage, Surroundings
from penstock.runtimes.python.worker import Contract, about, answers_of, load
from penstock.runtimes.workers import inside
from penstock.runtimes.workers.failures import error_bytes, log_traceback
from penstock.runtimes.workers.memory import give_back_freed, own_bytes
from penstock.runtimes.workers.wire import message


class LibraryGrowth:
    """`bytes`: growth by imports while it was `watching`.

    Imports of the model's own files do not count, but imports that they make do.
    """

    def __init__(self, who: Surroundings, measure: Callable[[], int]) -> None:
        self.bytes = 0
        self._who = who
        self._measure = measure
        self._inside = False  #: True during a library's import, which is measured as a whole

    @contextmanager
    def watching(self) -> Iterator[None]:
        plain = builtins.__import__

        def watched(name: str, *more: Any, **named: Any) -> Any:
            if self._inside or not self._is_news(name, *more):
                return plain(name, *more, **named)
            self._inside = True
            before = self._measure()
            try:
                return plain(name, *more, **named)
            finally:
                self._inside = False
                self.bytes += max(0, self._measure() - before)

        builtins.__import__ = watched
        try:
            yield
        finally:
            if builtins.__import__ is watched:
                builtins.__import__ = plain

    def _is_news(self, name: str, *more: Any) -> bool:
        """Whether the import is of a new library. `more`: globals, locals, names, level of an
        import."""
        if len(more) > 3 and more[3]:
            return False  # a relative import in a package of the model's own
        top = name.partition(".")[0]
        if name in sys.modules:
            return False
        return not any(
            Path(path, top).exists() or Path(path, f"{top}.py").exists()
            for path in sys.path
            if path and self._who.is_own_file(path)
        )


class Models:
    """The models of this process, by number. `busy`: what it does, for the instance."""

    def __init__(self, channel: socket.socket, busy: batches.Busy) -> None:
        # Imports that every model needs count for the worker, not for the first model.
        import numpy  # noqa: F401

        import penstock.runtimes.python.sagemaker_contract
        import penstock.runtimes.python.triton_contract  # noqa: F401

        self._channel = channel
        self._writing = threading.Lock()
        self._busy = busy
        self._stage = Stage()
        self._loaded: dict[int, tuple[Contract, Surroundings]] = {}

    def load(self, number: int, init: dict[str, Any]) -> bytes:
        """Returns LOADED or NOT_LOADED."""
        self._stage.clear()
        _tidy()
        before = own_bytes(os.getpid())
        code_dir = str(Path(init["model_dir"], init["file"]).parent)
        output = os.open(init["output"], os.O_WRONLY)
        who = Surroundings(init["model_dir"], code_dir, init["environment"], output)
        libraries = LibraryGrowth(who, lambda: own_bytes(os.getpid()))
        self._stage.enter(who)
        try:
            with libraries.watching():
                contract = load(init)
        except BaseException as error:
            if not isinstance(error, PenstockError):
                log_traceback(error)
            told = error_bytes(inside.explain(error, init))
            del error
            self._stage.clear()
            who.forget()
            _tidy()
            return message(batches.NOT_LOADED, told)
        self._loaded[number] = contract, who
        attach = getattr(contract, "attach", None)
        if attach is not None:
            attach(partial(self._send_for, number), self._busy)
        _tidy()
        after = own_bytes(os.getpid())
        growth = max(0, after - before)
        facts = {
            "about": about(contract),
            "own_bytes": after,
            "libraries_bytes": min(libraries.bytes, growth),
            "growth_bytes": max(0, growth - libraries.bytes),
        }
        return message(batches.LOADED, json.dumps(facts).encode())

    def send(self, data: bytes) -> None:
        with self._writing:
            self._channel.sendall(data)

    def _send_for(self, number: int, data: bytes) -> None:
        """Sends what a model says between its jobs, from any thread."""
        self.send(message(batches.FOR, batches.JOB.pack(number, 0)) + data)

    def unload(self, number: int) -> bytes:
        contract, who = self._loaded.pop(number, (None, None))
        if contract is not None and who is not None:
            self._stage.enter(who)
            _close(contract)
            del contract
            self._stage.clear()
            who.forget()
            gc.unfreeze()
        _tidy()
        facts = {"own_bytes": own_bytes(os.getpid())}
        return message(batches.UNLOADED, json.dumps(facts).encode())

    def answer(
        self, number: int, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> bytes:
        contract, who = self._loaded[number]
        self._stage.enter(who)
        return batches.pack_replies(answers_of(contract, items, progress))

    def close(self) -> None:
        for contract, who in self._loaded.values():
            self._stage.enter(who)
            _close(contract)


def _close(contract: Contract) -> None:
    try:
        contract.close()
    except BaseException as error:  # its model is gone in any case
        log_traceback(error)


def _tidy() -> None:
    """Frees unreachable objects. The others are frozen: until a model is unloaded, collections need
    not look at all models again."""
    gc.collect()
    gc.freeze()
    give_back_freed()


def serve(channel: socket.socket) -> None:
    """Does jobs until the instance closes its end."""
    busy = batches.Busy(int(sys.argv[2]))
    begun = inside.loaded(
        channel,
        lambda init: Models(channel, busy),
        about=lambda models: {"own_bytes": own_bytes(os.getpid())},
    )
    if begun is None:
        return
    models, _, asked = begun
    model = 0
    for kind, count, payload in asked:
        if kind == batches.FOR:
            model, number = batches.JOB.unpack(payload)
            busy.begin(number, model)
            continue
        if kind == batches.BATCH:
            told = models.answer(model, batches.unpack_batch(payload, count), busy.item)
        elif kind == batches.LOAD:
            told = models.load(model, json.loads(payload))
        else:
            told = models.unload(model)
        models.send(told)
    models.close()


if __name__ == "__main__":
    inside.main(serve)
