"""Memory of libraries that a model is the first to import: a process needs it only once.

Imports the standard library alone.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.runtimes.python.shared.stage import Surroundings


class LibraryGrowth:
    """`bytes`: growth by imports while it was `watching`.

    Imports of the model's own files do not count, but imports that they make do.
    """

    def __init__(self, who: Surroundings, measure: Callable[[], int]) -> None:
        self.bytes = 0
        self._who = who
        self._measure = measure
        self._inside = False  #: True during a library's import, which is measured as a whole

    @contextmanager
    def watching(self) -> Iterator[None]:
        plain = builtins.__import__

        def watched(name: str, *more: Any, **named: Any) -> Any:
            if self._inside or not self._is_news(name, *more):
                return plain(name, *more, **named)
            self._inside = True
            before = self._measure()
            try:
                return plain(name, *more, **named)
            finally:
                self._inside = False
                self.bytes += max(0, self._measure() - before)

        builtins.__import__ = watched
        try:
            yield
        finally:
            if builtins.__import__ is watched:
                builtins.__import__ = plain

    def _is_news(self, name: str, *more: Any) -> bool:
        """Whether the import is of a new library. `more`: globals, locals, names, level of an
        import."""
        if len(more) > 3 and more[3]:
            return False  # a relative import in a package of the model's own
        top = name.partition(".")[0]
        if name in sys.modules:
            return False
        return not any(
            Path(path, top).exists() or Path(path, f"{top}.py").exists()
            for path in sys.path
            if path and self._who.is_own_file(path)
        )
