"""Makes the environments of the clients that are tested against a live server, each in its own.

Penstock's environment has the newest botocore, so older clients can't share it. Run by `make test`;
does nothing where an environment is complete. Without a package registry it says so and leaves the
rest to the tests, which then skip with that reason (and fail where CI=true).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VENVS = Path(__file__).resolve().parents[2] / ".venvs"

#: Environment name -> what pip installs into it.
CLIENTS: dict[str, tuple[str, ...]] = {
    "boto3-oldest": ("boto3==1.34.162",),
    "boto3-newest": ("boto3",),
    "awscli": ("awscli",),
    "openai": ("openai",),
    "tritonclient": ("tritonclient[grpc,http]", "numpy"),
    "litellm": ("litellm", "boto3"),
    "sagemaker-v2": ("sagemaker<3",),
    # ModelBuilder without the pipelines of `sagemaker`, whose requirements take many minutes to
    # resolve. With it moto's server, the S3 of these tests: it needs nothing that is not there.
    "sagemaker-v3": ("sagemaker-serve", "sagemaker-core>=2", "moto[s3]", "flask", "flask-cors"),
}

#: Modules are compiled when they are first imported: of the larger packages few ever are.
_INSTALL = ("install", "--quiet", "--no-compile")


def interpreter(name: str) -> Path:
    """The Python of a client's environment."""
    return VENVS / f"client-{name}" / "bin" / "python"


def is_ready(name: str) -> bool:
    return _marker(name).exists() and _marker(name).read_text() == _wanted(name)


def _marker(name: str) -> Path:
    return VENVS / f"client-{name}" / ".ready"


def _wanted(name: str) -> str:
    return "\n".join(CLIENTS[name])


def make(name: str) -> bool:
    """Builds one environment; False, with the reason printed, if it can't be."""
    home = VENVS / f"client-{name}"
    shutil.rmtree(home, ignore_errors=True)
    for argv in (
        [sys.executable, "-m", "venv", str(home)],
        [str(interpreter(name)), "-m", "pip", *_INSTALL, *CLIENTS[name]],
    ):
        run = subprocess.run(argv, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"client environment {name} can't be made: {run.stderr.strip()[-300:]}")
            return False
    _marker(name).write_text(_wanted(name))
    return True


def make_missing(name: str) -> None:
    if not is_ready(name):
        print(f"making the client environment {name} ...", flush=True)
        make(name)


if __name__ == "__main__":
    # Two at once: one waits for the network while the other unpacks. The slowest go first.
    with ThreadPoolExecutor(max_workers=2) as workers:
        list(workers.map(make_missing, reversed(CLIENTS)))
