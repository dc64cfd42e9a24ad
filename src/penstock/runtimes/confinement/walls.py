"""What of the machine's files a process with a model's code may touch.

Two kinds of walls. Around code of the artifact (Python models, steps of pipelines): an allow-list.
It reads its model, the Python installation and the system's libraries, and writes a scratch folder
of its own. Around programs that the operator or an engine brings (foreign servers, vLLM): the whole
machine as its user sees it, without the platform's own folders (keys, database, sockets, logs, the
artifacts of others). Neither may signal processes outside, where the kernel can see to that.

The kernel does it (`landlock`); where it can't, a line in the log says so, once. An artifact can't
take its walls down: only the operator can, for all (`control.isolation`) or for artifacts that are
trusted (`control.trusted_artifacts`). A model's owner can have the network shut as well
(`EnableNetworkIsolation`), which nobody takes down.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement import landlock
from penstock.runtimes.environment import for_models

_SYSTEM: Final = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/nix", "/gnu",
    "/proc", "/sys", "/run/systemd/resolve", "/run/nvidia-persistenced", "/run/opengl-driver",
)  # fmt: skip
#: Devices that are used by writing to them, GPUs among them; /dev/shm is what processes of a model
#: speak to each other through.
_DEVICES: Final = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
    "/dev/shm",  # noqa: S108 - allowed, not written to
    "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/infiniband",
)  # fmt: skip
#: Variables of the server's own environment that name files which models read.
_PATH_VARIABLES: Final = (
    "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE",
    "TORCH_HOME", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip


#: Capabilities over other processes and the kernel. A program may need others: nginx changes its
#: user, say. By the numbers of linux/capability.h: DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO,
#: SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF, CHECKPOINT_RESTORE.
_OF_OTHERS: Final = (2, 16, 17, 19, 21, 27, 38, 39, 40)


@dataclass(frozen=True, slots=True)
class Walls:
    """Paths below which there is something to read, and to write as well; and what else is left."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    drop: tuple[int, ...]  #: capabilities that are given up, by their numbers
    files: bool = True  #: False: the machine's files are not walled off
    network: bool = True  #: False: the machine's network is (`network`)

    def told(self) -> int:
        """A file descriptor that says them once, for `confined`. The caller closes it."""
        descriptor = os.memfd_create("penstock-walls")
        os.write(descriptor, json.dumps(asdict(self)).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def around_code(context: LoadContext, scratch: Path) -> Walls | None:
    """For a process that runs the artifact's own code; None: no walls."""
    if not _wanted(context):
        return _network_alone(context)
    read = [*_SYSTEM, *_python_installation(), str(context.model_dir)]
    environ = for_models()
    for name in _PATH_VARIABLES:
        read += [each for each in environ.get(name, "").split(os.pathsep) if each.startswith("/")]
    return Walls(
        (*_without(read, context.private_dirs), str(context.model_dir)),
        (str(scratch), *_present(_DEVICES)),
        tuple(range(64)),
        network=not context.network_isolated,
    )


def around_program(context: LoadContext, scratch: Path) -> Walls | None:
    """For a program that is not the artifact's, with the artifact's data; None: no walls."""
    if not _wanted(context):
        return _network_alone(context)
    everywhere = landlock.everything_but(map(str, context.private_dirs))
    return Walls(
        (str(context.model_dir),),
        (*everywhere, str(scratch)),
        _OF_OTHERS,
        network=not context.network_isolated,
    )


def _network_alone(context: LoadContext) -> Walls | None:
    """The operator can leave files open; that the network is shut, the model's owner has asked."""
    if not context.network_isolated:
        return None
    return Walls((), (), _OF_OTHERS, files=False, network=False)


def _wanted(context: LoadContext) -> bool:
    if not context.isolated or context.description.trusted:
        return False
    return _possible(context.log)


@functools.cache
def _version() -> int:
    return landlock.version()


_told_once: list[bool] = []


def _possible(log: Callable[[str], None]) -> bool:
    if _version():
        return True
    if not _told_once:
        _told_once.append(True)
        log(
            "warning: this kernel has no Landlock (Linux 5.13 and later, lsm=landlock): models' "
            "processes see all files of the server's user; docs/security.md says what that means"
        )
    return False


def _python_installation() -> list[str]:
    ours = str(Path(__file__).resolve().parents[3])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = {"", os.getcwd()} - set(given)  # where the server was started is no installation
    paths = [ours, sys.prefix, sys.base_prefix, sys.exec_prefix]
    return paths + [path for path in sys.path if path not in here]


def _without(paths: Iterable[str], private: Iterable[Path]) -> list[str]:
    """`paths`, those that hold a private folder replaced by what stands beside it."""
    closed = [os.path.realpath(each) for each in private]
    found: list[str] = []
    for path in map(os.path.realpath, dict.fromkeys(paths)):
        if any(path == each or path.startswith(each + "/") for each in closed):
            continue
        inside = [each for each in closed if path == "/" or each.startswith(path + "/")]
        found += landlock.everything_but(inside, below=path) if inside else [path]
    return found


def _present(patterns: Iterable[str]) -> list[str]:
    return [path for pattern in patterns for path in glob.glob(pattern)]


def make_scratch() -> Path:
    """A folder of a model's own for its temporary files, below one that only this user may enter.

    Folders of processes that are gone are removed on the way. The path is short: sockets of
    libraries lie there.
    """
    base = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        known = base.lstat()
        ours = stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid()
        if not ours or known.st_mode & 0o077:
            raise PermissionError  # somebody else's, or open to them
    except OSError:
        return Path(tempfile.mkdtemp(prefix="penstock-model-"))
    for left in base.iterdir():
        pid = left.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=base))


def remove_scratch(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
