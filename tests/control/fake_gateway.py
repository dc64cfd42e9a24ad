"""A gateway's end of the channel alone, as a process: what a test says of it, by its name.

It answers everything and writes what it hears as lines of JSON into FOLDER/NAME. What it does
besides is said by a file FOLDER/NAME.does: `fail` tells that it can't serve, `die` ends as it
begins, `hang` answers nothing once it serves, `slow` tells of itself only when that file is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from penstock.gateway.channel.channel import Channel, open_channel


class FakeGateway:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.channel: Channel | None = None
        self.ended = asyncio.Event()
        self._path = folder
        self._tasks: set[asyncio.Task[None]] = set()

    def _write(self, op: str, fields: dict[str, Any]) -> None:
        with self._path.open("a") as out:
            print(json.dumps({"pid": os.getpid(), "op": op} | fields), file=out)

    def _does(self) -> str:
        said = self._path.with_suffix(".does")
        return said.read_text() if said.exists() else ""

    def told(self, op: str, fields: dict[str, Any], data: bytes) -> None:
        if op == "begin":
            self._path = self._folder / fields["name"]
            if self._does() == "die":
                os._exit(3)
            self._write(op, fields)
            task = asyncio.get_running_loop().create_task(self._come_up())
            self._tasks.add(task)
        else:
            self._write(op, fields)

    async def _come_up(self) -> None:
        assert self.channel is not None
        while self._does() == "slow":  # noqa: ASYNC110 - a file says when
            await asyncio.sleep(0.01)
        if self._does() == "fail":
            error = {"family": "caller", "code": "port-in-use", "message": "taken", "status": 400}
            self.channel.tell("failed", {"error": error})
            return
        self.channel.tell("up", {})
        while True:
            self.channel.tell("metrics", {}, b"delta")
            await asyncio.sleep(0.2)

    async def asked(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._write(op, fields)
        while self._does() == "hang":  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        if op == "stop":
            self.ended.set()
        return {"drained": True} if op == "drained" else {"name": self._path.name}

    def closed(self) -> None:
        self.ended.set()


async def main() -> None:
    process = FakeGateway(Path(sys.argv[1]))
    process.channel = await open_channel(socket.socket(fileno=int(sys.argv[2])), process)
    await process.ended.wait()
    await asyncio.sleep(0.05)


asyncio.run(main())
