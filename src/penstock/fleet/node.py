"""An instance on another machine, as that machine handles it: started, watched and ended.

A fleet makes one object per instance, in a process on the node (`ray/` makes it an actor). It
starts the usual instance process as its child, over the usual pipe, so the instance ends with it in
any case. It handles lifecycle only; requests go to the instance directly.

The instance's key is made here and stays here. Its log is kept here and sent on piece by piece.
With its end the notes about its models are sent too, so that both can be read on the server.
Answers are plain values, errors too: the server might be unable to unpickle an exception from here.
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
from penstock.fleet.local import LocalFleet
from penstock.wire import frames

#: Bytes of the log in one answer; the next answer follows at once.
_LOG_BYTES_MAX: Final = 2**18
_LOOK_S: Final = 0.25
_FOLDERS: Final = "penstock-node-"
#: Bytes of notes about an instance's models; enough for thousands of models.
_NOTES_BYTES_MAX: Final = 2**23
#: Ray sets it to the actor's cores, for libraries in the actor's own process. An instance divides
#: its cores among its models itself.
_NOT_FOR_INSTANCES: Final = "OMP_NUM_THREADS"

Json = dict[str, Any]


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """The cache directory of the node's user (XDG base directories), shared by the node's
    instances."""
    base = environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "penstock" / "node"


def _remove_left_behind() -> None:
    """Removes folders of earlier processes of this kind that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*-*"):
        pid = folder.name.removeprefix(_FOLDERS).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


class InstanceNode:
    """Call `describe`, then `start`, then `watch` until its end; `stop` at any time."""

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
        """The installed versions, and a request for the instance's certificate."""
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
        """What was written to the log behind `log_at`, and how the instance ended, if it has.

        Returns when there is news, at the latest after `wait_s`.
        """
        until = asyncio.get_running_loop().time() + wait_s
        while True:
            ended = self._exit  # read before the log, so that the log then has its last words
            at, text = self._log_behind(log_at)
            if text or ended is not None or asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        seen: Json = {"log": text, "log_at": at, "ended": None}
        if ended is not None and len(text) < _LOG_BYTES_MAX:
            seen["ended"] = {**asdict(ended), "notes": self._notes()}
        return seen

    async def stop(self, grace_s: float) -> Json:
        """SIGTERM, then SIGKILL; returns once the instance has ended. `watch` then gives its last
        words."""
        if self._fleet is not None:
            await self._fleet.close(grace_s=grace_s)
        self._exit = self._exit or InstanceExit(0, "the instance was stopped.")
        return {}

    async def forget(self) -> Json:
        """Ends what still runs and removes all files written here, except the cache."""
        await self.stop(0.0)
        shutil.rmtree(self._folder, ignore_errors=True)
        return {}

    def _spec(self, wanted: Json) -> InstanceSpec:
        settings = dict(wanted["settings"])
        settings["work_dir"] = str(self._work_dir)
        # For a pipe to the instance: it contains the key
        settings["identity"] = {
            "certificate": wanted["certificate"],
            "key": self._key,
            "authority": wanted["authority"],
        }
        platform = dict(settings.get("platform") or {})
        if platform.get("certificate"):  # it arrives as text; programs here need a file
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
            shadow=bool(wanted["shadow"]),
            guest=bool(wanted["guest"]),
            cores_max=int(wanted["cores_max"]),
            listen=f"tls:[{self._host}]:0" if ":" in self._host else f"tls:{self._host}:0",
            settings=settings,
        )

    def _on_exit(self, instance_id: str, how: InstanceExit) -> None:
        self._exit = how

    def _log_behind(self, at: int) -> tuple[int, bytes]:
        """(where the next piece begins, the piece). Starts again at 0 if the log was emptied."""
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
