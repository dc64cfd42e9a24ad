"""Which environment variables a process of the platform, and one with a model's code, may see.

One table, an allow-list: variables that are not named here stay with the server. A model's process
gets what libraries need to find themselves, their cores and their accelerators, and the model's own
Environment on top; never the platform's settings, its database's address, credentials or tokens. An
instance also gets what fetching artifacts and installing packages needs: the credentials of object
stores, the operator's settings of pip and uv, and the proxies. Their addresses may hold a password.

Another Python than the server's finds its own libraries, and of ours this package alone
(`of_environment`, `own_packages`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import site
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Names that every process may see; with a "*" at the end they are prefixes.
_MODELS: Final = (
    # The operating system
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*", "GLIBC_TUNABLES", "TCMALLOC_*", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "XDG_CACHE_HOME",
    # Python
    "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "COVERAGE_*",
    # Libraries of numerics
    "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "ONEDNN_*", "DNNL_*",
    "OPENVINO_*", "OV_*", "ORT_*", "ATEN_*", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*",
    "TOKENIZERS_*", "HF_*", "TRANSFORMERS_*", "TF_*", "XLA_*", "RAYON_*", "VLLM_*",
    # Accelerators
    "CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "ROCR_*", "HIP_*", "HSA_*", "ZE_*",
    # SageMaker's containers
    "SAGEMAKER_*", "SM_*",
)  # fmt: skip
#: Names that only an instance may see as well.
_INSTANCES: Final = (
    "AWS_*", "GOOGLE_*", "AZURE_*", "OBJECT_STORE_*",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "PIP_*", "UV_*", "XDG_CONFIG_DIRS",  # the operator's settings of what installs packages
)  # fmt: skip
#: Names that tell a container engine's client where its daemon, its images and its settings are.
_ENGINES: Final = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
    "CONTAINER_HOST", "CONTAINERS_*", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
#: A variable with one of these words in its name is secret, whatever its prefix is.
_SECRETS: Final = frozenset(
    ("TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "KEY", "KEYS", "CREDENTIAL", "CREDENTIALS",
     "AUTH", "APIKEY")
)  # fmt: skip

#: Weights are packed for the processor when a model first runs, and with pages of 4 KiB the kernel
#: takes a third of that time. So the C library is asked for huge pages. It uses them only for the
#: heap that all threads share: hence one arena, and hence blocks up to 32 MiB come from it (the
#: bound that glibc reaches by itself). On systems without such pages nothing else changes.
HUGE_PAGES: Final = (
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=134217728",
)


def for_models(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for a process that runs a model's code."""
    given = os.environ if environ is None else environ
    return {
        name: value
        for name, value in given.items()
        if _named(name, _MODELS) and not _SECRETS & set(name.upper().split("_"))
    }


def for_instances(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for an instance, which fetches artifacts and runs no code of theirs itself."""
    given = os.environ if environ is None else environ
    more = {
        name: value
        for name, value in given.items()
        if _named(name, _INSTANCES) or _named(name, _ENGINES)
    }
    return for_models(given) | more


def for_engines(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for the client of a container engine. Its containers see none of them."""
    given = os.environ if environ is None else environ
    own = {name: value for name, value in given.items() if _named(name, _ENGINES)}
    # Networks are made by iptables, which is not on every user's PATH.
    path = f"{given.get('PATH', os.defpath)}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
    return for_models(given) | own | {"PATH": path}


def with_huge_pages(environ: Mapping[str, str]) -> dict[str, str]:
    """For a process to be started; unchanged if its owner has set variables for the C library."""
    name, value = HUGE_PAGES
    return {name: value} | dict(environ)


def huge_pages_end_here() -> None:
    """Processes that this one starts use the system's page size."""
    name, value = HUGE_PAGES
    if os.environ.get(name) == value:
        del os.environ[name]


def at_home_in(scratch: str) -> dict[str, str]:
    """Variables that make `scratch` a process's home; the user's packages stay importable."""
    base = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}
    return {"HOME": scratch, "TMPDIR": scratch, "XDG_CACHE_HOME": f"{scratch}/.cache", **base}


#: Variables by which one Python finds its libraries: another one must not see them.
_OF_ONE_PYTHON: Final = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONPLATLIBDIR",
    "PYTHONEXECUTABLE", "VIRTUAL_ENV", "CONDA_PREFIX",
)  # fmt: skip


def of_environment(environ: Mapping[str, str], interpreter: str) -> dict[str, str]:
    """`environ` for a process of another Python: its programs come first on the PATH."""
    folder = Path(interpreter).parent
    kept = {name: value for name, value in environ.items() if name not in _OF_ONE_PYTHON}
    path = f"{folder}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(folder.parent), "PYTHONNOUSERSITE": "1"}


def own_packages_dirs() -> tuple[str, ...]:
    """The folders that hold `own_packages`: the path for imports, and what its link leads to."""
    return own_packages(), str(_PACKAGE)


_PACKAGE: Final = Path(__file__).resolve().parents[1]


def own_packages() -> str:
    """A folder with our own package and no other, for the import path of another Python.

    Where we are installed among libraries, theirs must not be found there: then it is a folder with
    a link, one for all processes of this installation. It is made again where somebody has emptied
    the place for temporary files.
    """
    if not _is_among_libraries():
        return str(_PACKAGE.parent)
    ours = private_temporary()
    folder = _folder_of_this_process() if ours is None else ours / f"own-{_NAME}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(_PACKAGE, folder / _PACKAGE.name)
    return str(folder)


_NAME: Final = hashlib.sha256(os.fsencode(_PACKAGE)).hexdigest()[:16]


@functools.cache
def _is_among_libraries() -> bool:
    beside = {each.name.partition(".")[0] for each in _PACKAGE.parent.iterdir()}
    return not beside <= {_PACKAGE.name, "__pycache__"}


@functools.cache
def _folder_of_this_process() -> Path:
    folder = tempfile.mkdtemp(prefix="penstock-own-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def private_temporary() -> Path | None:
    """A folder for temporary files that only this user may enter, the same for all its processes.
    None where another user has made it, or has opened it to others."""
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        known = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid()
    return folder if ours and not known.st_mode & 0o077 else None


def _named(name: str, table: tuple[str, ...]) -> bool:
    return name in table or name.startswith(_PREFIXES[table])


_PREFIXES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    table: tuple(entry[:-1] for entry in table if entry.endswith("*"))
    for table in (_MODELS, _INSTANCES, _ENGINES)
}
