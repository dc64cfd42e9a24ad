"""The load of a live verification: what counts as sent and as answered."""

from __future__ import annotations

import asyncio
from itertools import count

from tests.kit.gateway import run

from penstock.tune.load import Figures, open_loop

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"


def test_answers_count_and_refusals_and_lost_connections_do_not() -> None:
    numbers, answered = count(1), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        while await reader.read(65_536):
            number = next(numbers)
            if number % 10 == 0:
                writer.transport.abort()
                return
            answered += number % 10 != 5
            writer.write(REFUSED if number % 10 == 5 else OK)
        writer.close()

    async def main() -> Figures:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await open_loop(
                "127.0.0.1", port, "/x", b"{}", rate_rps=200.0, seconds=0.5, seed=1
            )

    figures: Figures = run(main)
    assert figures.sent > 50
    assert figures.answered == answered == len(figures.latencies_s)
    assert figures.answered < 0.9 * figures.sent
    assert list(figures.latencies_s) == sorted(figures.latencies_s)
