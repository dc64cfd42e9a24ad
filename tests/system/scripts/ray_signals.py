"""Connects to a Ray cluster and leaves it again, some times, as a server does.

    python ray_signals.py ADDRESS TIMES

Prints how often it heard of a SIGTERM, and ends with its input. Each may come at any moment: before
it connects, while it does, connected, while it disconnects, and after.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from penstock import signals
from penstock.fleet.ray.cluster import Cluster

#: Longer than the alarm that Ray's own handler of SIGTERM sets.
CONNECTED_S = 4.0


async def main() -> None:
    heard: list[int] = []
    signals.hear(asyncio.get_running_loop(), lambda: heard.append(1))
    print("began", flush=True)
    for _ in range(int(sys.argv[2])):
        cluster = Cluster(sys.argv[1])
        await asyncio.sleep(CONNECTED_S)
        await cluster.close()
    await asyncio.sleep(CONNECTED_S)
    print(len(heard), flush=True)
    await asyncio.to_thread(sys.stdin.read)


signals.block()
uvloop.run(main())
