"""HTTP clients on a loop that show what came, byte by byte."""

from __future__ import annotations

import asyncio
from typing import Any


class RawClient:
    """A client that writes bytes and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int, **options: Any) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port, **options))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.write(data)
        return await self.answer()

    async def answer(self, *, head: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = text.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        elif not head:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(lines[0].split(" ")[1]), headers, body

    async def closed(self) -> bytes:
        """Whatever still comes until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.writer.transport.abort()


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
