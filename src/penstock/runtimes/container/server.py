"""A foreign server in a container: its start until it is ready, and its end.

The attendant (`attendant.py`) runs it and stands for it: its output is the container's, and it ends
when the container does. Where it was killed, the container is removed from here; where this process
is gone, too, the next instance removes it, or the next server (`engine.remove_left_behind`).
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

import orjson

from penstock import scheduling
from penstock.cleanup import shielded
from penstock.core.machine.container_hints import what_to_do
from penstock.core.machine.containers import (
    ImageObserved,
    container_memory_bytes,
    why_it_ended,
    why_unfit,
)
from penstock.core.machine.devices import choose_devices
from penstock.core.machine.server_start import HealthObserved
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import Walls, make_scratch, remove_scratch
from penstock.runtimes.container import engine
from penstock.runtimes.container.command import (
    MODEL,
    MODELS,
    PORT_INSIDE,
    RunSpec,
    container_environment,
    parted,
    run_options,
)
from penstock.runtimes.container.namespace import NamespaceSockets
from penstock.runtimes.environment import for_engines
from penstock.runtimes.foreign.server import ForeignServer, server_at
from penstock.runtimes.workers.memory import adopted, own_bytes, tree_pids

_ATTENDANT: Final = str(Path(__file__).with_name("attendant.py"))
#: Of its log, what a reason quotes: a FailureReason has room for 1,024 characters.
_LINES_QUOTED, _LINE_CHARS_MAX = 5, 120
_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
_held: Final[dict[int, tuple[str, ...]]] = {}  #: accelerators of this instance's containers
_MULTI_MODEL: Final = "SAGEMAKER_MULTI_MODEL"
#: Until the container runs, s between two moments at which the log may get a line.
_STARTS_S: Final = 1.0
#: Owners whose left-behind containers this process has removed: it leaves none itself.
_tidied: set[str] = set()


class ContainerServer(ForeignServer):
    """Use as any `ForeignServer`; environment and walls of a process are not the container's."""

    port_hint = (
        f"The server in the image must listen on 0.0.0.0:{PORT_INSIDE} when it is asked to `serve`,"
        " and answer GET /ping with 200 within ContainerStartupHealthCheckTimeoutInSeconds."
    )
    health_hint = "The server in the image must answer GET /ping with 200 once it is ready."

    def __init__(self, context: LoadContext, gone: Callable[[PenstockError], None]) -> None:
        super().__init__(context, gone)
        self._log = self._heard
        self._lines: deque[str] = deque(maxlen=_LINES_QUOTED)
        self._engine = context.description.engine_program
        self._ours = engine.is_ours(self._engine)
        self._spec: RunSpec | None = None
        self._sockets: NamespaceSockets | None = None
        self._scratch: Path | None = None
        self._free_port, self.port = self.port, PORT_INSIDE
        self.at = replace(server_at(PORT_INSIDE), opened=self._opened)
        self._image = ImageObserved()
        self._hint = ""
        self._container_pid = 0  #: of its first process; 0 = not known, or ended

    async def start(self, environment: Mapping[str, str], walls: Walls | None) -> None:
        context, began = self._context, self._loop.time()
        if not context.description.image:
            raise ModelError(
                "no-image",
                f"{self._name}: the model names no image that a container engine here has",
                hint="Name it as Image in CreateModel; it is run where the engine has it.",
            )
        self._image, spec = await asyncio.gather(
            asyncio.to_thread(engine.look_into, self._engine, context.description.image),
            asyncio.to_thread(self._planned),
        )
        devices = _free_devices(context.accelerators)
        self._spec = spec = replace(spec, volumes=self._image.volumes, devices=devices)
        self._attend(spec)
        _held[id(self)] = devices
        try:
            await self._begin("the container", began)
        except ModelError as error:
            raise await shielded(self._quoting(error)) from None
        finally:
            if spec.owner not in _tidied:  # now, as it takes some of an engine's time
                _tidied.add(spec.owner)
                self._loop.run_in_executor(None, self._tidy, spec.owner)

    def _tidy(self, owner: str) -> None:
        for name in engine.remove_left_behind(self._engine, owner):
            self._context.log(f"removed the container {name}, which was left behind")

    def _planned(self) -> RunSpec:
        """Raises ModelError where the engine would start it without its limits."""
        context, owner = self._context, self._context.container_owner
        seen = None if os.geteuid() == 0 else engine.look_at(self._engine)
        if seen is not None and seen.fault:
            raise ModelError(
                "container-engine",
                f"{self._name}: the container can't be started: {seen.words}",
                hint="Mend that, or let another engine run it (containers.engine).",
            )
        own = sum(own_bytes(pid) for pid in tree_pids(os.getpid()))
        several = context.variables.get(_MULTI_MODEL) == "true"
        if several:  # the image's user may be any; folders above are still the server's alone
            context.model_dir.chmod(0o755)
        has_files = any(context.model_dir.iterdir())
        return RunSpec(
            image=context.description.image,
            docker=Path(self._engine).name == "docker",
            name=f"penstock-{owner[:8]}-{secrets.token_hex(6)}",
            owner=owner,
            copy_name=self._name,
            port=0 if context.network_isolated or self._ours else self._free_port,
            shown=context.model_dir if has_files or several else None,
            shown_as=MODELS if several else MODEL,
            isolated=context.network_isolated,
            memory_bytes=container_memory_bytes(context.memory_bytes_max, own),
            cores=context.cores,
            yields=scheduling.is_guest(),
            walls=context.container_walls,
            hostname=context.hostname,
        )

    def _attend(self, spec: RunSpec) -> None:
        """Raises ModelError for variables that can't be passed."""
        client = for_engines()
        variables = container_environment(
            self._context.variables, self._image.variables, offline=self._context.offline
        )
        env_file, passed = parted(variables, client)
        limit = why_it_ended(1, out_of_memory=True, memory_bytes=spec.memory_bytes)
        if self._ours:
            self._scratch = make_scratch()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        job = {
            "engine": self._engine,
            "name": spec.name,
            "options": run_options(spec),
            "label": engine.ATTENDANT,
            "env_file": env_file,
            "passed": passed,
            "instance": theirs.fileno(),
            "published": bool(spec.port),
            "patience_s": engine.ANSWER_S_MAX,
            "pid_file": str(self._scratch / "pid") if self._scratch is not None else "",
            "out_of_memory": f"penstock: {limit}",
        }
        read_end, write_end = os.pipe()
        try:
            with scheduling.children_compute():
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", _ATTENDANT],
                    stdin=subprocess.PIPE,
                    stdout=write_end,
                    stderr=write_end,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    env=client,
                    # Must outlive us for a moment, to end the container when we are killed
                    start_new_session=True,
                )
        finally:
            os.close(write_end)
            theirs.close()
        self._sockets = NamespaceSockets(
            ours, port_inside=PORT_INSIDE, published=spec.port, runs=self._runs
        )
        assert process.stdin is not None
        process.stdin.write(orjson.dumps(job) + b"\n")
        process.stdin.flush()
        self._follow(process, read_end, self._pids)

    def _heard(self, line: str) -> None:
        self._lines.append(line[:_LINE_CHARS_MAX])
        self._hint = self._hint or what_to_do(line)
        self._context.log(line)

    async def _quoting(self, error: ModelError) -> ModelError:
        for _ in range(2):  # what it wrote last is read by the loop's next turn
            await asyncio.sleep(0)
        lines = [each for each in self._lines if each.strip()]
        text = "\n".join(lines)
        said = f" Its log ends with:\n{text}" if lines else " It wrote no log."
        return ModelError(error.code, f"{error.message}.{said}", hint=self._hint or error.hint)

    def _pids(self) -> list[int]:
        return super()._pids() + ([self._container_pid] if self._container_pid else [])

    @property
    def pids(self) -> list[int]:
        return super().pids + ([self._container_pid] if self._container_pid else [])

    def place_of(self, shown: Path) -> Path:
        below = shown.relative_to(self._context.model_dir)
        return Path(PurePosixPath(MODELS) / below.as_posix())

    async def _look(self, *, sockets: bool) -> HealthObserved:
        """Looks once it runs. It has a network of its own, and is told where to listen there."""
        assert self._sockets is not None
        try:
            await asyncio.wait_for(self._sockets.wait_known(), _STARTS_S)
        except TimeoutError:
            return HealthObserved()
        return await self._asked(self.at)

    async def _opened(self) -> socket.socket:
        assert self._sockets is not None
        return await self._sockets.connected()

    def _runs(self, pid: int) -> None:
        self._container_pid = pid
        adopted.add(pid)

    def _last_seen(self) -> str:
        nothing = f"nothing answers on port {PORT_INSIDE} of the container yet"
        return self._seen.answer_of(self.path) or nothing

    def _end_of(self, program: str, status: int) -> str:
        memory_bytes = self._spec.memory_bytes if self._spec is not None else 0
        ended = why_it_ended(status, out_of_memory=False, memory_bytes=memory_bytes)
        if self._healthy or not status:
            return ended
        return f"{ended}{why_unfit(self._image, platform.machine())}"

    async def close(self) -> None:
        """One that was never ready has nothing to finish, and its reason is waited for."""
        if not self._healthy and self._process is not None:
            self._closed = True
            self.kill()
            await self._gone.wait()
        await super().close()

    def _exited(self) -> None:
        adopted.discard(self._container_pid)
        self._container_pid = 0
        if self._sockets is not None:
            self._sockets.close()
        if self._scratch is not None:
            remove_scratch(self._scratch)
        _held.pop(id(self), None)
        super()._exited()
        status = self._status() or 0
        if self._healthy and not self._closed:
            self._context.log(f"penstock: {self._end_of('', status)}")
        if status < 0 and self._spec is not None:  # killed: it removed nothing
            self._loop.run_in_executor(None, engine.remove, self._engine, self._spec.name)


def _free_devices(count: int) -> tuple[str, ...]:
    """Those that no container of this instance has, while there are some: the containers of one
    model share them all."""
    visible = os.environ.get(_DEVICES) or ",".join(map(str, range(count)))
    others = {each for held in _held.values() for each in held}
    free = choose_devices(count, others, visible)
    return free if len(free) == count else choose_devices(count, (), visible)
