"""Models that wait for the test: what is in flight at a moment is a fact, not a race."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

#: A Python model that answers its request when the gate lets it, and loads when the gate lets it.
MODEL = """
import socket

def passed(what):
    with socket.create_connection(("127.0.0.1", {port})) as gate:
        gate.sendall(what + b"\\n")
        gate.recv(1)

def model_fn(model_dir):
    passed(b"load")

def transform_fn(model, body, content_type, accept):
    passed(body.encode() if isinstance(body, str) else body)
    return body, content_type
"""


class Gate:
    """Open at first. While it is shut, `waiting` has what a model said when it came to it."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self._open = True
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def model(self) -> str:
        return MODEL.replace("{port}", str(self.port))

    def shut(self) -> None:
        with self._lock:
            self._open = False

    def let_one(self) -> None:
        """The one that came first goes on; the gate stays shut for all others."""
        with self._lock:
            self.waiting.pop(0)
            self._held.pop(0).close()

    def open(self) -> None:
        with self._lock:
            self._open = True
            for each in self._held:
                each.close()
            self._held.clear()
            self.waiting.clear()

    def __enter__(self) -> Gate:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.open()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listening.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                model, _ = self._listening.accept()
            except OSError:
                return
            said = model.makefile("rb").readline().rstrip(b"\n")
            with self._lock:
                if self._open:
                    model.close()
                else:
                    self.waiting.append(said)
                    self._held.append(model)
