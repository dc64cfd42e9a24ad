"""The way to a region: a TCP relay that holds back every byte, and some for longer.

`python -m bench.relay --listen HOST:PORT --to HOST:PORT --way-ms 40 --loss 0.001`: half of the way
in each direction, in order; a share of the pieces waits a retransmission longer, as a lost packet
would have it. It runs in the namespace of its region, so that a cut is the network's own. With
several `--listen`, each with its `--way-ms`, a region is reached from places that differ.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time

#: Linux' least time before it sends a segment again.
RETRANSMIT_S = 0.2
_PIECE_BYTES = 65_536


class Relay:
    """Connects whoever comes to one address."""

    def __init__(self, to: tuple[str, int], way_s: float, loss: float, seed: int) -> None:
        self._to = to
        self._way_s = way_s / 2
        self._loss = loss
        self._rng = random.Random(seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, back)),
            asyncio.create_task(self._pump(there, writer)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, back):
            end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until either side ends; what was read before the end is still delivered."""
        loop = asyncio.get_running_loop()
        due = 0.0
        last = loop.create_future()
        try:
            while data := await reader.read(_PIECE_BYTES):
                late_s = RETRANSMIT_S if self._rng.random() < self._loss else 0.0
                # In order: what follows a late piece is as late.
                due = max(due, loop.time() + self._way_s + late_s)
                loop.call_at(due, self._write, writer, data)
        except OSError:
            pass
        loop.call_at(max(due, loop.time() + self._way_s), last.set_result, None)
        await last

    @staticmethod
    def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.is_closing():
            writer.write(data)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def _main(options: argparse.Namespace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number, way_ms in enumerate(options.way_ms):
            relay = Relay(options.to, way_ms / 1e3, options.loss, options.seed + 1000 * number)
            server = await asyncio.start_server(relay.serve, *options.listen[number])
            await stack.enter_async_context(server)
        print(f"relay ready {time.time():.3f}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench.relay")
    parser.add_argument("--listen", type=_address, required=True, action="append")
    parser.add_argument("--to", type=_address, required=True)
    parser.add_argument("--way-ms", type=float, required=True, action="append")
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if len(given.listen) != len(given.way_ms):
        parser.error("each --listen needs its --way-ms")
    asyncio.run(_main(given))
