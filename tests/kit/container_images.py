"""A real image, made of this Python without a registry, and what an engine says of containers.

The image has an interpreter, its standard library, the libraries that these need, and the servers
of this folder. An engine keeps it under a name that follows from its content.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import ServerConfig
from penstock.runtimes.container.settings import ContainerSettings

_KIT = Path(__file__).parent
_SERVERS = ("image_server.py", "multi_model_server.py", "bad_image_server.py")
_LEFT_OUT = re.compile(
    r"/(test|tests|site-packages|dist-packages|__pycache__|config-[^/]*|idlelib|ensurepip|tkinter"
    r"|lib2to3|pydoc_data)(/|$)"
)
_NEEDS = re.compile(r"(/\S+) \(0x")
#: The engine of all tests of containers; Podman needs no daemon. The variable is the setting of
#: servers, too: with it, the same tests hold under Docker.
ENGINE = os.environ.get("PENSTOCK_CONTAINERS_ENGINE", "podman")
#: An engine that takes longer hangs: Podman does, at the lock of a client that was killed.
ANSWERS_WITHIN_S = 60
#: The skip, as tests/conftest.py lists it.
NO_ENGINE = "no container engine: {}"


def engine() -> str:
    """The engine's program; skips where none runs a container."""
    why = _why_none()
    if why:
        pytest.skip(NO_ENGINE.format(why))
    return ENGINE


@functools.cache
def _why_none() -> str:
    """Why the engine can't run a container here; "" = it can. Debian's Podman needs runc."""
    if shutil.which(ENGINE) is None:
        return f"{ENGINE} is missing"
    try:
        engine_says("ps", "--all")
    except subprocess.CalledProcessError as error:
        return f"{ENGINE} ps says {error.stderr.strip()[-200:]}"
    except subprocess.TimeoutExpired:
        return f"{ENGINE} ps hangs; for Podman, end its processes, then `podman system renumber`"
    try:
        tag = image()
    except subprocess.CalledProcessError as error:
        return f"{ENGINE} import says {error.stderr.decode()[-200:]}"
    tried = subprocess.run(
        [ENGINE, "run", "--rm", "--network", "none", "--cap-drop", "all", "--ulimit",
         "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--memory", "64m", "--env",
         "END_WITH=0", tag, "serve"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if "begins" in tried.stdout else f"{ENGINE} run says {tried.stderr.strip()[-200:]}"


@functools.cache
def image(user: str = "0", server: str = _SERVERS[0], *more: str) -> str:
    """The name of the image, which is made where the engine has none of this content.

    `more`: further instructions of a Dockerfile. Without `server` it has no entry point.
    """
    archive = _archive()
    changes = [f'ENTRYPOINT ["{_executable()}", "/servers/{server}"]'] if server else []
    changes += ["ENV PYTHONUNBUFFERED=1", f"USER {user}", *more]
    content = hashlib.sha256(archive + repr(changes).encode()).hexdigest()[:16]
    return _imported(archive, f"{content}-{user}", changes)


def _imported(archive: bytes, tag: str, changes: list[str], *flags: str) -> str:
    name = f"localhost/penstock-tests:{tag}"
    if not is_here(name):
        options = [option for each in changes for option in ("--change", each)]
        asked = [ENGINE, "import", *flags, *options, "-", name]
        subprocess.run(asked, input=archive, capture_output=True, check=True)
    return name


def image_for_another_machine() -> str:
    """Its only program is one of a processor that this machine does not have."""
    arm = platform.machine() != "aarch64"
    number, architecture = (b"\xb7", "arm64") if arm else (b"\x3e", "amd64")
    program = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + number + bytes(64)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        facts = tarfile.TarInfo("program")
        facts.mode, facts.size = 0o755, len(program)
        archive.addfile(facts, io.BytesIO(program))
    flags = ["--arch", architecture] if ENGINE == "podman" else ["--platform", architecture]
    return _imported(out.getvalue(), f"for-{architecture}", ['ENTRYPOINT ["/program"]'], *flags)


def is_here(name: str) -> bool:
    """Whether the engine has an image of this name."""
    asked = [ENGINE, "image", "inspect", name]
    return not subprocess.run(asked, capture_output=True, check=False).returncode


@contextlib.contextmanager
def in_place_of_python() -> Iterator[None]:
    """Gives the image the name of the one that the page of containers begins with, where the engine
    has none of that name: there is no registry here. The name is taken away again."""
    name = "docker.io/library/python:3.12-slim"
    if is_here(name):
        yield
        return
    engine_says("tag", image(), name)
    try:
        yield
    finally:
        engine_says("untag", image(), name)


def _executable() -> str:
    return os.path.realpath(sys.executable)


def _archive() -> bytes:
    """The same bytes each time, for the same Python and the same servers."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = [library, *sorted(library.rglob("*"))]
    kept = [each for each in modules if not _LEFT_OUT.search(str(each))]
    libraries = _shared(_executable()).union(
        *(_shared(str(each)) for each in kept if each.suffix == ".so")
    )
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in (*map(str, kept), _executable(), *sorted(libraries)):
            _add(archive, Path(path), Path(os.path.realpath(path)) if path in libraries else None)
        link = tarfile.TarInfo("usr/local/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, _executable()
        archive.addfile(link)
        for name in _SERVERS:
            _add(archive, Path("/servers") / name, _KIT / name)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
    return out.getvalue()


def _add(archive: tarfile.TarFile, place: Path, content: Path | None = None) -> None:
    facts = archive.gettarinfo(str(content or place), arcname=str(place))
    facts.mtime = facts.uid = facts.gid = 0
    facts.uname = facts.gname = ""
    facts.mode |= 0o444
    if facts.isreg():
        with (content or place).open("rb") as file:
            archive.addfile(facts, file)
    else:
        archive.addfile(facts)


def _shared(program: str) -> set[str]:
    """The shared libraries that a program loads, the loader among them."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return set(_NEEDS.findall(told))


def containers(label: str = "penstock.endpoint") -> dict[str, str]:
    """Name -> value of the label, for all containers that have it, whether they run or not."""
    ids = engine_says("ps", "--all", "--quiet", "--filter", f"label={label}").split()
    form = f'{{{{.Name}}}} {{{{index .Config.Labels "{label}"}}}}'
    asked = [ENGINE, "container", "inspect", "--format", form, *ids]
    # One that goes meanwhile is left out.
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout if ids else ""
    return dict(line.lstrip("/").split(maxsplit=1) for line in told.splitlines())


def containers_of(endpoint: str) -> list[str]:
    return sorted(
        name for name, value in containers().items() if value.partition("/")[0] == endpoint
    )


def containers_of_server(state_dir: Path) -> list[str]:
    """Other tests have some meanwhile, and a server that was killed may have left some."""
    owner = ContainerSettings.from_config(ServerConfig(state_dir=state_dir)).owner
    return sorted(name for name, value in containers("penstock.owner").items() if value == owner)


def engine_says(*words: str) -> str:
    """Raises CalledProcessError, and TimeoutExpired for an engine that hangs."""
    return subprocess.run(
        [ENGINE, *words], capture_output=True, text=True, check=True, timeout=ANSWERS_WITHIN_S
    ).stdout.strip()
