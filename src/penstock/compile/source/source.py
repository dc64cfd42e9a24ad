"""What the caller gave: its kind, whether it is whole and safe to open, its digest.

Files are looked at, never executed or unpickled. This module knows layouts; it must not know torch.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.files.model_files import check_whole, find_model_file
from penstock.artifacts.sources.fetch import directory_digest
from penstock.compile.source.weight_files import WEIGHTS, check_weights, untrusted
from penstock.errors import CallerError

HUGGING_FACE = "hugging-face"
SEQ2SEQ = "hugging-face-seq2seq"
EXPORTED = "exported-program"
TORCHSCRIPT = "torchscript"
PICKLED = "pickled-module"
ONNX = "onnx"

#: Encoder-decoder models whose configuration may leave `is_encoder_decoder` out.
_SEQ2SEQ_TYPES = ("t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100")
_UNDERSTOOD = (
    "a Hugging Face directory (config.json, *.safetensors, tokenizer), a PyTorch exported program "
    "(.pt2), TorchScript (.pt) or ONNX (.onnx)"
)
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One model as its owner keeps it."""

    kind: str  #: one of the constants above
    path: Path  #: what was given
    root: Path  #: folder that tokenizer and configuration are looked for in
    file: Path | None = None  #: the graph file; None for Hugging Face directories
    digest: str = ""  #: SHA-256 over names and contents
    size: int = 0  #: bytes of the weights


def open_source(path: Path, *, trust: bool) -> Source:
    """Looks at `path`.

    Raises CallerError: `source-not-found`, `source-unknown`, `source-untrusted`,
    `source-damaged`, `weights-missing`, `weights-damaged`, `model-file-invalid`.
    """
    if path.is_dir():
        return _directory(path, trust=trust)
    if not path.is_file():
        raise CallerError(
            "source-not-found",
            f"there is no file or folder {str(path)!r}",
            hint=f"Give {_UNDERSTOOD}.",
        )
    return _file(path, trust=trust)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CallerError (`source-damaged`)."""
    try:
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError, RecursionError) as error:
        raise CallerError(
            "source-damaged",
            f"{path.name}: not the JSON that exporters write: {error}",
            hint="Copy or export the model again.",
        ) from None
    return value


def digest_of(paths: list[Path], root: Path) -> str:
    """Over names and contents. The names are relative, so that a copy has the same digest."""
    return directory_digest(
        (path.relative_to(root).as_posix(), path.stat().st_size, False, _sha256(path))
        for path in paths
    )


def files_of(root: Path) -> list[Path]:
    """Every file of a model's folder but hidden ones: a clone's .git says nothing of the model."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def _directory(root: Path, *, trust: bool) -> Source:
    if (root / "config.json").is_file() or (root / "modules.json").is_file():
        home = transformer_folder(root)
        onnx = find_model_file(root, (".onnx",))
        if onnx and not any(next(home.glob(each), None) for each in WEIGHTS):
            return _onnx(root / onnx, path=root)
        size = check_weights(home, trust=trust)
        config = read_json(home / "config.json")
        model_type = str(config.get("model_type", ""))
        seq2seq = config.get("is_encoder_decoder") is True or model_type in _SEQ2SEQ_TYPES
        return Source(
            kind=SEQ2SEQ if seq2seq else HUGGING_FACE,
            path=root,
            root=root,
            digest=digest_of(files_of(root), root),
            size=size,
        )
    files = [path for suffix in (".pt2", ".onnx", ".pt", ".ts") for path in root.glob(f"*{suffix}")]
    if len(files) != 1:
        raise CallerError(
            "source-unknown",
            f"{root.name} has no config.json and {len(files) or 'no'} model files at its top",
            hint=f"Give {_UNDERSTOOD}.",
        )
    return _file(files[0], trust=trust)


def transformer_folder(root: Path) -> Path:
    """Where config.json and weights are: sentence-transformers may keep them in a folder."""
    if not (root / "modules.json").is_file():
        return root
    for path in _module_paths(root / "modules.json"):
        folder = root / path
        if (folder / "config.json").is_file() and folder.resolve().is_relative_to(root.resolve()):
            return folder
    return root


def _module_paths(path: Path) -> list[str]:
    try:
        modules = json.loads(path.read_bytes())
        return [str(module["path"]) for module in modules]
    except (ValueError, KeyError, TypeError) as error:
        raise CallerError(
            "source-damaged",
            f"modules.json: not what sentence-transformers writes: {error}",
            hint="Copy or export the model again.",
        ) from None


def _file(path: Path, *, trust: bool) -> Source:
    if path.suffix == ".onnx":
        return _onnx(path, path=path)
    kind = _zip_kind(path)
    if kind == PICKLED and not trust:
        raise untrusted(path.name)
    return Source(
        kind=kind,
        path=path,
        root=path.parent,
        file=path,
        digest=digest_of([path], path.parent),
        size=path.stat().st_size,
    )


def _onnx(file: Path, *, path: Path) -> Source:
    check_whole(file.parent, file.name)
    # Weights of more than 2 GB lie in files beside it that begin with its name.
    parts = [each for each in files_of(file.parent) if each.name.startswith(file.stem)]
    return Source(
        kind=ONNX,
        path=path,
        root=file.parent,
        file=file,
        digest=digest_of(files_of(path), path) if path.is_dir() else digest_of(parts, file.parent),
        size=sum(part.stat().st_size for part in parts),
    )


def _zip_kind(path: Path) -> str:
    """All of PyTorch's files are zip archives; their members tell them apart."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        if path.suffix in (".pt", ".pt2", ".ts", ".pth"):
            raise CallerError(
                "source-damaged",
                f"{path.name}: not a whole PyTorch file ({path.stat().st_size} bytes)",
                hint="A copy may have been cut short: compare its size with the original's.",
            ) from None
        raise CallerError(
            "source-unknown", f"{path.name} is none of the kinds that are understood",
            hint=f"Give {_UNDERSTOOD}.",
        ) from None  # fmt: skip
    if any(name.startswith("models/") and name.endswith(".json") for name in names):
        return EXPORTED
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return TORCHSCRIPT
    if "data.pkl" in names:
        return PICKLED
    raise CallerError(
        "source-unknown",
        f"{path.name} is a zip archive, and no model of PyTorch's",
        hint=f"Give {_UNDERSTOOD}.",
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
