"""Builds one environment in an empty folder, by uv where it is on the PATH, else by pip.

Packages come, in this order, from the artifact's own wheels, as wheels from the server's index, and
from sources. Only the last runs code of a package: it needs the operator's permission and walls
that hold, and its cache is thrown away, so that no package can leave anything for another
environment.

What our part of a model's process imports (numpy, orjson) is added where the model's requirements
did not bring it: the server's own copy where the Python is of the same version, so that a folder of
wheels needs no network; else from the index.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.distribution import own_index
from penstock.errors import ModelError
from penstock.runtimes.environments import interpreters
from penstock.runtimes.environments.installer import (
    Installer,
    InstallFailed,
    unreachable,
    uv_names_index,
    walls_hold,
)
from penstock.runtimes.environments.interpreters import Interpreter
from penstock.runtimes.environments.nearest import nearest, pinned
from penstock.runtimes.environments.own_copies import copy_distribution
from penstock.runtimes.environments.packed import unpacked
from penstock.runtimes.environments.requirements import name_of, without_versions
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.spec import EnvironmentSpec

#: What our part of a model's process imports.
BASE: Final = ("numpy", "orjson")
#: The last lines of an installer that an error ends with, so that they fit into a FailureReason.
_LINES_MAX: Final = 4
_LINE_CHARS_MAX: Final = 200
#: PyTorch, and libraries that bring it.
_TORCH: Final = frozenset(
    ("torch", "torchvision", "torchaudio", "accelerate", "fastai", "lightning", "peft",
     "pytorch-lightning", "sentence-transformers", "timm", "torchmetrics", "ultralytics")
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContent:
    """What is in a new environment."""

    python: Interpreter
    dirs: tuple[str, ...]  #: folders that it consists of
    framework: tuple[str, ...] = ()  #: the versions that were installed
    notes: tuple[str, ...] = ()  #: what differs from what was wanted, and why


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to get the packages."""

    doing: str
    index: bool
    sources: bool


