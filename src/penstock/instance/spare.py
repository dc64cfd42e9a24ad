"""A spare process before it becomes an instance: it imports modules that instances of this server
use.

A fleet starts spares like any instance, and writes lines {"warm": [modules]} before the settings.
Each is answered with `warm`. Only the project's own modules, and the libraries of its runtimes, are
imported, whatever a line names.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Iterable
from typing import BinaryIO, Final

import orjson

from penstock import scheduling
from penstock.runtimes import registry

_LOG = logging.getLogger(__name__)
_OWN: Final = "penstock."
#: Libraries of the runtimes that run in an instance's own process, and of readers of artifacts.
LIBRARIES: Final = frozenset(
    {"numpy", "obstore", "tokenizers", "yaml"}
    | {one.library for one in registry.records() if one.in_threads and one.library}
)
_MODULES_MAX: Final = 1024


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


def used(before: Iterable[str]) -> list[str]:
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
