"""The worker process of Python steps: `python -m penstock.runtimes.pipeline.worker FD`.

Loads the artifact's code, then runs calls on a few threads; a generator's pieces leave as they are
made. `model_fn(model_dir)`, where the code has one, is called once, and what it returns is given to
functions with a parameter `model`. A function that follows another step gets an iterator of its
pieces as `pieces`.

Messages have the head of `workers.wire`; payloads are JSON. INIT, READY and FAILED are as there.

    CALL      {"i": id, "f": function, "a": arguments, "s": whether it follows a step}
    FEED      {"i": id, "v": piece}
    FEED_END  {"i": id}
    STOP      {"i": id}
    HOLD      {"i": id, "h": whether its next piece is to wait}
    PIECE     {"i": id, "v": piece}
    DONE      {"i": id, "v": result, "g": whether it was a generator, whose pieces are the result}
    BROKEN    {"i": id, "e": error}
"""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import orjson

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.workers import inside
from penstock.runtimes.workers.failures import log_traceback, model_error
from penstock.runtimes.workers.inside import import_code
from penstock.runtimes.workers.wire import message

CALL: Final = 16
FEED: Final = 17
FEED_END: Final = 18
STOP: Final = 19
PIECE: Final = 20
DONE: Final = 21
BROKEN: Final = 22
HOLD: Final = 23

_END: Final = object()


class Running:
    """One call on its thread."""

    def __init__(self) -> None:
        self.stopped = False
        self.future: Future[None] | None = None
        self.fed: SimpleQueue[Any] = SimpleQueue()
        self._going = threading.Event()
        self._going.set()

    def pieces(self) -> Iterator[Any]:
        while (piece := self.fed.get()) is not _END:
            yield piece

    def stop(self) -> None:
        """A generator ends at its next piece; a plain function finishes, and its result is
        dropped."""
        self.stopped = True
        self.fed.put(_END)
        self._going.set()

    def hold(self, held: bool) -> None:
        if held and not self.stopped:
            self._going.clear()
        else:
            self._going.set()

    def may_go_on(self) -> bool:
        """Blocks before a piece is sent while the call is on hold; whether the piece is still
        wanted."""
        self._going.wait()
        return not self.stopped


class Worker:
    def __init__(self, channel: socket.socket, init: dict[str, Any]) -> None:
        self._channel = channel
        self._writing = threading.Lock()
        self._functions, self._model = loaded(init)
        self._threads = ThreadPoolExecutor(init["threads"], "steps")
        self._running: dict[int, Running] = {}

    def command(self, kind: int, told: dict[str, Any]) -> None:
        ident = told["i"]
        if kind == CALL:
            running = self._running[ident] = Running()
            running.future = self._threads.submit(self._run, ident, running, told)
            return
        known = self._running.get(ident)
        if known is None:
            return  # the call has ended
        if kind == FEED:
            known.fed.put(told["v"])
        elif kind == FEED_END:
            known.fed.put(_END)
        elif kind == HOLD:
            known.hold(told["h"])
        elif kind == STOP:
            known.stop()
            if known.future is not None and known.future.cancel():  # it was waiting for a thread
                self._running.pop(ident, None)
                self._send(DONE, {"i": ident, "v": None, "g": False})

    def _run(self, ident: int, running: Running, call: dict[str, Any]) -> None:
        try:
            result, generator = self._called(ident, running, call)
            self._send(DONE, {"i": ident, "v": result, "g": generator})
        except BaseException as error:  # any exception of the code becomes this call's failure
            if not isinstance(error, PenstockError):
                log_traceback(error)
            told = model_error(error, "step-failed").to_dict()
            self._send(BROKEN, {"i": ident, "e": told})
        finally:
            self._running.pop(ident, None)

    def _called(self, ident: int, running: Running, told: dict[str, Any]) -> tuple[Any, bool]:
        function, wants_model = self._functions[told["f"]]
        arguments = dict(told["a"] or {})
        if told["s"]:
            arguments["pieces"] = running.pieces()
        if wants_model:
            arguments["model"] = self._model
        result = function(**arguments)
        if not inspect.isgenerator(result):
            return result, False
        try:
            for piece in result:
                if not running.may_go_on():
                    break
                self._send(PIECE, {"i": ident, "v": piece})
        finally:
            result.close()
        return None, True

    def _send(self, kind: int, value: dict[str, Any]) -> None:
        try:
            payload = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            raise ModelError(
                "step-failed",
                f"what the step returned is not JSON: {error}",
                hint="Return text, numbers, lists and dicts.",
            ) from None
        with self._writing:
            self._channel.sendall(message(kind, payload))


Function = tuple[Callable[..., Any], bool]  #: the function, and whether it has a parameter `model`


def loaded(init: dict[str, Any]) -> tuple[dict[str, Function], Any]:
    """Raises ModelError (`model-code-failed`, `model-code-incomplete`)."""
    module = import_code(Path(init["model_dir"], init["file"]))
    functions: dict[str, Function] = {}
    for step, name in init["functions"].items():
        function = getattr(module, name, None)
        if not callable(function):
            raise ModelError(
                "model-code-incomplete",
                f"{init['file']} defines no {name}(), which step {step!r} calls",
            )
        functions[name] = (function, "model" in inspect.signature(function).parameters)
    make = getattr(module, "model_fn", None)
    return functions, make(init["model_dir"]) if make else None


def serve(channel: socket.socket) -> None:
    loaded = inside.loaded(channel, lambda init: Worker(channel, init))
    if loaded is not None:
        worker, _, messages = loaded
        for kind, _, payload in messages:
            worker.command(kind, orjson.loads(payload))


if __name__ == "__main__":
    inside.main(serve)
