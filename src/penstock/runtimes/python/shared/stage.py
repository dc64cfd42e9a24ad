"""Several models in one process, each with names and settings as in a process of its own.

One model is on the stage at a time: before any of its code runs it *enters*, and its own state is
restored; when another enters, it *leaves*, and its own state is saved. Its own state is:

* modules from below its folder, or made by its code (without a file): `import helpers` in two
  models gives two modules. Libraries are imported once, for all; a name that a model brings
  itself hides the library's;
* `sys.path`, the working directory, `sys.stdout` and `sys.stderr`, and descriptors 1 and 2, so that
  output of native code gets the model's name as well;
* environment variables, including those that it sets.

All else in the process is shared: settings of libraries (threads, default types), the state of
their random generators, log handlers, signal handlers, and the names that a thread of the model
finds while another model is on. A model that needs its own asks for a process of its own.

Imports the standard library alone.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any


class Surroundings:
    """One model's own state. `root`: files below it belong to the model."""

    def __init__(self, root: str, code_dir: str, environment: dict[str, str], output: int) -> None:
        #: Both spellings of the folder: as in `sys.path`, and with links resolved.
        self._roots = tuple({os.path.join(each, "") for each in (root, os.path.realpath(root))})
        self._names = _names_in(code_dir)  #: names that an import finds in its folder first
        self._output = output  #: descriptor for its standard output
        self._environment = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        self._entered: dict[bytes, bytes] = {}  #: all variables at the time when it entered
        self._cwd = root
        self._path: list[str] = []  #: [] before it has entered once
        self._streams: tuple[Any, Any] | None = None
        self._modules: dict[str, ModuleType] = {}
        self._hides: dict[str, ModuleType] = {}  #: libraries' modules that it hides while it is on
        self._known = 0  #: number of modules when it entered

    def enter(self, before: _ProcessBefore) -> None:
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        sys.stdout, sys.stderr = self._streams or before.streams
        sys.path[:] = self._path or before.path
        self._entered = before.environment | self._environment
        _set_variables(self._entered)
        with suppress(OSError):  # the folder was removed meanwhile
            os.chdir(self._cwd)
        self._hides = {name: sys.modules.pop(name) for name in self._hidden(before)}
        sys.modules.update(self._modules)
        self._known = len(sys.modules)

    def leave(self, before: _ProcessBefore) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):  # they may be the model's own objects
                stream.flush()
        self._streams = sys.stdout, sys.stderr
        self._path = list(sys.path)
        now = _variables()
        if now != self._entered:
            self._environment = dict(now.items() - before.environment.items())
        with suppress(OSError):
            self._cwd = os.getcwd()
        names = list(self._modules)
        if len(sys.modules) != self._known:
            news = [name for name in sys.modules if name not in before.modules]
            names += [name for name in news if self._is_own(name)]
        self._modules = {
            name: sys.modules.pop(name) for name in dict.fromkeys(names) if name in sys.modules
        }
        sys.modules.update(self._hides)

    def forget(self) -> None:
        """The model is gone: its modules are emptied, for code that still refers to them."""
        for module in self._modules.values():
            if type(module) is ModuleType:  # a module may be any object
                module.__dict__.clear()
        self._modules.clear()
        self._streams = None
        os.close(self._output)
        for path in [each for each in sys.path_importer_cache if self.is_own_file(each)]:
            del sys.path_importer_cache[path]

    def is_own_file(self, path: str) -> bool:
        return f"{path}/".startswith(self._roots)

    def _hidden(self, before: _ProcessBefore) -> list[str]:
        """Names of imported libraries that equal a file's in the model's own folder."""
        tops = {name for name in self._names if name in sys.modules} - before.modules
        if not tops:
            return []
        return [name for name in list(sys.modules) if name.partition(".")[0] in tops]

    def _is_own(self, name: str) -> bool:
        """Whether a module is the model's: by its file, else by its package's; without either, code
        made it."""
        for each in (name, name.partition(".")[0]):
            origin = _origin(sys.modules.get(each))
            if origin:
                return self.is_own_file(origin)
        return True


class _ProcessBefore:
    """The process as it was before any model."""

    def __init__(self) -> None:
        #: A model's own file with such a name is not found, as in any process that has imported it.
        self.modules = frozenset(sys.modules)
        self.path = list(sys.path)
        self.cwd = os.getcwd()
        self.environment = _variables()
        self.streams = sys.stdout, sys.stderr
        self.outputs = os.dup(1), os.dup(2)


class Stage:
    """Use: `enter` before any of a model's code is called; it stays on until another enters."""

    def __init__(self) -> None:
        self._before = _ProcessBefore()
        self._on: Surroundings | None = None

    def enter(self, who: Surroundings) -> None:
        if self._on is who:
            return
        if self._on is not None:
            self._on.leave(self._before)
        who.enter(self._before)
        self._on = who

    def clear(self) -> None:
        """No model is on."""
        if self._on is None:
            return
        self._on.leave(self._before)
        self._on = None
        before = self._before
        sys.stdout, sys.stderr = before.streams
        sys.path[:] = before.path
        _set_variables(before.environment)
        with suppress(OSError):
            os.chdir(before.cwd)
        for number, output in enumerate(before.outputs, start=1):
            os.dup2(output, number)


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(name.partition(".")[0] for name in os.listdir(folder))
    except OSError:
        return frozenset()


def _variables() -> dict[bytes, bytes]:
    """The environment as it is now. `os.environ`'s copy decodes every variable, which takes 80 us
    each time."""
    known = getattr(os.environ, "_data", None)
    return dict(os.environb if known is None else known)


def _set_variables(wanted: dict[bytes, bytes]) -> None:
    now = _variables()
    if now == wanted:
        return
    for name, value in wanted.items():
        if now.get(name) != value:
            os.environb[name] = value
    for name in now.keys() - wanted.keys():
        del os.environb[name]


def _origin(module: ModuleType | None) -> str:
    """The file or folder that a module came from; "" if there is none."""
    try:
        names = vars(module)
        if file := names.get("__file__"):
            return str(file)
        if path := list(names.get("__path__") or ()):
            return str(path[0])
        origin = getattr(names.get("__spec__"), "origin", None)
    except BaseException:  # a module may be any object, with a model's own code
        return ""
    return str(origin or "")
