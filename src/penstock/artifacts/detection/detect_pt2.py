"""What a .pt2 file is, and that it is whole: looked at as an archive, without PyTorch.

Two kinds are served. A *program* (`torch.export.save`) is a graph and its tensors, and is held to
`detect_pt2_rules`. A *package* of AOTInductor holds machine code that was compiled for one chip:
loading it runs that code, so it needs the operator's trust like a pickle does.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

from penstock.artifacts.detection.detect_pt2_rules import MODEL, check_program, damaged
from penstock.artifacts.files.paths import safe_path
from penstock.errors import CallerError

PROGRAM, PACKAGE = "program", "package"
_COMPILED = "data/aotinductor/"
#: PyTorch stores its parts as they are; a part that grows when it is read is no tensor.
_GROWTH_MAX = 4
_GROWTH_FREE_BYTES = 64 * 1024 * 1024
_NAMES_MAX = 100_000


def check_pt2(root: Path, name: str, *, trusted: bool) -> str:
    """Returns PROGRAM or PACKAGE.

    Raises CallerError: `model-file-invalid` (no .pt2 file, or not a whole one),
    `artifact-untrusted` (it could run code, and `trusted` is not given), `artifact-path-unsafe`.
    """
    path = root / name
    try:
        with zipfile.ZipFile(path) as archive:
            parts = _parts(archive, path.stat().st_size, name)
            kind = kind_of(parts, file=name)
            if trusted:
                return kind
            if kind == PACKAGE:
                raise CallerError(
                    "artifact-untrusted",
                    f"{name} is a package of AOTInductor: it holds machine code",
                    hint="Deploy the exported program instead (torch.export.save; penstock compile "
                    "makes it), or the operator lists the URI in control.trusted_artifacts.",
                )
            check_program(parts, lambda part: archive.read(parts[part]), file=name)
            return kind
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise damaged(name, error) from None


def kind_of(parts: Iterable[str], *, file: str) -> str:
    """By the names of an archive's parts. Raises CallerError (`model-file-invalid`)."""
    names = set(parts)
    if any(part.startswith(_COMPILED) for part in names):
        return PACKAGE
    if MODEL in names:
        return PROGRAM
    raise CallerError(
        "model-file-invalid",
        f"{file} is an archive without a program (models/model.json)",
        hint="Write it with torch.export.save of PyTorch 2.9 or later; a TorchScript or pickled "
        "file is another format.",
    )


def _parts(archive: zipfile.ZipFile, size: int, file: str) -> dict[str, str]:
    """Part -> name in the archive, where everything stands in one folder."""
    infos = archive.infolist()
    if min((info.header_offset for info in infos), default=1) != 0 or archive.comment:
        # A directory that belongs to an archive inside this one: the file's own end is missing.
        raise damaged(file, ValueError("it does not begin with its first part"))
    if len(infos) > _NAMES_MAX:
        raise damaged(file, ValueError(f"{len(infos)} parts"))
    if sum(info.file_size for info in infos) > size * _GROWTH_MAX + _GROWTH_FREE_BYTES:
        raise damaged(file, ValueError("its parts are many times larger than the file"))
    parts: dict[str, str] = {}
    for info in infos:
        part = safe_path(info.filename, where=file).partition("/")[2]
        if part in parts:
            raise damaged(file, ValueError(f"two parts are named {part!r}"))
        parts[part] = info.filename
    if len({info.filename.partition("/")[0] for info in infos}) > 1:
        raise damaged(file, ValueError("its parts are not in one folder"))
    return parts
