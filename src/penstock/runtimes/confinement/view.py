"""Folders of models under one root, for processes whose walls were built before the models came.

A wall can't be opened again. A process that hosts several models therefore may read one root from
its start, and a model that comes is shown below it: its folders made anew, its files as hard links,
or as copies where links can't be made (another disk, another owner). Whoever hosts models of one
endpoint shows each process no others.

A shown folder is kept when its model goes: a link changes its file's ctime, at which the artifact
cache compares the file's bytes again. One whose artifact is gone from the cache is removed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from penstock.errors import NotNowError


class Views:
    """`root` is made, and removed by `close`. All methods block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._in_use: dict[Path, int] = {}  #: shown folder -> models that use it
        root.mkdir(parents=True, exist_ok=True)

    def show(self, model_dir: Path, name: str = "") -> Path:
        """The folder of a model below the root. Raises OSError. `hide` it when the model goes.

        `name`: of the folder, where somebody else decides it; else it is the content's own.
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
        """A model that was shown there is gone."""
        left = self._in_use.pop(place, 0) - 1
        if left > 0:
            self._in_use[place] = left
        for shown in list(self.root.iterdir()):
            if shown / "model" not in self._in_use and _is_last(shown / "model"):
                shutil.rmtree(shown, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def no_room(name: str, error: OSError) -> NotNowError:
    """What a model is told that can't be shown, or that nothing can be opened for."""
    return NotNowError(
        "no-room-for-files",
        f"{name}: its files can't be given to its process: {error.strerror or error}",
        hint="Make room on the disk of the cache, or raise the limit of open files (ulimit -n).",
    )


def fresh_root(folder: Path) -> Path:
    """A folder for a host's `Views`; those of processes that are gone are removed on the way."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        pid = left.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    for number in itertools.count(1):
        with suppress(FileExistsError):
            made = folder / f"{os.getpid()}-{number}"
            made.mkdir(mode=0o700)
            return made
    raise AssertionError("numbers do not end")


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
    """Nobody else has its files: they were copied, or the artifact is gone."""
    with suppress(OSError):
        for folder, _, names in os.walk(place):
            for facts in (Path(folder, name).lstat() for name in names):
                if stat.S_ISREG(facts.st_mode):
                    return facts.st_nlink == 1
    return True
