"""Makes the environment of the compiler's tests: Penstock with its extra `compile`.

The extra brings PyTorch, which Penstock's own environment must do without, so its tests run in an
environment of their own (`test_compile.py` starts them). Run by `make test`; does nothing where the
environment is complete. Without a package registry it says so and leaves the rest to the tests,
which then skip with that reason (and fail where CI=true).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venvs" / "compile"

#: As in the extra `compile` of pyproject.toml, with one PyTorch that all runs share (a range takes
#: the newest build, several GB of CUDA packages). Never torchvision: where it is of another build
#: than torch, importing transformers fails.
REQUIREMENTS = (
    "torch==2.13.0",
    "transformers>=5",
    "nncf>=3",
    "safetensors>=0.5",
    "sentencepiece>=0.2",
)


def interpreter() -> Path:
    return HOME / "bin" / "python"


def is_ready() -> bool:
    return _marker().exists() and _marker().read_text() == _wanted()


def _marker() -> Path:
    return HOME / ".ready"


def _wanted() -> str:
    """What the environment was made for; Penstock's own requirements are part of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = (*project["dependencies"], *project["optional-dependencies"]["dev"])
    return "\n".join((*REQUIREMENTS, *own))


def make() -> bool:
    """Builds the environment, or brings it up to date; False, with the reason, if it can't be."""
    pip = [str(interpreter()), "-m", "pip", "install", "--quiet"]
    steps = [[*pip, *REQUIREMENTS, "--editable", f"{ROOT}[dev]"]]
    if not interpreter().exists():
        shutil.rmtree(HOME, ignore_errors=True)
        steps.insert(0, [sys.executable, "-m", "venv", str(HOME)])
    for argv in steps:
        run = subprocess.run(argv, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"the compile environment can't be made: {run.stderr.strip()[-300:]}")
            return False
    _marker().write_text(_wanted())
    return True


if __name__ == "__main__" and not is_ready():
    print("making the compile environment (PyTorch; some minutes) ...", flush=True)
    make()
