"""A small instance that speaks the real protocol, for tests of fleets and of the control plane.

It is started as any instance is: one JSON line on standard input, `ready` on standard output, then
frames on its socket, until SIGTERM or the end of standard input. How a load ends is said by the
model's URI: `fake://ok`, `fake://slow` (until the file named by the model's environment variable
GATE exists), `fake://bad` (the model is wrong), `fake://not-now`, `fake://hang`, `fake://die`.
What it says that it needs, and what it takes when it is loaded, are the variables NEED_MIB and
OWN_MIB: in MiB, or the path of a file that says so.

Command line switches: `--deaf` ignores SIGTERM, `--exit` ends before it is ready, `--mute` never
says that it is ready, `--silent` closes its output instead, `--worker` leaves a process behind that
holds its output open.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.instance.settings import settings_line
from penstock.wire import frames


class Connection(asyncio.Protocol):
    def __init__(self, instance: FakeInstanceProcess) -> None:
        self.instance = instance
        self.decoder = frames.FrameDecoder()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.instance.connections.append(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self.instance.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            if frame.kind == frames.CONTROL:
                asyncio.create_task(self.answer(frame))  # noqa: RUF006 - ends with the process

    async def answer(self, frame: frames.Frame) -> None:
        try:
            reply = {"ok": True, **await self.instance.control(json.loads(frame.payload))}
        except PenstockError as error:
            reply = {"error": error.to_dict()}
        self.transport.write(
            frames.encode(frames.CONTROL_REPLY, frame.ident, json.dumps(reply).encode())
        )

    def event(self, fields: dict[str, Any]) -> None:
        self.transport.write(frames.encode(frames.EVENT, 0, json.dumps(fields).encode()))


class FakeInstanceProcess:
    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.copies: dict[int, dict[str, Any]] = {}

    async def control(self, op: dict[str, Any]) -> dict[str, Any]:
        if op["op"] == "prepare":
            return {"digest": "", "need": {"memory_bytes": _bytes_of(op, "NEED_MIB")}}
        if op["op"] == "load":
            return await self.load(op)
        if op["op"] == "unload":
            self.copies.pop(op["copy"], None)
            return {}
        if op["op"] == "status":
            copies = [{"copy": copy, "requests": 1} for copy in self.copies]
            return {"rss_bytes": 1200, "copies": copies, **self.memory()}
        if op["op"] == "emit":  # for tests: say this event to everybody
            for connection in self.connections:
                connection.event(op["event"])
            return {}
        if op["op"] == "explain":
            return {"copy": op["copy"], "queue_rows": 0}
        raise CallerError("unknown-operation", f"no operation {op['op']!r}")

    async def load(self, op: dict[str, Any]) -> dict[str, Any]:
        how = op["source"]["uri"].removeprefix("fake://")
        print("loading", op["source"]["uri"], file=sys.stderr, flush=True)
        if how == "bad":
            raise CallerError(
                "model-file-broken", "model.onnx is cut short", hint="Upload it again."
            )
        if how == "not-now":
            raise NotNowError("download-failed", "the store does not answer")
        if how == "hang":
            await asyncio.sleep(3600)
        if how == "die":
            print("MemoryError: no memory for weights", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "slow":
            gate = Path(op["environment"]["GATE"])
            while not gate.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
                await asyncio.sleep(0.01)
        self.copies[op["copy"]] = op
        description = {"name": op["endpoint"], "outstanding_max": 64, "uri": op["source"]["uri"]}
        reply = {"description": description, "load_s": 0.25, "memory_bytes": 1000}
        return reply | self.memory()

    def memory(self) -> dict[str, int]:
        taken = sum(_bytes_of(op, "OWN_MIB") for op in self.copies.values())
        return {"own_bytes": taken, "own_bytes_max": taken}


def _bytes_of(op: dict[str, Any], name: str) -> int:
    """A number of MiB, or the file that says it now."""
    told = op["environment"].get(name, "0")
    return int(told if told.isdigit() else Path(told).read_text()) * 2**20


async def main() -> None:
    settings = json.loads(settings_line(sys.stdin.buffer))
    print("settings", json.dumps(settings), file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    instance = FakeInstanceProcess()
    path = settings["address"].removeprefix("unix:")
    await loop.create_unix_server(lambda: Connection(instance), path)
    end = asyncio.Event()
    if "--deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, end.set)
    loop.add_reader(sys.stdin, end.set)  # its end: the parent has died
    if "--worker" in sys.argv:
        subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    if "--exit" in sys.argv:
        print("ImportError: no such thing", file=sys.stderr, flush=True)
        sys.exit(3)
    if "--silent" in sys.argv:
        os.close(1)
    elif "--mute" not in sys.argv:
        print("hello from the model's code", flush=True)
        print("ready", flush=True)
    await end.wait()


asyncio.run(main())
