"""One command of pip, uv or venv: a process behind walls, with limits, whose lines are kept.

The command reads the system, the Python installations and the artifact, and writes the folders that
it is given. It has the network unless the model's owner closed it. Its environment is an
allow-list: what a model's process may see, the operator's settings of pip and uv, and the proxies.
So a package that runs code while it is built can reach the index, with the operator's password for
it, and no secret of the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.clock import Clock, SystemClock
from penstock.errors import ModelError, NotNowError
from penstock.runtimes.confinement.walls import GUARD, around_tool, confines_files
from penstock.runtimes.environment import for_models, of_environment

LINES_KEPT: Final = 15
_LINE_CHARS_MAX: Final = 20_000  #: a list of all versions of a package is one line
_LOOK_S: Final = 0.1
_MEASURE_S: Final = 3.0  #: between two looks at how large the environment has become
_WORD_S: Final = 10.0  #: between two lines about how long it takes
_PASSED: Final = ("PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
                  "http_proxy", "https_proxy", "no_proxy", "all_proxy", "XDG_CONFIG_DIRS",
                  "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")  # fmt: skip
#: The operator's settings that would install to somewhere else.
_NOT_PASSED: Final = frozenset(
    ("PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIREMENT",
     "PIP_EDITABLE", "PIP_CACHE_DIR", "PIP_REQUIRE_VIRTUALENV", "PIP_LOG", "PIP_REPORT",
     "UV_CACHE_DIR", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_TARGET")
)  # fmt: skip
_CONFIG_FILES: Final = ("~/.config/pip/pip.conf", "~/.pip/pip.conf")
#: What pip and uv write where an index does not answer, in the words of their libraries.
_UNREACHABLE: Final = ("connection broken by", "NewConnectionError", "NameResolutionError",
                       "Max retries exceeded", "Could not connect", "Connection refused",
                       "dns error", "error sending request", "Network is unreachable")  # fmt: skip
_UV_FILES: Final = ("/etc/uv/uv.toml",)
_SYSTEM_FILES: Final = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", *_UV_FILES)
#: Settings of uv that say where packages come from.
_UV_INDEX_KEYS: Final = ("index", "index-url", "default-index", "extra-index-url", "find-links",
                         "no-index")  # fmt: skip


_processes: set[int] = set()


def installing_pids() -> tuple[int, ...]:
    """Processes that install something now: their memory is not the model's."""
    return tuple(_processes)


class InstallFailed(Exception):
    """The command ended with an error; `lines` are its last ones."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(slots=True, kw_only=True)
class Installer:
    """Runs commands for one environment. All methods block."""

    folder: Path  #: the environment, which is measured
    scratch: Path  #: home and temporary files
    read: tuple[str, ...]
    network: bool
    deadline: float  #: monotonic s
    seconds_max: float
    bytes_max: int
    cancelled: threading.Event
    log: Callable[[str], None]
    clock: Clock = field(default_factory=SystemClock)

    def run(
        self, argv: list[str], doing: str, *, cache: Path | None = None, network: bool = True
    ) -> list[str]:
        """The command's lines. `cache`: a folder that it shares with other environments.

        Raises InstallFailed; NotNowError (`environment-cancelled`); ModelError
        (`environment-timeout`, `environment-too-large`). Then nothing of it runs any more.
        """
        for each in ("home", "tmp"):
            (self.scratch / each).mkdir(parents=True, exist_ok=True)
        environ = self.environment(cache)
        write = [str(self.folder), str(self.scratch), *([str(cache)] if cache else [])]
        walls = around_tool(
            (*self.read, *paths_of(environ)), write, network=network and self.network
        )
        told = walls.told()
        # No core dumps, and no file that is larger than the environment may be.
        limited = ["/bin/sh", "-c", 'ulimit -c 0; ulimit -f "$1"; shift; exec "$@"', "sh"]
        blocks = str(max(1, self.bytes_max // 512))
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, str(told), *limited, blocks, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[told],
                cwd=self.folder,
                env=environ,
                start_new_session=True,
            )
        finally:
            os.close(told)
        return self._followed(process, doing)

    def environment(self, cache: Path | None = None) -> dict[str, str]:
        """The variables of a command's process."""
        home, temporary = self.scratch / "home", self.scratch / "tmp"
        return installer_environment(home, temporary, cache or self.scratch / "cache")

    def _followed(self, process: subprocess.Popen[bytes], doing: str) -> list[str]:
        lines: deque[str] = deque(maxlen=400)
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        _processes.add(process.pid)
        try:
            self._wait(process, doing)
        finally:
            _end(process)
            _processes.discard(process.pid)
            reader.join(timeout=5.0)
        if process.returncode != 0:
            raise InstallFailed(list(lines)[-LINES_KEPT:])
        return list(lines)

    def _wait(self, process: subprocess.Popen[bytes], doing: str) -> None:
        began = self.clock.monotonic()
        measured, told = began, began
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            now = self.clock.monotonic()
            self.check(now)
            if now >= measured + _MEASURE_S:
                measured = now
                self.check_size()
            if now >= told + _WORD_S:
                told = now
                self.log(f"environment: {doing} ... ({now - began:.0f} s)")

    def check(self, now: float | None = None) -> None:
        """Raises where nobody wants it any more, or its time is over."""
        if self.cancelled.is_set():
            raise NotNowError("environment-cancelled", "the model is no longer wanted")
        if (self.clock.monotonic() if now is None else now) >= self.deadline:
            raise ModelError(
                "environment-timeout",
                f"the model's environment was not built within {self.seconds_max:g} s",
                hint="Raise control.environment_s_max (and the model's download timeout), pack "
                "wheels into the archive, or give the server an index that is nearer.",
            )

    def check_size(self) -> None:
        if size_of(self.folder) + size_of(self.scratch) > self.bytes_max:
            raise ModelError(
                "environment-too-large",
                f"the model's environment takes more than {self.bytes_max / 2**30:.1f} GiB",
                hint="Raise control.environment_bytes_max, or ask for fewer packages.",
            )


