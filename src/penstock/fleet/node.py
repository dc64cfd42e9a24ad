"""An instance on another machine, as that machine keeps it: it is started there, watched and ended.

One object per instance, made by a fleet in a process on the node (`ray/` makes it an actor). It
starts the usual instance process as its child, over the usual pipe, so the instance ends with it,
however it ends. What it offers is lifecycle alone; requests go to the instance by themselves.

The instance's key is made here and stays here. Its log is kept here and handed over piece by piece,
and with its end goes what it noted of its models, so that both are read where the server is.
Answers are plain values, errors too: what raises here could be unreadable there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock import __version__
from penstock.core.resources import ComputeResources
from penstock.errors import PenstockError
from penstock.fleet.base import InstanceExit, InstanceSpec, InstanceType
from penstock.fleet.identity.authority import key_and_request
from penstock.fleet.identity.pem import Identity
from penstock.fleet.local import LocalFleet
from penstock.wire import frames

#: Of a log, in one answer; the next one follows at once.
_LOG_BYTES_MAX: Final = 2**18
_LOOK_S: Final = 0.25
_FOLDERS: Final = "penstock-node-"
#: Of what an instance noted of its models; thousands of them.
_NOTES_BYTES_MAX: Final = 2**23
#: Ray sets it to the cores of an actor for libraries in the actor's own process; an instance
#: shares its cores among its models by itself.
_NOT_FOR_INSTANCES: Final = "OMP_NUM_THREADS"

Json = dict[str, Any]


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Of the node's user (XDG base directories), shared by the instances of the node."""
    base = environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "penstock" / "node"


def _remove_left_behind() -> None:
    """Folders of processes like this one that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*-*"):
        pid = folder.name.removeprefix(_FOLDERS).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


class InstanceNode:
    """`describe`, then `start`, then `watch` until its end; `stop` at any time."""

    def __init__(self, instance_id: str, host: str) -> None:
        """`host`: the node's address, as the server reaches it."""
        self._instance_id = instance_id
        self._host = host
        _remove_left_behind()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))
        self._log_path = self._folder / "instance.log"
        self._work_dir = self._folder / "work"
        self._fleet: LocalFleet | None = None
        self._key = ""
        self._exit: InstanceExit | None = None

    async def describe(self) -> Json:
        """What is installed here, and a request for the certificate of the instance."""
        self._key, request = key_and_request(self._instance_id)
        return {"version": __version__, "wire": frames.LAYOUT, "request": request}

    async def start(self, wanted: Json) -> Json:
        """Returns the instance's address once it accepts connections, or the error."""
        os.environ.pop(_NOT_FOR_INSTANCES, None)
        try:
            self._work_dir.mkdir(mode=0o700, exist_ok=True)
            self._fleet = LocalFleet(self._folder / "run")
            (self._folder / "run").mkdir(mode=0o700, exist_ok=True)
            self._fleet.on_exit = self._on_exit
            handle = await self._fleet.start(self._spec(wanted))
        except PenstockError as error:
            return {"error": error.to_dict()}
        return {"address": handle.address, "pid": handle.pid}

    async def watch(self, log_at: int, wait_s: float) -> Json:
        """What was written to the log behind `log_at`, and how the instance ended if it has.

        Returns when there is something to tell, at the latest after `wait_s`.
        """
        until = asyncio.get_running_loop().time() + wait_s
        while True:
            ended = self._exit  # before the log: its last words are in it then
            at, text = self._log_behind(log_at)
            if text or ended is not None or asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        seen: Json = {"log": text, "log_at": at, "ended": None}
        if ended is not None and len(text) < _LOG_BYTES_MAX:
            seen["ended"] = {**asdict(ended), "notes": self._notes()}
        return seen

    async def stop(self, grace_s: float) -> Json:
        """SIGTERM, then SIGKILL; returns once it has ended. `watch` gives its last words."""
        if self._fleet is not None:
            await self._fleet.close(grace_s=grace_s)
        self._exit = self._exit or InstanceExit(0, "the instance was stopped.")
        return {}

    async def forget(self) -> Json:
        """Ends what is left and removes what was written here, but for what is in the cache."""
        await self.stop(0.0)
        shutil.rmtree(self._folder, ignore_errors=True)
        return {}

    def _spec(self, wanted: Json) -> InstanceSpec:
        settings = dict(wanted["settings"])
        settings["work_dir"] = str(self._work_dir)
        settings["identity"] = Identity(
            certificate=wanted["certificate"], key=self._key, authority=wanted["authority"]
        ).to_dict()
        platform = dict(settings.get("platform") or {})
        if platform.get("certificate"):  # its text; programs here want a file
            path = self._folder / "platform.pem"
            path.write_text(platform["certificate"])
            settings["platform"] = platform | {"certificate": str(path)}
        cache_dir = wanted.get("cache_dir") or default_cache_dir(os.environ)
        Path(cache_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = dict(wanted["instance_type"])
        resources = ComputeResources(**kind.pop("resources"))
        return InstanceSpec(
            instance_id=self._instance_id,
            instance_type=InstanceType(resources=resources, **kind),
            log_path=self._log_path,
            cache_dir=Path(cache_dir),
            guest=bool(wanted["guest"]),
            cores_max=int(wanted["cores_max"]),
            listen=f"tls:[{self._host}]:0" if ":" in self._host else f"tls:{self._host}:0",
            settings=settings,
        )

    def _on_exit(self, instance_id: str, how: InstanceExit) -> None:
        self._exit = how

    def _log_behind(self, at: int) -> tuple[int, bytes]:
        """(where the next piece begins, the piece). A log that was emptied begins anew."""
        try:
            with self._log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                start = at if at <= size else 0
                log.seek(start)
                text = log.read(_LOG_BYTES_MAX)
        except OSError:
            return 0, b""
        return start + len(text), text

    def _notes(self) -> dict[str, str]:
        """Files of the work directory by name, in base64."""
        found: dict[str, str] = {}
        left = _NOTES_BYTES_MAX
        for path in sorted(self._work_dir.glob("*")):
            with contextlib.suppress(OSError):
                text = path.read_bytes()
                left -= len(text)
                if left >= 0:
                    found[path.name] = base64.b64encode(text).decode()
        return found
