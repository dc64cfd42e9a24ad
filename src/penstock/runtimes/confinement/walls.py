"""The sandbox ("walls") of a process with a model's code: which files it may access.

Around code of the artifact (Python models, steps of pipelines) there is an allow-list: it reads its
model, the Python installation and the system's libraries, and writes a scratch folder of its own.
Around programs that the operator or an engine brings (foreign servers, vLLM) only the platform's
own folders are closed (keys, database, sockets, logs, the artifacts of others). Neither may signal
processes outside, where the kernel can prevent it.

The kernel enforces it (`confined`); where it can't, the log says so, once. An artifact can't remove
its walls: only the operator can, for all (`control.isolation`) or for the code of trusted artifacts
(`control.trusted_artifacts`). A pickle that a predictor of ours loads stays behind walls, whoever
trusts it. A model's owner can close the network as well
(`EnableNetworkIsolation`), which nobody can undo.

Walls can't be changed later. So a process that hosts several models may read one root folder from
its start, and each model that comes is shown below it (`Views`): its folders made anew, its files
as hard links, or as copies where links are impossible (another disk, another owner). A host
shows each process only models of its own endpoint.

A shown folder is kept when its model is unloaded: a link changes its file's ctime, and the artifact
cache then compares the file's bytes again. Folders whose artifact has left the cache are removed.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from penstock.errors import NotNowError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.confined import everything_but, landlock_version
from penstock.runtimes.environment import for_models, own_packages_dirs, private_temporary

_SYSTEM: Final = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc", "/opt", "/nix", "/gnu",
    "/proc", "/sys", "/run/systemd/resolve", "/run/nvidia-persistenced", "/run/opengl-driver",
)  # fmt: skip
#: Devices that processes write to, GPUs among them; processes of a model communicate through
#: /dev/shm.
_DEVICES: Final = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
    "/dev/shm",  # noqa: S108 - allowed, not written to
    "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/infiniband",
)  # fmt: skip
#: A process writes the names of its threads here, and CUDA does not start where it can't (error
#: 304). It is found by the confined process itself: that of its children stays closed.
_OWN_THREADS: Final = "/proc/self/task"
#: Variables of the server's environment that name files which models read.
_PATH_VARIABLES: Final = (
    "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE",
    "TORCH_HOME", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip


#: A program of its own that starts another one behind walls, and ends it with the instance.
GUARD: Final = str(Path(__file__).with_name("guard.py"))
CONFINED: Final = str(Path(__file__).with_name("confined.py"))

#: Capabilities over other processes and the kernel, which are dropped; programs may need the rest
#: (nginx changes its user). Numbers of linux/capability.h: DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO,
#: SYS_PTRACE, SYS_ADMIN, MKNOD, PERFMON, BPF, CHECKPOINT_RESTORE.
_OF_OTHERS: Final = (2, 16, 17, 19, 21, 27, 38, 39, 40)


@dataclass(frozen=True, slots=True)
class Walls:
    """Folders that may be read, folders that may also be written, and other restrictions."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    drop: tuple[int, ...]  #: numbers of capabilities to drop
    files: bool = True  #: False: access to files is not restricted
    network: bool = True  #: False: no network
    #: Shown as /opt/ml/model in a mount namespace, where the kernel allows it; "" = no such folder
    container_model: str = ""

    def told(self) -> int:
        """A file descriptor from which `confined` reads these walls, once. The caller closes it."""
        descriptor = os.memfd_create("penstock-walls")
        os.write(descriptor, json.dumps(asdict(self)).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def around_code(context: LoadContext, scratch: Path) -> Walls | None:
    """For a process that runs the artifact's own code; None: no walls."""
    if not _wanted(context):
        return _network_alone(context)
    environ = for_models()
    if context.interpreter:
        read = [*_SYSTEM, *own_packages_dirs()]
        environ.pop("PYTHONPATH", None)
    else:
        read = [*_SYSTEM, *_python_installation()]
    for name in _PATH_VARIABLES:
        read += [each for each in environ.get(name, "").split(os.pathsep) if each.startswith("/")]
    return Walls(
        (*_without(read, context.private_dirs), *_environment(context), str(context.model_dir)),
        (str(scratch), _OWN_THREADS, *_devices()),
        tuple(range(64)),
        network=not context.network_isolated,
    )


def around_program(context: LoadContext, scratch: Path) -> Walls | None:
    """For a program that is not the artifact's, with the artifact's data; None: no walls."""
    if not _wanted(context):
        return _network_alone(context)
    ours = own_packages_dirs()  # made before what is everywhere is listed
    everywhere = everything_but(map(str, context.private_dirs))
    return Walls(
        (str(context.model_dir), *ours, *_environment(context)),
        (*everywhere, str(scratch)),
        _OF_OTHERS,
        network=not context.network_isolated,
    )


def around_tool(read: Iterable[str], write: Iterable[str], *, network: bool) -> Walls:
    """For a program that installs packages, or uses them, so that their own code may run."""
    return Walls(
        (*_SYSTEM, *_python_installation(), *read),
        (*write, *_devices()),
        tuple(range(64)),
        files=_landlock_version() > 0,
        network=network,
    )


def confines_files() -> bool:
    """Whether this kernel can keep a process to the files that it is given."""
    return _landlock_version() > 0


def _network_alone(context: LoadContext) -> Walls | None:
    """The operator may leave files open; but the network stays closed if the model's owner asks
    so."""
    if not context.network_isolated:
        return None
    return Walls((), (), _OF_OTHERS, files=False, network=False)


def with_container_paths(walls: Walls | None, context: LoadContext) -> Walls:
    """These walls, inside of which the model is seen where SageMaker's containers have it."""
    walls = walls or Walls((), (), (), files=False)
    return replace(walls, container_model=str(context.model_dir))


def _wanted(context: LoadContext) -> bool:
    if not context.isolated or context.description.unconfined:
        return False
    return _possible(context.log)


_told_once: list[bool] = []
_landlock_version = functools.cache(landlock_version)


def _possible(log: Callable[[str], None]) -> bool:
    if _landlock_version():
        return True
    if not _told_once:
        _told_once.append(True)
        log(
            "warning: this kernel has no Landlock (Linux 5.13 and later, lsm=landlock): models' "
            "processes see all files of the server's user; docs/security.md says what that means"
        )
    return False


def _devices() -> list[str]:
    return [path for pattern in _DEVICES for path in glob.glob(pattern)]


def _environment(context: LoadContext) -> tuple[str, ...]:
    """The folders of the environment that was made for the model, and of the Python it is of."""
    if not context.interpreter:
        return ()
    prefix = Path(os.path.realpath(context.interpreter)).parents[1]
    dirs = context.interpreter_dirs or (Path(context.interpreter).parents[1], prefix)
    return tuple(os.path.realpath(each) for each in dirs)


def _python_installation() -> list[str]:
    ours = str(Path(__file__).resolve().parents[3])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = {"", os.getcwd()} - set(given)  # the server's working directory is not an installation
    paths = [ours, sys.prefix, sys.base_prefix, sys.exec_prefix]
    return paths + [path for path in sys.path if path not in here]


def _without(paths: Iterable[str], private: Iterable[Path]) -> list[str]:
    """`paths`, with each one that holds a private folder replaced by the other files beside it."""
    closed = [os.path.realpath(each) for each in private]
    found: list[str] = []
    for path in map(os.path.realpath, dict.fromkeys(paths)):
        if any(path == each or path.startswith(each + "/") for each in closed):
            continue
        inside = [each for each in closed if path == "/" or each.startswith(path + "/")]
        found += everything_but(inside, below=path) if inside else [path]
    return found


def make_scratch() -> Path:
    """A folder for a model's temporary files, below one that only this user may enter.

    Folders of dead processes are removed on the way. The path is short, because libraries make
    sockets there.
    """
    base = private_temporary()
    return Path(tempfile.mkdtemp(prefix="penstock-model-")) if base is None else fresh_root(base)


def remove_scratch(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)


class Views:
    """Model folders below `root`, which this class makes and `close` removes. All methods block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._in_use: dict[Path, int] = {}  #: shown folder -> models that use it
        root.mkdir(parents=True, exist_ok=True)

    def show(self, model_dir: Path, name: str = "") -> Path:
        """The folder of a model below the root; call `hide` when the model goes. Raises OSError.

        `name`: the folder's name, where the caller decides it; else it follows from the content.
        """
        key = name or hashlib.sha256(str(model_dir).encode()).hexdigest()[:32]
        place = self.root / key / "model"
        if not place.exists():
            made = self.root / f".{key}"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            _link_tree(model_dir, made / "model")
            made.rename(self.root / key)
        self._in_use[place] = self._in_use.get(place, 0) + 1
        return place

    def hide(self, place: Path) -> None:
        """Call this when a model that was shown there is gone."""
        left = self._in_use.pop(place, 0) - 1
        if left > 0:
            self._in_use[place] = left
        for shown in list(self.root.iterdir()):
            if shown / "model" not in self._in_use and _is_last(shown / "model"):
                shutil.rmtree(shown, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def no_room(name: str, error: OSError) -> NotNowError:
    """The error for a model that can't be shown, or for which no file can be opened."""
    return NotNowError(
        "no-room-for-files",
        f"{name}: its files can't be given to its process: {error.strerror or error}",
        hint="Make room on the disk of the cache, or raise the limit of open files (ulimit -n).",
    )


def fresh_root(folder: Path) -> Path:
    """A new folder of this process in `folder`. Those of dead processes are removed on the way."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        pid = left.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))


def _link_tree(source: Path, place: Path) -> None:
    place.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            target = place / entry.name
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            elif entry.is_dir():
                _link_tree(Path(entry.path), target)
            elif entry.is_file():
                _link_file(entry.path, target)


def _link_file(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _is_last(place: Path) -> bool:
    """Whether nothing else has these files: they were copied, or the artifact is gone."""
    with suppress(OSError):
        for folder, _, names in os.walk(place):
            for facts in (Path(folder, name).lstat() for name in names):
                if stat.S_ISREG(facts.st_mode):
                    return facts.st_nlink == 1
    return True
