"""An echo by SageMaker's contract, as a program and in an image: the standard library alone.

`serve`, as containers are started, listens on every address; without it, the loopback does. The
port is SAGEMAKER_BIND_TO_PORT.
"""

from __future__ import annotations

import asyncio
import os
import sys

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while True:
            head, end, rest = self._read.partition(_END)
            if not end:
                return
            size = next(
                (
                    int(line[len(_LENGTH) :])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(_LENGTH)
                ),
                0,
            )
            if len(rest) < size:
                return
            self._read = rest[size:]
            self._transport.write(  # type: ignore[attr-defined]
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (size, rest[:size])
            )


async def serve() -> None:
    host = "0.0.0.0" if "serve" in sys.argv[1:] else "127.0.0.1"
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    server = await asyncio.get_running_loop().create_server(Echo, host, port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
