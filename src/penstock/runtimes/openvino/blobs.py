"""Where OpenVINO stores what it compiled from a file, so that the next load maps it into memory.

OpenVINO identifies a graph by the content of all its weights, but a file by its path and time. For
a file it reads neither graph nor weights again, only the blob: loading 292 MB of a BERT shape took
0.20 s of a core by file, 0.30 s by content, and 0.40 s without a blob. So each file has a folder of
blobs, named after all that identifies it: artifacts are stored under the digest of their content
and never change.

A graph that is changed after reading (its batch size freed) is identified by its content.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

#: Subfolder of the folder for all compiled blobs.
_FOLDER: Final = "files"


class FileBlobs:
    """The blobs of one model file. `batch_freed`: whether its batch size is to be freed."""

    def __init__(self, path: Path, cache_dir: Path, *, batch_freed: bool) -> None:
        self._path = path
        beside = (path.with_suffix(".bin"), path.with_name(path.name + ".data"))
        facts = [str(path), str(batch_freed)]
        for file in (path, *beside):
            with suppress(OSError):  # not every format has each of these files
                found = file.stat()
                facts.append(f"{file.name} {found.st_size} {found.st_mtime_ns} {found.st_ino}")
        key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
        self.folder = cache_dir / _FOLDER / key

    def were_made(self) -> bool:
        """Whether the file itself was compiled before. Notes that its blobs are used again."""
        blobs = list(self.folder.glob("*.blob"))
        for blob in blobs:
            with suppress(OSError):  # just deleted, or another user's
                os.utime(blob)
        return bool(blobs)

    def compiled(self, core: Any, config: dict[str, Any]) -> Any:
        """The model, from the blob if there is one for these settings; else compiled now. Raises
        what OpenVINO raises."""
        return core.compile_model(str(self._path), "CPU", {**config, "CACHE_DIR": str(self.folder)})
