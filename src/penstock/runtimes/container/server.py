"""A foreign server in a container: its start until it is ready, and its end.

The attendant (`attendant.py`) runs it and stands for it: its output is the container's, and it ends
when the container does. Where it was killed, the container is removed from here; where this process
is gone, too, whoever starts a container next removes it (`engine.remove_left_behind`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import orjson

from penstock import scheduling
from penstock.cleanup import shielded
from penstock.core.machine.containers import container_memory_bytes, why_it_ended
from penstock.core.machine.server_start import HealthObserved
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import Walls
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
from penstock.runtimes.environment import for_engines
from penstock.runtimes.foreign.server import ForeignServer
from penstock.runtimes.workers.memory import adopted, own_bytes, tree_pids

_ATTENDANT: Final = str(Path(__file__).with_name("attendant.py"))
#: Of its log, what a reason quotes: a FailureReason has room for 1,024 characters.
_LINES_QUOTED, _LINE_CHARS_MAX = 5, 120
_MULTI_MODEL: Final = "SAGEMAKER_MULTI_MODEL"


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
        self._spec: RunSpec | None = None
        self._container_pid = 0  #: of its first process; 0 = not known, or ended

    async def start(self, environment: Mapping[str, str], walls: Walls | None) -> None:
        context = self._context
        if not context.description.image:
            raise ModelError(
                "no-image",
                f"{self._name}: the model names no image that a container engine here has",
                hint="Name it as Image in CreateModel; it is run where the engine has it.",
            )
        if context.accelerators:
            raise ModelError(
                "container-accelerators",
                f"{self._name}: containers get no accelerators here",
                hint="Choose an instance type without accelerators.",
            )
        self._spec = spec = await asyncio.to_thread(self._planned)
        self._attend(spec)
        try:
            await self._begin("the container")
        except ModelError as error:
            raise await shielded(self._quoting(error)) from None

    def _planned(self) -> RunSpec:
        context, owner = self._context, self._context.container_owner
        for name in engine.remove_left_behind(self._engine, owner):
            context.log(f"removed the container {name}, which was left behind")
        own = sum(own_bytes(pid) for pid in tree_pids(os.getpid()))
        several = context.variables.get(_MULTI_MODEL) == "true"
        if several:  # the image's user may be any; folders above are still the server's alone
            context.model_dir.chmod(0o755)
        has_files = any(context.model_dir.iterdir())
        return RunSpec(
            image=context.description.image,
            name=f"penstock-{owner[:8]}-{secrets.token_hex(6)}",
            owner=owner,
            copy_name=self._name,
            port=self.port,
            shown=context.model_dir if has_files or several else None,
            shown_as=MODELS if several else MODEL,
            isolated=context.network_isolated,
            memory_bytes=container_memory_bytes(context.memory_bytes_max, own),
            cores=context.cores,
            capabilities=context.container_capabilities,
            hostname=context.hostname,
        )

    def _attend(self, spec: RunSpec) -> None:
        """Raises ModelError for variables that can't be passed."""
        client = for_engines()
        variables = container_environment(self._context.variables, offline=self._context.offline)
        env_file, passed = parted(variables, client)
        limit = why_it_ended(1, out_of_memory=True, memory_bytes=spec.memory_bytes)
        job = {
            "engine": self._engine,
            "name": spec.name,
            "options": run_options(spec),
            "label": engine.ATTENDANT,
            "env_file": env_file,
            "passed": passed,
            "isolated": spec.isolated,
            "port": spec.port,
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
                    cwd="/",
                    env=client,
                    # Must outlive us for a moment, to end the container when we are killed
                    start_new_session=True,
                )
        finally:
            os.close(write_end)
        assert process.stdin is not None
        process.stdin.write(orjson.dumps(job) + b"\n")
        process.stdin.flush()
        self._follow(process, read_end, self._pids)

    def _heard(self, line: str) -> None:
        self._lines.append(line[:_LINE_CHARS_MAX])
        self._context.log(line)

    async def _quoting(self, error: ModelError) -> ModelError:
        for _ in range(2):  # what it wrote last is read by the loop's next turn
            await asyncio.sleep(0)
        lines = [each for each in self._lines if each.strip()]
        text = "\n".join(lines)
        said = f" Its log ends with:\n{text}" if lines else " It wrote no log."
        return ModelError(error.code, f"{error.message}.{said}", hint=error.hint)

    def _pids(self) -> list[int]:
        return super()._pids() + ([self._container_pid] if self._container_pid else [])

    @property
    def pids(self) -> list[int]:
        return super().pids + ([self._container_pid] if self._container_pid else [])

    def place_of(self, shown: Path) -> Path:
        below = shown.relative_to(self._context.model_dir)
        return Path(PurePosixPath(MODELS) / below.as_posix())

    async def _look(self, *, sockets: bool) -> HealthObserved:
        """Its sockets are in a network of its own, where there is no other place to find it."""
        status = await self._asked(self.port)
        if status == 200 and self._spec is not None:
            found = await asyncio.to_thread(engine.pid_of, self._engine, self._spec.name)
            if found and not self._gone.is_set():
                self._container_pid = found
                adopted.add(found)
        return HealthObserved(status)

    def _last_seen(self) -> str:
        if self._seen.status is None:
            return f"nothing answers on port {PORT_INSIDE} of the container yet"
        return super()._last_seen()

    def _end_of(self, program: str, status: int) -> str:
        memory_bytes = self._spec.memory_bytes if self._spec is not None else 0
        return why_it_ended(status, out_of_memory=False, memory_bytes=memory_bytes)

    def _exited(self) -> None:
        adopted.discard(self._container_pid)
        self._container_pid = 0
        super()._exited()
        status = self._status() or 0
        if self._healthy and not self._closed:
            self._context.log(f"penstock: {self._end_of('', status)}")
        if status < 0 and self._spec is not None:  # killed: it removed nothing
            self._loop.run_in_executor(None, engine.remove, self._engine, self._spec.name)
