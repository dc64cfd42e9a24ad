"""The output folder, all or nothing: made under another name beside its place, then renamed.

After any failure the place is unchanged. A killed process leaves a hidden folder whose lock nobody
holds; the next compile to the same place removes it.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.durable_files import remove_abandoned, try_lock
from penstock.errors import CallerError


def check_free(out: Path) -> None:
    """Checks that the place is free. Raises CallerError (`output-exists`, `output-impossible`)."""
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise CallerError(
            "output-exists",
            f"{out} exists already",
            hint="Give another folder, or remove that one.",
        )
    parent = out.resolve().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise CallerError(
            "output-impossible",
            f"{parent} is not a folder that can be written to",
            hint="Make the folder first, or give another.",
        )


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` if the block succeeds, and is removed otherwise."""
    check_free(out)
    out = out.resolve()
    prefix = f".{out.name}.compiling-"
    remove_abandoned(out.parent.glob(f"{glob.escape(prefix)}*"))
    folder = out.parent / f"{prefix}{secrets.token_hex(4)}"
    lock = _make(folder)
    try:
        yield folder
        try:
            folder.rename(out)  # replaces an empty folder, and nothing else
        except OSError:
            check_free(out)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make(folder: Path) -> int:
    try:
        folder.mkdir()
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CallerError(
            "output-impossible", f"{folder.parent} can't be written to: {error}"
        ) from None
    try_lock(lock)
    return lock