def _read(process: subprocess.Popen[bytes], lines: deque[str]) -> None:
    assert process.stdout is not None
    for raw in process.stdout:
        text = raw.decode("utf-8", "replace").rstrip()[:_LINE_CHARS_MAX]
        if text:
            lines.append(without_passwords(text))


def without_passwords(text: str) -> str:
    """A line with the credentials of its URLs replaced."""
    return " ".join(map(_without_password, text.split(" ")))


def _without_password(word: str) -> str:
    scheme, found, rest = word.partition("://")
    place, slash, path = rest.partition("/")
    return (
        f"{scheme}://***@{place.rpartition('@')[2]}{slash}{path}"
        if found and "@" in place
        else word
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its standard input tells the guard to end all that it started."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:  # a stopped guard; the kernel ends the program with it
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def installer_environment(home: Path, temporary: Path, cache: Path) -> dict[str, str]:
    """The variables of the command's process."""
    given = os.environ
    environ = of_environment(for_models(), sys.executable)
    for name in ("VIRTUAL_ENV", "SAGEMAKER_BASE_DIR"):
        environ.pop(name, None)
    passed = {
        name: value
        for name, value in given.items()
        if name.startswith(_PASSED) and name not in _NOT_PASSED
    }
    if "PIP_CONFIG_FILE" not in passed:
        for each in _CONFIG_FILES:
            if os.path.isfile(path := os.path.expanduser(each)):
                passed["PIP_CONFIG_FILE"] = path
    return {
        **environ,
        **passed,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "NO_COLOR": "1",
    }


def unreachable(lines: Iterable[str]) -> bool:
    """Whether pip or uv says that it could not even ask an index."""
    return any(sign in line for line in lines for sign in _UNREACHABLE)


def uv_names_index(environ: Mapping[str, str]) -> bool:
    """Whether uv is told where packages come from; it does not read the settings of pip."""
    if any(f"UV_{key.upper().replace('-', '_')}" in environ for key in _UV_INDEX_KEYS):
        return True
    for file in (environ.get("UV_CONFIG_FILE", ""), *_UV_FILES):
        with suppress(OSError, ValueError):
            settings = tomllib.loads(Path(file).read_text())
            if any(
                key in each
                for each in (settings, settings.get("pip", {}))
                for key in _UV_INDEX_KEYS
            ):
                return True
    return False


def paths_of(environ: Mapping[str, str]) -> list[str]:
    """Files and folders that the operator's settings of the installers name."""
    found, files = [], list(_SYSTEM_FILES)
    for name, value in environ.items():
        if name.startswith(("PIP_", "UV_", "SSL_", "REQUESTS_")) and "CACHE" not in name:
            found += _paths(value)
            if name.endswith("CONFIG_FILE"):
                files.append(value)
    for file in files:
        with suppress(OSError):
            found += _paths(Path(file).read_text(errors="replace"))
    return [each for each in found if each != "/" and os.path.exists(each)]


def _paths(text: str) -> list[str]:
    words = text.replace("file://", " ").replace("=", " ").replace(",", " ").split()
    return [each.strip("'\"[]") for each in words if each.strip("'\"[]").startswith("/")]


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, as far as they can be seen."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def walls_hold() -> bool:
    """Whether code that an installation runs is kept to its folders."""
    return confines_files()
