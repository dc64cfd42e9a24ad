"""Which Pythons this machine has, and which of them a model's environment is made from."""

from __future__ import annotations

import functools
import glob
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import CallerError

#: The oldest Python that can run our part of a model's process.
OLDEST: Final = (3, 10)
_ASK_S_MAX: Final = 20.0
#: Where systems and tools of Python put interpreters, besides the PATH.
_PLACES: Final = (
    "/usr/bin/python3.*", "/usr/local/bin/python3.*", "/opt/python*/bin/python3.*",
    "~/.local/bin/python3.*", "~/.pyenv/versions/*/bin/python3.*",
    "~/.local/share/uv/python/*/bin/python3.*",
)  # fmt: skip
_NAMED: Final = re.compile(r"python3\.\d+")
_QUESTION: Final = (
    "import json, platform, sys, sysconfig;"
    "print(json.dumps([platform.python_version(), sysconfig.get_config_var('EXT_SUFFIX') or '',"
    "sys.base_prefix, platform.python_implementation()]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that is installed on this machine."""

    path: str
    version: str  #: such as 3.11.7; of one that an artifact brings its minor version alone
    suffix: str  #: of its extension modules: those of another Python with the same run in it
    prefix: str  #: its installation

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def short(self) -> str:
        return ".".join(map(str, self.minor))


@functools.cache
def own() -> Interpreter:
    """The server's own Python, without its environment."""
    return Interpreter(
        path=os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable),
        version=".".join(map(str, sys.version_info[:3])),
        suffix=sysconfig.get_config_var("EXT_SUFFIX") or "",
        prefix=sys.base_prefix,
    )


def chosen(wanted: str, places: tuple[str, ...] = ()) -> Interpreter:
    """The Python for `wanted`, such as "3.10" or "3.10.13"; "" = the server's own.

    `places`: more interpreters, which the operator names. Blocks. Raises CallerError
    (`python-unavailable`).
    """
    if not wanted or _fits(own(), wanted):
        return own()
    found = installed(places)
    fitting = [one for one in found if _fits(one, wanted)]
    if not fitting:
        there = ", ".join(dict.fromkeys(one.version for one in (own(), *found)))
        raise CallerError(
            "python-unavailable",
            f"the model wants Python {wanted}, and this machine has {there}",
            hint="Install it there (or name it in control.environment_pythons), or leave the "
            "model's `python` out.",
        )
    best = max(fitting, key=_numbers)
    if best.minor < OLDEST:
        raise too_old(best.version)
    return best


def too_old(version: str) -> CallerError:
    return CallerError(
        "python-too-old",
        f"the model wants Python {version}; models' processes need {'.'.join(map(str, OLDEST))} "
        "or later",
        hint="Leave the model's `python` out: the nearest versions of its libraries are installed.",
    )


@functools.cache
def installed(places: tuple[str, ...] = ()) -> tuple[Interpreter, ...]:
    """All that are found on this machine, each version once. Runs each of them. Blocks."""
    found: dict[str, Interpreter] = {}
    for path in _candidates(places):
        one = inspected(path)
        if one is not None:
            found.setdefault(one.version, one)
    return tuple(sorted(found.values(), key=_numbers))


def inspected(path: str) -> Interpreter | None:
    """What a Python says of itself; None: it does not run."""
    try:
        told = subprocess.run(
            [path, "-I", "-S", "-c", _QUESTION],
            capture_output=True, timeout=_ASK_S_MAX, check=True, cwd="/",
        )  # fmt: skip
        version, suffix, prefix, implementation = json.loads(told.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if implementation != "CPython":
        return None
    return Interpreter(path=path, version=version, suffix=suffix, prefix=prefix)


def _candidates(places: tuple[str, ...]) -> Iterator[str]:
    seen = set()
    patterns = [*places, *(f"{each}/python3.*" for each in os.get_exec_path()), *_PLACES]
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.expanduser(pattern))):
            real = os.path.realpath(path)
            named = pattern in places or _NAMED.fullmatch(Path(path).name)
            if named and real not in seen and "/shims/" not in path:
                seen.add(real)
                yield real


def _fits(one: Interpreter, wanted: str) -> bool:
    return one.version == wanted or one.version.startswith(f"{wanted}.")


def _numbers(one: Interpreter) -> tuple[int, ...]:
    return tuple(int(each) for each in one.version.split(".")[:3] if each.isdecimal())
