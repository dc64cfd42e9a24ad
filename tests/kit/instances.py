"""A real instance process and a plain socket client for its frames, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.wire import frames

SRC = Path(__file__).resolve().parents[2] / "src"


class FrameClient:
    """Sends frames and collects answers by id. Blocking, one thread."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(120.0)  # an older machine loads PyTorch for half a minute
        self.decoder = frames.FrameDecoder()
        self.answers: dict[int, frames.Frame] = {}
        self.events: list[dict[str, Any]] = []
        self.next_id = 0

    def read(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the instance closed the connection")
        for frame in self.decoder.feed(data):
            if frame.kind == frames.EVENT:
                self.events.append(json.loads(frame.payload))
            else:
                assert frame.ident not in self.answers, f"{frame.ident} was answered twice"
                self.answers[frame.ident] = frame

    def answer(self, ident: int) -> frames.Frame:
        while ident not in self.answers:
            self.read()
        return self.answers[ident]

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name; it is then gone."""
        while True:
            for at, event in enumerate(self.events):
                if event["event"] == name:
                    return self.events.pop(at)
            self.read()

    def control(self, **call: Any) -> dict[str, Any]:
        return self.result(self.begin_control(**call))

    def begin_control(self, **call: Any) -> int:
        """A control call whose `result` is asked for later."""
        self.next_id += 1
        self.socket.sendall(frames.encode(frames.CONTROL, self.next_id, json.dumps(call).encode()))
        return self.next_id

    def result(self, ident: int) -> dict[str, Any]:
        frame = self.answer(ident)
        assert frame.kind == frames.CONTROL_REPLY
        return json.loads(frame.payload)

    def load(self, copy: int, folder: Path | str, **more: Any) -> dict[str, Any]:
        uri = folder if isinstance(folder, str) else f"file://{folder}"
        call = {"op": "load", "copy": copy, "endpoint": "e", "variant": "v", "cores": 1.0}
        return self.control(**(call | {"source": {"uri": uri}} | more))

    def serve(self, copy: int, folder: Path | str, **more: Any) -> dict[str, Any]:
        """`load`, which has to end well."""
        loaded = self.load(copy, folder, **more)
        assert loaded.get("ok"), loaded
        return loaded

    def send(self, copy: int, body: bytes, *, deadline_ms: int = 30_000, **meta: Any) -> int:
        self.next_id += 1
        self.socket.sendall(self.frame(self.next_id, copy, body, deadline_ms, **meta))
        return self.next_id

    @staticmethod
    def frame(
        ident: int,
        copy: int,
        body: bytes,
        deadline_ms: int = 30_000,
        priority: int = 0,
        **meta: Any,
    ) -> bytes:
        encoded = frames.encode_request_meta(frames.RequestMeta(**meta))
        return frames.encode_invoke(ident, copy, deadline_ms, priority, encoded, body)

    def invoke(self, copy: int, body: bytes, **meta: Any) -> FrameAnswer:
        return FrameAnswer(self.answer(self.send(copy, body, **meta)))

    def close(self) -> None:
        self.socket.close()


class FrameAnswer:
    """What became of a request."""

    def __init__(self, frame: frames.Frame) -> None:
        self.kind = frame.kind
        if frame.kind == frames.RETURNED:
            self.reason = frame.payload.decode()
            return
        self.reply = frames.decode_reply(frame.payload, frame.meta_bytes)
        self.meta = frames.decode_reply_meta(self.reply.meta)
        self.body = self.reply.body

    @property
    def json(self) -> Any:
        assert self.kind == frames.REPLY, self.error
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.kind == frames.ERROR
        return json.loads(self.body)


class InstanceProcess:
    def __init__(self, process: subprocess.Popen[bytes], path: str, log: Path) -> None:
        self.process = process
        self.path = path
        self.log = log

    def client(self) -> FrameClient:
        return FrameClient(self.path)


@contextmanager
def instance(
    folder: Path,
    *,
    memory_bytes: int = 0,
    environment: Mapping[str, str] | None = None,
    artifact: Mapping[str, object] | None = None,
    command: Sequence[str] = (sys.executable, "-m", "penstock.instance"),
) -> Iterator[InstanceProcess]:
    """Runs until the end of the block; the cache is below `folder`.

    `environment` comes on top of this process's; `artifact`: its `ArtifactSettings`.
    """
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pi") as short:  # socket paths are at most 107 bytes
        path = f"{short}/s"
        settings = {
            "instance_id": "i-test",
            "address": f"unix:{path}",
            "cores": 1,
            "memory_bytes": memory_bytes,
            "cache_dir": str(folder / "cache"),
            "artifact": dict(artifact or {}),
        }
        log = folder / "instance.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(SRC), **(environment or {})},
                start_new_session=True,  # as a fleet does: a guest's weight is that of its session
            )
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n", log.read_text()
        try:
            yield InstanceProcess(process, path, log)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            process.stdout.close()


@contextmanager
def serving(folder: Path, models: Mapping[int, Path], **options: Any) -> Iterator[FrameClient]:
    """A client of an instance that has loaded these models, by the number of their copy."""
    with instance(folder, **options) as running:
        client = running.client()
        for copy, model in models.items():
            client.serve(copy, model)
        yield client
        client.close()