@dataclass(slots=True)
class EnvironmentBuilder:
    """Use: `build`, once. Blocks."""

    spec: EnvironmentSpec
    settings: EnvironmentSettings
    installer: Installer
    cache: Path  #: wheels that environments share
    notes: list[str] = field(default_factory=list)
    uv: str = ""  #: the program that installs; "" = pip does

    def build(self) -> EnvironmentContent:
        """Raises ModelError (`environment-failed`, `index-unreachable`, `environment-timeout`,
        `environment-too-large`) and NotNowError (`environment-cancelled`)."""
        try:
            self.uv = self._uv()
            return self._build()
        except InstallFailed as failed:
            raise self._failed(failed) from None

    def _build(self) -> EnvironmentContent:
        spec, log = self.spec, self.installer.log
        if spec.packed is not None:
            return self._unpack(spec.packed)
        framework = self._for_here(spec.framework)
        try:
            self._install(framework)
        except InstallFailed as failed:
            if unreachable(failed.lines):
                raise
            framework = self._install_nearest(framework, failed)
        self._add_base()
        self._import_once()
        self.installer.check_size()
        for note in self.notes:
            log(f"environment: {note}")
        python = spec.python
        return EnvironmentContent(
            python=python,
            dirs=(str(self.installer.folder), python.prefix),
            framework=framework,
            notes=tuple(self.notes),
        )

    def _unpack(self, archive: Path) -> EnvironmentContent:
        installer = self.installer
        installer.log(f"environment: unpacking {archive.name}")
        found = unpacked(
            archive,
            installer.folder,
            installer.scratch,
            bytes_max=installer.bytes_max,
            seconds_max=max(0.0, installer.deadline - installer.clock.monotonic()),
            cancelled=installer.cancelled,
            pythons=self.settings.pythons,
        )
        self.spec = dataclasses.replace(self.spec, python=found.python)
        installer.read = (*installer.read, *found.dirs)
        self._add_base()
        return EnvironmentContent(python=found.python, dirs=found.dirs)

    # Steps

    def _uv(self) -> str:
        """uv, which may be in somebody's home; "" where there is none that runs behind the walls,
        such as a script that starts another program, or where the operator's index is pip's."""
        found = shutil.which("uv")
        if found is None:
            return ""
        environ = self.installer.environment()
        if own_index(environ) and not uv_names_index(environ):
            self.installer.log("environment: pip installs: its settings name an index, uv's none")
            return ""
        found = os.path.realpath(found)
        self.installer.read = (*self.installer.read, found)
        try:
            self.installer.run([found, "--version"], "asking uv", network=False)
            return found
        except InstallFailed as failed:
            last = failed.lines[-1] if failed.lines else "it ended with an error"
            self.installer.log(f"environment: pip installs: {found} does not run here: {last}")
            return ""

    def _make_empty(self) -> None:
        folder, python = self.installer.folder, self.spec.python.path
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        if self.uv:
            argv = [self.uv, "venv", "--quiet", "--no-project", "--python", python, str(folder)]
            argv += ["--allow-existing"]
        else:
            argv = [python, "-I", "-m", "venv", str(folder)]
            argv += ["--without-pip"] if _pip() else []
        self.installer.run(argv, "making an environment", network=False)

    def _for_here(self, framework: tuple[str, ...]) -> tuple[str, ...]:
        """The lines for this machine: without a GPU PyTorch's build for processors is enough."""
        lines = (*framework, *self.spec.requirements.lines)
        if not self._wants_torch(lines) or self.spec.accelerated or not self._may_use_index():
            return framework
        if self._has_own_index():
            self.notes.append("torch is taken from the server's own index, as it is there")
        elif self.settings.torch_cpu_index:
            self.notes.append(
                f"there is no GPU: torch is taken from {self.settings.torch_cpu_index}, where "
                "that has it (control.torch_cpu_index)"
            )
        return framework

    def _install(self, framework: tuple[str, ...]) -> None:
        if not framework and self.spec.requirements.is_empty:
            self._make_empty()
            return
        failed: InstallFailed | None = None
        for attempt in self._attempts():
            # What a former attempt left must not run beside the cache of all environments.
            self._make_empty()
            try:
                self._install_by(attempt, framework)
                return
            except InstallFailed as error:
                failed = error
        if failed is not None:
            raise failed

    def _attempts(self) -> Iterator[_Attempt]:
        what = self.spec.shown()
        if self.spec.requirements.wheels or self.spec.requirements.files:
            yield _Attempt(f"installing {what} from the artifact's wheels", False, False)
        if self._may_use_index():
            yield _Attempt(f"installing {what}", True, False)
        elif not (self.spec.requirements.wheels or self.spec.requirements.files):
            raise ModelError(
                "environment-failed",
                f"the model needs {what}, and its packages may not come over the network",
                hint="Put wheels into a folder wheels/ beside requirements.txt: "
                "pip download -r requirements.txt -d wheels",
            )
        # What an image stands for has wheels; else the nearest version that has some is taken.
        if self.settings.sources and walls_hold() and not self.spec.requirements.is_empty:
            yield _Attempt(f"building {what}", self._may_use_index(), True)

    def _install_by(self, attempt: _Attempt, framework: tuple[str, ...]) -> None:
        wanted = self.spec.requirements
        lines = [*framework, *wanted.lines, *(str(each) for each in wanted.files)]
        lines += self._copy_own()
        argv = self._command("install")
        argv += self._sources(attempt.index, framework)
        argv += wanted.options
        if not attempt.sources:
            argv += ["--only-binary", ":all:"]
        argv += ["-r", self._file("requirements.txt", lines)]
        if wanted.constraints:
            argv += ["-c", self._file("constraints.txt", wanted.constraints)]
        self.installer.log(f"environment: {attempt.doing} (Python {self.spec.python.version})")
        cache = None if attempt.sources else self.cache
        self.installer.run(argv, attempt.doing, cache=cache, network=attempt.index)

    def _install_nearest(
        self, framework: tuple[str, ...], failed: InstallFailed
    ) -> tuple[str, ...]:
        """Installs and returns the nearest versions of a framework. Raises InstallFailed."""
        nearer = tuple(self._nearest(line) for line in framework)
        if nearer == framework:
            raise failed
        try:
            self._install(nearer)
        except InstallFailed:
            # What went with the version that was named may be too old for the nearest one.
            nearer = tuple(line if pinned(line) else without_versions(line) for line in nearer)
            self._install(nearer)
        return nearer

    def _nearest(self, line: str) -> str:
        """The version of a framework that can be installed here, nearest to the one that is named;
        the line itself where none is found, or the version is there."""
        wanted = pinned(line)
        if wanted is None or not self._may_use_index() or not _pip():
            return line
        # Its refusal lists the versions that have a wheel for this Python.
        argv = [*_pip(), "--python", self._python(), "install", "--dry-run", "--no-deps"]
        argv += ["--only-binary", ":all:", *self._sources(True, (line,)), line]
        try:
            self.installer.run(argv, f"asking for versions of {name_of(line)}")
            return line
        except InstallFailed as refused:
            told = refused.lines
        found = nearest(wanted, told)
        if not found or found == wanted:
            return line
        self.notes.append(
            f"{name_of(line)} {wanted} can't be installed on Python {self.spec.python.version}: "
            f"{found}, the nearest version that can, is used"
        )
        return line.replace(wanted, found)

    def _add_base(self) -> None:
        site = self._site()
        missing = [name for name in BASE if not (site / name).is_dir()]
        if not missing:
            return
        if self.spec.python.suffix == interpreters.own().suffix:
            for name in missing:
                copy_distribution(name, site)
            return
        argv = [*self._command("install"), "--only-binary", ":all:", *missing]
        self.installer.run(argv, f"installing {', '.join(missing)}")

    def _copy_own(self) -> list[str]:
        """Copies what comes from the server's own environment; the installer then leaves it as it
        is. Returns the lines of what has to be installed instead."""
        missing = []
        for line in self.spec.copied:
            self.installer.check()
            if not copy_distribution(name_of(line), self._site()):
                missing.append(line)
        return missing

    def _import_once(self) -> None:
        """Only what is really imported gets bytecode: to compile all of PyTorch and transformers
        takes longer than to download them. What can't be imported fails here."""
        if not self.spec.imports:
            return
        doing = "importing what was installed"
        self.installer.log(f"environment: {doing}")
        argv = [self._python(), "-I", "-c", "\n".join(self.spec.imports)]
        self.installer.run(argv, doing, network=False)

    # Parts of commands

    def _command(self, verb: str) -> list[str]:
        bytecode = not self.spec.imports
        if self.uv:
            argv = [self.uv, "pip", verb, "--quiet", "--python", self._python()]
            return [*argv, "--compile-bytecode"] if bytecode else argv
        pip = _pip()
        argv = [*pip, "--python", self._python()] if pip else [self._python(), "-m", "pip"]
        return [*argv, verb, "--quiet"] if bytecode else [*argv, verb, "--quiet", "--no-compile"]

    def _sources(self, index: bool, framework: tuple[str, ...]) -> list[str]:
        argv = [] if index else ["--no-index"]
        for folder in self.spec.requirements.wheels:
            argv += ["--find-links", str(folder)]
        own = self._has_own_index()
        place = self.settings.torch_cpu_index
        wants = self._wants_torch((*framework, *self.spec.requirements.lines))
        if index and wants and place and not own and not self.spec.accelerated:
            argv += ["--extra-index-url", place]
            if self.uv:
                argv += ["--index-strategy", "unsafe-best-match"]
        return argv

    def _may_use_index(self) -> bool:
        return self.spec.network and not self.spec.requirements.no_index

    @staticmethod
    def _wants_torch(lines: tuple[str, ...]) -> bool:
        return any(name_of(line) in _TORCH for line in lines)

    def _has_own_index(self) -> bool:
        """Whether the operator says where the program that installs gets packages from."""
        environ = self.installer.environment()
        return uv_names_index(environ) if self.uv else own_index(environ)

    def _file(self, name: str, lines: list[str] | tuple[str, ...]) -> str:
        path = self.installer.scratch / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def _python(self) -> str:
        return str(self.installer.folder / "bin" / "python")

    def _site(self) -> Path:
        return self.installer.folder / "lib" / f"python{self.spec.python.short}" / "site-packages"

    def _failed(self, failed: InstallFailed) -> ModelError:
        for line in failed.lines:
            self.installer.log(f"environment: {line[:1000]}")
        if unreachable(failed.lines):
            return ModelError(
                "index-unreachable",
                f"the model's environment ({self.spec.shown()}) can't be built: "
                "no index of packages can be reached from the server",
                hint="Give the server an index (PIP_INDEX_URL), or put wheels into a folder "
                "wheels/ beside requirements.txt: pip download -r requirements.txt -d wheels",
            )
        lines = [line[-_LINE_CHARS_MAX:] for line in failed.lines[-_LINES_MAX:]]
        last = "\n".join(lines) or "the installer wrote nothing"
        return ModelError(
            "environment-failed",
            f"{self.spec.what} ({self.spec.shown()}, Python {self.spec.python.version}) "
            f"can't be built; the installer's last lines:\n{last}",
            hint="Name versions that exist for this Python, pack wheels into the archive, or see "
            "docs/howto/environments.md.",
        )


def _pip() -> list[str]:
    """The server's own pip, which can install into other environments; [] = it has none."""
    found = importlib.util.find_spec("pip") is not None
    return [sys.executable, "-I", "-m", "pip"] if found else []
