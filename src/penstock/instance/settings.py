"""What an instance reads on standard input when it is started: one JSON line with its settings.

A fleet starts spares like any instance, and writes lines {"warm": [modules]} before the settings.
Each is answered with `warm`. Only the project's own modules, and the libraries of its runtimes, are
imported, whatever a line names.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import orjson

from penstock import scheduling
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.errors import CallerError
from penstock.fleet.identity.contexts import Identity
from penstock.runtimes import registry

_LOG = logging.getLogger(__name__)
_OWN: Final = "penstock."
#: Libraries of the runtimes that run in an instance's own process, and of readers of artifacts.
LIBRARIES: Final = frozenset(
    {"numpy", "obstore", "tokenizers", "yaml"}
    | {one.library for one in registry.records() if one.in_threads and one.library}
)
_MODULES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    instance_id: str
    address: str  #: "unix:/path", "tcp:host:port" or "tls:host:port"; port 0 = any
    cores: float
    memory_bytes: int  #: 0 = not limited
    accelerators: int = 0
    devices: tuple[str, ...] = ()  #: which these are; (): what CUDA_VISIBLE_DEVICES says
    cache_dir: Path  #: artifacts and compiled blobs, shared by the instances of a machine
    artifact: ArtifactSettings = field(default_factory=ArtifactSettings)
    #: Folder for notes about models of hosts, which the server reads if the instance dies; None: no
    #: notes.
    work_dir: Path | None = None
    #: Errors are appended to this file; None: standard error is unchanged
    log_path: Path | None = None
    #: Fields of `PlatformAccess`; {}: unknown
    platform: dict[str, str] = field(default_factory=dict)
    identity: Identity | None = None  #: certificate and key for TLS; None without TLS

    @classmethod
    def from_line(cls, line: bytes) -> InstanceSettings:
        """Raises CallerError for an invalid line."""
        try:
            given = msgspec.json.decode(
                line, type=cls, strict=False, dec_hook=lambda kind, value: kind(value)
            )
        except msgspec.MsgspecError as error:
            raise CallerError(
                "instance-settings",
                f"the instance's settings cannot be read: {error}",
                hint="An instance is started by a fleet, which writes them.",
            ) from None
        closed = (*given.artifact.closed, *given._own_places())
        return replace(given, artifact=replace(given.artifact, closed=closed))

    def _own_places(self) -> Iterator[str]:
        """Paths on an instance's own machine, which may differ from the server's."""
        yield str(self.cache_dir)
        if self.work_dir is not None:
            yield str(self.work_dir)
        scheme, _, place = self.address.partition(":")
        if scheme == "unix":
            yield str(Path(place).parent)


def settings_line(lines: BinaryIO) -> bytes:
    """Reads up to the line with the settings and imports the requested modules; b"" at the end."""
    while True:
        line = lines.readline()
        modules = _asked(line)
        if modules is None:
            return line
        # Threads that a library starts when it is imported compute for models later.
        thread = threading.Thread(target=_get_warm, args=(modules,), name="warm")
        thread.start()
        thread.join()
        print("warm", flush=True)


def imported_since(before: Iterable[str]) -> list[str]:
    """Modules imported since `before` that a spare may import."""
    known = set(before)
    return sorted(name for name in list(sys.modules) if name not in known and _may(name))


def _asked(line: bytes) -> list[str] | None:
    try:
        asked = orjson.loads(line)["warm"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return [name for name in asked if isinstance(name, str)] if isinstance(asked, list) else None


def _get_warm(modules: list[str]) -> None:
    scheduling.compute()
    for name in modules[:_MODULES_MAX]:
        if not _may(name):
            continue
        try:
            importlib.import_module(name)
        except Exception:  # it is imported, or reports the error, when it is needed
            _LOG.info("%s can't be imported ahead", name)


def _may(name: str) -> bool:
    return name.startswith(_OWN) or name in LIBRARIES
