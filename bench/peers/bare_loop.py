"""The limit of the language: one process, httptools and uvloop, the body sent straight back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import httptools
import uvloop


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def answer(self, body: bytes) -> bytes:
        return body

    def on_message_complete(self) -> None:
        body, self.body = self.answer(self.body), b""
        self.transport.write(  # type: ignore[attr-defined]
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )


async def serve(port: int, protocol: Callable[[], Echo] = Echo) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
