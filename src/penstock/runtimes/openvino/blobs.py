"""Where OpenVINO keeps what it compiled of a file, so that the next load maps it into memory.

OpenVINO knows a graph by the content of all its weights, and a file by its path and time. For a
file it reads neither graph nor weights again, only the blob: to load 292 MB of a BERT shape took
0.20 s of a core by file, 0.30 s by content, and 0.40 s without a blob. So each file has a folder of
blobs, named after all that tells it from another one: artifacts lie under the digest of their
content and are never changed.

A graph that is changed after it was read (its batch size freed) is known by its content, as before.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

#: Below the folder of all compiled blobs.
_FOLDER: Final = "files"


class FileBlobs:
    """The blobs of one model file. `batch_freed`: whether its batch size is to be freed."""

    def __init__(self, path: Path, cache_dir: Path, *, batch_freed: bool) -> None:
        self._path = path
        beside = (path.with_suffix(".bin"), path.with_name(path.name + ".data"))
        facts = [str(path), str(batch_freed)]
        for file in (path, *beside):
            with suppress(OSError):  # not every format has each
                found = file.stat()
                facts.append(f"{file.name} {found.st_size} {found.st_mtime_ns} {found.st_ino}")
        key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
        self.folder = cache_dir / _FOLDER / key

    def were_made(self) -> bool:
        """Whether the file itself was compiled before. Notes that its blobs are used again."""
        blobs = list(self.folder.glob("*.blob"))
        for blob in blobs:
            with suppress(OSError):  # trimmed this moment, or another user's
                os.utime(blob)
        return bool(blobs)

    def compiled(self, core: Any, config: dict[str, Any]) -> Any:
        """From the blob, if there is one for these settings; else it is made. Raises what OpenVINO
        raises."""
        return core.compile_model(str(self._path), "CPU", {**config, "CACHE_DIR": str(self.folder)})
