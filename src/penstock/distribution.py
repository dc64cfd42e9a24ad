"""Where this Penstock is installed from, and the command that adds an extra to it.

Hints print that command, so it must work as printed: with the interpreter that runs now, from the
checkout, archive or distribution that this Penstock came from. On PyPI the name `penstock` belongs
to another project; the distribution is `penstock-inference`.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

NAME: Final = "penstock-inference"

#: PyPI's wheels of torch for this platform bring several GB of CUDA.
_TORCH_EXTRAS: Final = frozenset({"compile", "torch"})
_CUDA_BY_DEFAULT: Final = ("Linux", "x86_64")
_CPU_WHEELS: Final = "https://download.pytorch.org/whl/cpu"
_GPU_DEVICES: Final = ("nvidiactl", "kfd")

#: Settings of pip that say where packages come from.
_INDEX_KEYS: Final = ("index-url", "extra-index-url", "find-links", "no-index")


def install_command(*extras: str) -> str:
    """A shell command that installs extras for the interpreter that runs this.

    Where the machine has no GPU, torch comes from PyTorch's index of CPU builds, unless pip is set
    to an index of the operator's own.
    """
    words = _installer()
    if _TORCH_EXTRAS.intersection(extras) and _wants_cpu_wheels():
        words += ["--extra-index-url", _CPU_WHEELS]
    return shlex.join([*words, *_source(",".join(extras))])


def add_command(*requirements: str) -> str:
    """A shell command that installs packages for the interpreter that runs this."""
    return shlex.join([*_installer(), *requirements])


def has_gpu() -> bool:
    """Whether a driver of NVIDIA's or AMD's runs here."""
    return any(Path("/dev", name).exists() for name in _GPU_DEVICES)


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]  # uv makes environments without pip


def _source(extras: str) -> list[str]:
    """Where this Penstock came from, as an argument of pip's."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return ["-e", f"{checkout}[{extras}]"]
    origin = _origin()
    return [f"{NAME}[{extras}] @ {origin}" if origin else f"{NAME}[{extras}]"]


def _origin() -> str:
    """The URL that this Penstock was installed from; "" if an index had it (PEP 610)."""
    try:
        text = importlib.metadata.distribution(NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    told: dict[str, Any] = json.loads(text or "{}")
    version = told.get("vcs_info")
    if version:
        return f"{version['vcs']}+{told['url']}@{version['commit_id']}"
    return str(told.get("url", ""))


def _wants_cpu_wheels() -> bool:
    here = (platform.system(), platform.machine())
    return here == _CUDA_BY_DEFAULT and not has_gpu() and not own_index(os.environ)


def own_index(environ: Mapping[str, str]) -> bool:
    """Whether pip is told where packages come from, by a variable or a file of settings."""
    if any(f"PIP_{key.upper().replace('-', '_')}" in environ for key in _INDEX_KEYS):
        return True
    home = Path.home()
    files = [
        *(Path(folder, "pip/pip.conf") for folder in _config_folders(environ, home)),
        *(Path("/etc/pip.conf"), home / ".pip/pip.conf", Path(sys.prefix, "pip.conf")),
    ]
    if "PIP_CONFIG_FILE" in environ:
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    settings = configparser.RawConfigParser()
    try:
        settings.read(files)
    except (configparser.Error, UnicodeDecodeError):
        return False
    sections = ("global", "install")
    return any(settings.has_option(one, key) for one in sections for key in _INDEX_KEYS)


def _config_folders(environ: Mapping[str, str], home: Path) -> list[str]:
    own = environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    return [*(environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"), own]
