"""The process of one compile: started, and its failure as an error.

It runs under the server's own Python, where that has the libraries, else under that of an
environment that was built for it. Then it stands behind walls, as all that is installed there does:
it reads its source and that environment, writes where it is told, and has no network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock import scheduling
from penstock.core.blame.crashed_instances import is_crash
from penstock.errors import ModelError, PenstockError, from_dict
from penstock.runtimes.confinement.walls import GUARD, around_tool
from penstock.runtimes.environment import (
    at_home_in,
    for_models,
    of_environment,
    own_packages,
    own_packages_dirs,
)
from penstock.runtimes.environments.store import EnvironmentMade

_WORDS_CHARS_MAX: Final = 2000
#: The guard adds it to the number of the signal that ended its program, as shells do.
_BY_SIGNAL: Final = 128


def start_child(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts `penstock.compile` with these arguments. Raises OSError."""
    sources = str(Path(__file__).resolve().parents[2])
    return _started(
        [sys.executable, "-m", "penstock.compile", *arguments],
        {**os.environ, "PYTHONPATH": sources, **(environment or {})},
    )


def start_walled(
    arguments: Sequence[str], made: EnvironmentMade, *, read: Path, write: Path, scratch: Path
) -> subprocess.Popen[str]:
    """As `start_child`, in an environment: with the folders that it reads and writes, and one for
    its temporary files. Raises OSError."""
    walls = around_tool(
        (*own_packages_dirs(), *made.dirs, os.path.realpath(read)),
        (os.path.realpath(write), str(scratch)),
        network=False,
    )
    told = walls.told()
    try:
        return _started(
            [
                *(sys.executable, "-I", "-S", GUARD, str(told)),
                *(made.interpreter, "-m", "penstock.compile", *arguments),
            ],
            {
                **of_environment(for_models(), made.interpreter),
                **at_home_in(str(scratch)),
                "PYTHONPATH": own_packages(),
            },
            pass_fds=(told,),
        )
    finally:
        os.close(told)


def _started(
    argv: list[str], environ: dict[str, str], pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[str]:
    with scheduling.children_compute():
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,  # the child ends when this closes with our process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            pass_fds=pass_fds,
        )


def status_of(code: int) -> int:
    """A guard's exit status as `subprocess` gives that of its program."""
    return _BY_SIGNAL - code if code > _BY_SIGNAL else code


def child_failure(code: int, output: Sequence[str]) -> PenstockError:
    """The error: the last line of output as JSON, unless the process died in another way."""
    try:
        return from_dict(json.loads(output[-1]))
    except (ValueError, IndexError, AttributeError):
        words = "".join(output)[-_WORDS_CHARS_MAX:].strip()
        story = f"compiling ended with status {code}: {words or 'no output'}"
        if not is_crash(code):
            hint = "It is tried again where somebody waits for the model; mostly memory ran out."
            return ModelError("process-killed", story, hint=hint)
        return ModelError(
            "compile-crashed", story, hint="Run 'penstock compile' on the model by hand."
        )
