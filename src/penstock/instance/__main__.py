"""`python -m penstock.instance`: an instance process, started by a fleet.

Reads one JSON line of settings from standard input (a spare first reads lines with modules to
import), listens, and prints `ready`. Standard input then stays open: when it closes, the server is
gone, and the instance ends at once with its workers. SIGTERM drains: queued requests are answered,
then the process exits 0. However the instance ends, its session reaper ends the processes that it
leaves behind; the kernel ends an instance that can't see its server die.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from penstock import scheduling, signals, stacks
from penstock.errors import PenstockError
from penstock.fleet.identity import contexts
from penstock.instance import session_reaper
from penstock.instance.memory.use import LOOK_EVERY_S, MemoryLimit, MemoryUse, be_ended_first
from penstock.instance.server import InstanceServer
from penstock.instance.settings import InstanceSettings, settings_line
from penstock.runtimes.confinement.parent_death import die_with_parent
from penstock.runtimes.environment import huge_pages_end_here
from penstock.runtimes.pipeline import platform as pipeline_platform

#: Lane threads that return from a model need the interpreter at once, not after 5 ms (the default).
_SWITCH_INTERVAL_S = 0.0005
#: A request makes no reference cycles, so young objects are collected less often than by default.
_GC_THRESHOLDS = (20_000, 50, 50)


def main() -> int:
    signals.unblock()
    stacks.write_when_asked()
    die_with_parent()
    huge_pages_end_here()
    session_reaper.start()
    be_ended_first()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    scheduling.wait_for_messages()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server
    try:
        settings = InstanceSettings.from_line(settings_line(sys.stdin.buffer))
        if settings.log_path is not None:
            _write_to(settings.log_path)
        if settings.devices:  # no library has looked yet
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(settings.devices)
        pipeline_platform.tell(settings.platform)
        if settings.identity is not None:
            from penstock.artifacts.sources import server_files  # noqa: PLC0415 - not of this machine's

            server_files.tell(contexts.dialling(settings.identity), contexts.SERVER)
        return int(uvloop.run(_serve(settings)))
    except PenstockError as error:
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error[instance-address]: {settings.address}: {error}", file=sys.stderr)
        return 1


def _write_to(log_path: Path) -> None:
    """Sends the process's errors to `log_path`; a spare wrote elsewhere before. Appends, because
    others write to this file too."""
    descriptor = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


async def _serve(settings: InstanceSettings) -> int:
    loop = asyncio.get_running_loop()
    # Models are loaded in these threads, and threads that they start compute as well.
    loop.set_default_executor(ThreadPoolExecutor(initializer=scheduling.compute))
    memory = MemoryUse()
    server = InstanceServer(settings, memory=memory)
    stop = asyncio.Event()
    signals.handle(loop, stop.set)

    def parent_spoke() -> None:
        if not os.read(0, 4096):
            server.kill_workers()
            os._exit(1)

    def over(story: str) -> None:
        print(f"error[memory-limit]: {story}", file=sys.stderr, flush=True)
        server.kill_workers()
        os._exit(1)

    limit = MemoryLimit(settings.memory_bytes, over, memory)

    def look() -> None:
        limit.look()
        loop.call_later(LOOK_EVERY_S, look)

    loop.add_reader(0, parent_spoke)
    look()
    address = await server.listen()
    # Whoever set the address knows it, except a port that we chose.
    print("ready" if address == settings.address else f"ready {address}", flush=True)
    await stop.wait()
    await server.drain()
    await server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
