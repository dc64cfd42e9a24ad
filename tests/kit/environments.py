"""The environments beside `.venv` that tests start processes in (see `tools/environments.py`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import environments


def python_of(name: str) -> Path:
    """The interpreter of an environment; the test that needs one skips where it is not ready."""
    if not environments.is_ready(name):
        pytest.skip(f"no environment {name}: python -m tools.environments {name} makes it")
    return environments.interpreter(name)


def printed_by(name: str, *argv: str, seconds: float = 110, given: str = "") -> str:
    """What a program, run under an environment's interpreter, writes; it has to end well."""
    done = subprocess.run(
        [str(python_of(name)), *argv],
        input=given, capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
