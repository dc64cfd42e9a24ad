"""Instances as child processes of this one (`child.py`): started, watched, ended.

Settings go to a child as one JSON line. The child prints `ready` once it accepts connections, with
its address if it chose the port. All other output of it and its models is appended to its log file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from penstock import guests, scheduling
from penstock.cleanup import shielded
from penstock.core.machine.devices import choose_devices
from penstock.core.machine.guest_start import TIMEOUT, GuestStart, GuestStartSpec
from penstock.errors import InternalError, NotNowError, logged
from penstock.fleet.base import InstanceExit, InstanceHandle, InstanceSpec, SpareObserved
from penstock.fleet.child import Child
from penstock.fleet.log_file import LOG_BYTES_MAX, append, open_log, put_aside
from penstock.fleet.machine import cpu_s
from penstock.fleet.spares import Spares
from penstock.metrics.item_failures import apart
from penstock.runtimes.environment import for_instances, with_huge_pages

#: sun_path holds 108 bytes on Linux, 104 on macOS, with the final zero.
_SOCKET_PATH_BYTES_MAX: Final = 100
_SOCKET_NAME_CHARS: Final = len("i0000000.sock")

_LOG_LOOK_EVERY_S: Final = 5.0

#: Interpreter plus imports take well under a second; a busy laptop gets a minute.
START_S_MAX: Final = 60.0


def runtime_dir_for(state_dir: Path) -> Path:
    """A private directory for sockets: below `state_dir` where its path is short enough.

    Sockets that a killed server left there are removed, so call this only while holding the state
    directory's lock. Elsewhere it is a new directory, which `LocalFleet.close` removes.
    """
    below = state_dir / "run"
    if len(os.fsencode(below)) + 1 + _SOCKET_NAME_CHARS <= _SOCKET_PATH_BYTES_MAX:
        below.mkdir(mode=0o700, parents=True, exist_ok=True)
        below.chmod(0o700)
        for left in below.glob("*.sock"):
            left.unlink(missing_ok=True)
        return below
    made = Path(tempfile.mkdtemp(prefix="penstock-run-"))
    if len(os.fsencode(made)) + 1 + _SOCKET_NAME_CHARS > _SOCKET_PATH_BYTES_MAX:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="penstock-run-", dir="/tmp"))
    return made


class LocalFleet:
    """A fleet of child processes (see `fleet/base.py` for the contract)."""

    def __init__(
        self,
        runtime_dir: Path,
        *,
        command: Sequence[str] = (sys.executable, "-m", "penstock.instance"),
        start_s_max: float = START_S_MAX,
        guest_start: GuestStartSpec | None = None,
        log_look_every_s: float = _LOG_LOOK_EVERY_S,
    ) -> None:
        self.on_exit: Callable[[str, InstanceExit], None] = lambda instance_id, how: None
        self._runtime_dir = runtime_dir
        self._command = tuple(command)
        self._start_s_max = start_s_max
        self._guest_start = guest_start or GuestStartSpec()
        self._log_look_every_s = log_look_every_s
        self._children: dict[str, Child] = {}
        self._starting: set[str] = set()
        self._closing = False
        self._number = 0
        self._logs_task: asyncio.Task[None] | None = None
        self._spares = Spares(self._spawn_spare)

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        if self._closing:
            raise NotNowError("fleet-closing", "the server is stopping: no instance is started")
        if spec.instance_id in self._children:
            raise InternalError("instance-exists", f"instance {spec.instance_id} runs already")
        # A guest of lesser rights yields at the next tick only, and has a hundredth of a core: what
        # a job can live with, but a shadow is to be compared with what it shadows
        guest = spec.guest or (spec.shadow and guests.yield_at_once())
        # Guests never take a spare: spares are kept for endpoints
        child = None if guest else self._take_spare(spec)
        warm = child is not None
        if guest:
            command = guests.command(self._command, cores_max=spec.cores_max)
            child = self._spawn(spec.log_path, spec.instance_id, command)
            child.become_guest()
        elif child is None:
            child = self._spawn(spec.log_path, spec.instance_id, self._command)
        if spec.shadow and not guest:
            scheduling.give_a_tenth(child.process.pid)
        child.devices = self._free_devices(spec)
        self._children[spec.instance_id] = child
        if self._logs_task is None:
            self._logs_task = asyncio.create_task(self._bound_logs())
        try:
            await self._hand_over(child, spec, warm=warm)
        except BaseException:
            child.asked_to_stop = True
            child.kill_group()
            await shielded(self._broken_off(spec.instance_id, child))
            raise
        child.tasks = [
            asyncio.create_task(_copy_output(child)),
            asyncio.create_task(self._watch(spec.instance_id, child)),
        ]
        return InstanceHandle(
            instance_id=spec.instance_id,
            address=child.address or spec.listen or f"unix:{child.socket}",
            pid=child.process.pid,
        )

    def _free_devices(self, spec: InstanceSpec) -> tuple[str, ...]:
        held = {each for child in self._children.values() for each in child.devices}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return choose_devices(spec.instance_type.resources.accelerators, held, visible)

    async def _broken_off(self, instance_id: str, child: Child) -> None:
        if child.guest:  # freeing its memory takes our processor time
            await asyncio.to_thread(guests.end, child.process.pid)
        await child.wait_ended()
        self._forget(instance_id)

    async def stop(self, instance_id: str, *, grace_s: float) -> None:
        child = self._children.get(instance_id)
        if child is None:
            return
        child.asked_to_stop = True
        if child.guest and not grace_s:
            await asyncio.to_thread(guests.end, child.process.pid)
        else:
            if child.guest:
                await asyncio.to_thread(guests.be_ordinary, child.process.pid)
            child.send(signal.SIGTERM)
        await asyncio.wait([child.ended], timeout=max(grace_s, 0.0))
        child.kill_group()
        await child.forgotten.wait()

    def keep_warm(self, count: int, modules: Collection[str]) -> None:
        if not self._closing:
            self._spares.keep(count, modules)

    def spares(self) -> list[SpareObserved]:
        return self._spares.seen()

    async def shares_disk(self) -> bool:
        return True

    async def close(self, *, grace_s: float = 10.0) -> None:
        self._closing = True
        await self._spares.close()
        await asyncio.gather(*(self.stop(one, grace_s=grace_s) for one in list(self._children)))
        if self._logs_task is not None:
            self._logs_task.cancel()
            await asyncio.wait([self._logs_task])
        for left in self._runtime_dir.glob("*.sock"):
            left.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._runtime_dir.rmdir()

    async def _bound_logs(self) -> None:
        """Bounds the size of logs: a model that never stops printing must not fill the disk."""
        while True:
            await asyncio.sleep(self._log_look_every_s)
            for child in list(self._children.values()):
                with apart("logs", child.log_path.name):
                    await self._bound_log(child)

    async def _bound_log(self, child: Child) -> None:
        if not child.log.closed and child.log.seek(0, os.SEEK_END) > LOG_BYTES_MAX:
            await asyncio.to_thread(put_aside, child.log_path)
            child.log_from = 0

    def _take_spare(self, spec: InstanceSpec) -> Child | None:
        """Takes a ready spare, whose output goes to the instance's log from now on."""
        child = self._spares.take()
        if child is not None:
            child.log_to(open_log(spec.log_path), spec.log_path)
        return child

    def _spawn_spare(self) -> Child:
        name = f"spare-{self._number + 1}"
        return self._spawn(self._runtime_dir / f"{name}.log", name, self._command)

    def _spawn(self, log_path: Path, name: str, command: tuple[str, ...]) -> Child:
        self._number += 1
        socket = self._runtime_dir / f"i{self._number}.sock"
        socket.unlink(missing_ok=True)
        log = open_log(log_path)
        try:
            # Its loop chooses for itself; threads of libraries are there before that
            with scheduling.children_compute():
                process = subprocess.Popen(
                    command,
                    env=with_huge_pages(for_instances()),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,
                )
        except OSError as error:
            log.close()
            raise NotNowError(
                "instance-not-started",
                f"the process of instance {name} could not be started: {error}",
                hint="The machine may be out of memory or processes.",
            ) from error
        return Child(process, socket, log, log_path)

    async def _hand_over(self, child: Child, spec: InstanceSpec, *, warm: bool) -> None:
        """Sends the settings and waits for `ready`. A spare (`warm`) has written to another log so
        far."""
        child.write(
            {
                "instance_id": spec.instance_id,
                "address": spec.listen or f"unix:{child.socket}",
                "cores": _cores(spec),
                "memory_bytes": spec.instance_type.resources.memory_bytes,
                "accelerators": spec.instance_type.resources.accelerators,
                **({"devices": child.devices} if child.devices else {}),
                "cache_dir": str(spec.cache_dir),
                **({"log_path": str(child.log_path)} if warm else {}),
                **spec.settings,
            }
        )
        try:
            wait = self._guest_ready if child.guest else self._ready_in_time
            if await wait(child):
                return
        except NotNowError as late:
            late.message = f"instance {spec.instance_id} {late.message}"
            late.hint = f"Look at {spec.log_path}."
            raise logged(late, child.tell) from None
        # A child that closed its output may still run: then we end it.
        await asyncio.wait([child.ended], timeout=1.0)
        child.kill_group()
        code = await child.wait_ended()
        story = (
            f"instance {spec.instance_id} ended before it was ready: {child.how_it_ended(code)}."
            f"{child.last_words()}"
        )
        died = NotNowError("instance-died", story, hint=f"Look at {spec.log_path}.")
        if child.stood_still:
            died = NotNowError("instance-start-still", story, hint=died.hint)
        raise logged(died, child.tell)

    async def _ready_in_time(self, child: Child) -> bool:
        try:
            async with asyncio.timeout(self._start_s_max):
                return await _read_ready(child)
        except TimeoutError:
            story = f"was not ready within {self._start_s_max:g} s"
            raise NotNowError("instance-start-timeout", story) from None

    async def _guest_ready(self, child: Child) -> bool:
        """Waits as long as the start makes progress (`core/machine/guest_start.py`)."""
        loop, spec = asyncio.get_running_loop(), self._guest_start
        start = GuestStart(spec, now=loop.time())
        reading = asyncio.create_task(_read_ready(child))
        try:
            while not (await asyncio.wait([reading], timeout=spec.look_every_s))[0]:
                reason = start.look(cpu_s(child.process.pid), now=loop.time())
                if reason == TIMEOUT:
                    story = f"was not ready within {spec.cpu_s_max:g} s of processor time"
                    raise NotNowError("instance-start-timeout", story)
                if reason:
                    story = f"had no processor time for {spec.still_s_max:g} s of its start"
                    raise NotNowError("instance-start-still", story)
            return reading.result()
        finally:
            reading.cancel()

    async def _watch(self, instance_id: str, child: Child) -> None:
        code = await child.wait_ended()
        child.kill_group()  # ends workers that it may have left behind
        await asyncio.wait(child.tasks[:1], timeout=1.0)  # reads its last output
        child.tasks[0].cancel()
        words, how = child.last_words(), f"the instance ended: {child.how_it_ended(code)}."
        if not child.asked_to_stop:
            child.tell(how)  # a killed process could not report it
        self._forget(instance_id)
        if not child.asked_to_stop:
            self.on_exit(instance_id, InstanceExit(code, f"{how}{words}", child.stood_still))

    def _forget(self, instance_id: str) -> None:
        child = self._children.pop(instance_id, None)
        if child is not None:
            child.close()
            child.socket.unlink(missing_ok=True)
            child.forgotten.set()


def _cores(spec: InstanceSpec) -> float:
    cores = spec.instance_type.resources.cores
    return min(cores, float(spec.cores_max)) if spec.guest and spec.cores_max else cores


async def _read_ready(child: Child) -> bool:
    """Copies lines to the log until one says `ready`; False when the output ends before."""
    while True:
        try:
            line = await child.output.readline()
        except ValueError:  # a line beyond the limit: not one of ours
            continue
        if not line:
            return False
        word, _, address = line.strip().partition(b" ")
        if word == b"ready" and (not address or address.startswith(b"tls:")):
            child.address = address.decode("ascii", "replace")
            return True
        if line.strip() != b"warm":  # a spare's answer to modules that it was just asked to import
            append(child.log, line)


async def _copy_output(child: Child) -> None:
    while chunk := await child.output.read(65536):
        append(child.log, chunk)
