"""Which relative paths an artifact may contain: the one rule for archives, prefixes and model.yaml.

A path is accepted or refused, never repaired: a name that needs repair comes from a hostile or a
broken tool, and two tools that repair it differently would disagree about what the model is.
This module knows nothing of the file system; it sees names only.
"""

from __future__ import annotations

from typing import Annotated

from penstock.errors import CallerError
from penstock.file_schema import read_by

PATH_BYTES_MAX = (
    1024  #: well below PATH_MAX (4096 on Linux), which counts the cache's own prefix too
)
NAME_BYTES_MAX = 255  #: NAME_MAX of the usual file systems
DEPTH_MAX = 32

#: Files of desktop systems and version control that lie beside a model and never belong to it.
_CLUTTER = frozenset({".DS_Store", "__MACOSX", ".git", "__pycache__"})


def safe_path(name: str, *, where: str) -> str:
    """Returns `name` as a plain relative path with "/" between its parts, "" for the root itself.

    "." parts and a trailing "/" are dropped, as every tar tool writes them. `where` names the
    archive, prefix or key that the name comes from, for the message. Raises `CallerError`
    (`artifact-path-unsafe`).
    """
    if name.startswith("/"):
        raise _unsafe(name, where, "it is absolute")
    if "\\" in name:
        raise _unsafe(name, where, "it contains a backslash")
    if not name.isprintable():
        raise _unsafe(name, where, "it contains control or undecodable characters")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _unsafe(name, where, "it contains '..'")
    if len(parts) > DEPTH_MAX:
        raise _unsafe(name, where, f"it is more than {DEPTH_MAX} folders deep")
    if any(len(part.encode()) > NAME_BYTES_MAX for part in parts):
        raise _unsafe(name, where, f"one of its names is longer than {NAME_BYTES_MAX} bytes")
    path = "/".join(parts)
    if len(path.encode()) > PATH_BYTES_MAX:
        raise _unsafe(name, where, f"it is longer than {PATH_BYTES_MAX} bytes")
    return path


#: Type of a key in a file: a path below the artifact's root.
ArtifactPath = Annotated[str, read_by(lambda text, where: safe_path(text, where=where))]


def is_clutter(path: str) -> bool:
    """Whether a path belongs to a desktop system, Python or git, and is left out."""
    return any(part in _CLUTTER or part.startswith("._") for part in path.split("/"))


def shown(name: str) -> str:
    """A name that is safe in a message or a log line: one line, bounded."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _unsafe(name: str, where: str, cause: str) -> CallerError:
    return CallerError(
        "artifact-path-unsafe",
        f"{where}: the path {shown(name)} is refused: {cause}",
        hint="Pack the model again with paths relative to its own folder, for example: "
        "tar -czf model.tar.gz -C my_model .",
    )
