"""The environments beside `.venv` that tests start processes in (see `tools/environments.py`), and
those of models: `model_python("scikit-learn==1.2.2")` is a Python with these packages, which is
built once for all tests of this tree by the way that a server builds them; `share_environments`
lets a server use those. `wheel` writes a tiny package."""

from __future__ import annotations

import base64
import functools
import hashlib
import subprocess
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import PenstockError
from penstock.runtimes.base import EnvironmentPython, LoadContext
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.store import EnvironmentLease
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


def share_environments(state_dir: Path) -> Path:
    """A state directory, which is not there yet, of a server that builds environments once for all
    tests of this tree."""
    shared = environments.VENVS / "models"
    shared.mkdir(parents=True, exist_ok=True)
    (state_dir / "cache").mkdir(parents=True)
    (state_dir / "cache" / "environments").symlink_to(shared)
    return state_dir


@functools.cache
def _model_environment(requirements: tuple[str, ...], python: str) -> EnvironmentLease:
    folder = environments.VENVS / "models"
    (folder / "none").mkdir(parents=True, exist_ok=True)
    described = ModelDescription(
        runtime="python", task="payload", file="model.py", requirements=requirements, python=python
    )
    context = LoadContext(
        model_dir=folder / "none",
        description=described,
        endpoint_name="tests",
        variant_name="all",
        cores=1,
        memory_bytes_max=0,
        log=print,
    )
    provider = Provider(folder, EnvironmentSettings())
    try:
        lease = provider.provide(context, threading.Event(), seconds=1800)
    except PenstockError as error:
        pytest.skip(f"no environment with {', '.join(requirements)}: {error.message[-300:]}")
    assert lease is not None
    return lease


def model_python(*requirements: str, python: str = "") -> EnvironmentPython:
    """What `LoadContext.interpreter` and `interpreter_dirs` of a model with these requirements are.

    The test that needs it is skipped where it can't be built, for example without an index.
    """
    made = _model_environment(tuple(sorted(requirements)), python).made
    dirs = tuple(Path(each) for each in made.dirs)
    return EnvironmentPython(interpreter=made.interpreter, interpreter_dirs=dirs)


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: tuple[str, ...] = (),
) -> Path:
    """A wheel of pure Python in `folder`, with the same bytes each time. `files`: path inside of it
    -> text."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in whole.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        lines.append(f"{path},sha256={digest.rstrip('=')},{len(text.encode())}\n")
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in whole.items():
            archive.writestr(zipfile.ZipInfo(path), text)
        record = "".join(lines) + f"{info}/RECORD,,\n"
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), record)
    return made
