"""The source of a compile: its kind, whether it is whole and safe to open, its digest.

Files are read, never executed or unpickled. This module knows layouts, and must not import torch.

It also checks the weights of a Hugging Face directory: they exist, are whole, and run no code. A
safetensors file states its length in its header, so a copy that was cut short is found before
any library opens it. Nothing is loaded here.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.detection import keras_files
from penstock.artifacts.files.model_files import check_whole, find_model_file
from penstock.artifacts.sources.fetch import directory_digest
from penstock.errors import CallerError

#: Patterns of weights' names, safe formats first.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_HEADER_BYTES_MAX = 100_000_000  #: the safetensors format's own bound
_INDEX = "model.safetensors.index.json"


def check_weights(root: Path, *, trust: bool) -> int:
    """The size of the weights in bytes.

    Raises CallerError: `weights-missing`, `weights-damaged`, `source-untrusted`.
    """
    files = _shards(root) or sorted(root.glob("*.safetensors"))
    if files:
        for path in files:
            _check_safetensors(path)
        return sum(path.stat().st_size for path in files)
    pickles = [path for pattern in WEIGHTS[1:] for path in sorted(root.glob(pattern))]
    if not pickles:
        raise CallerError(
            "weights-missing",
            f"{root.name} has a config.json and no weights (*.safetensors)",
            hint="Copy the whole directory; a Git clone without LFS leaves weights out.",
        )
    if not trust:
        raise untrusted(pickles[0].name)
    return sum(path.stat().st_size for path in pickles)


def untrusted(name: str) -> CallerError:
    return CallerError(
        "source-untrusted",
        f"{name} is a pickle file: loading it can run any program",
        hint="Save the model as safetensors (save_pretrained does), or give --trust if you made "
        "the file yourself.",
    )


def _shards(root: Path) -> list[Path]:
    index = root / _INDEX
    if not index.is_file():
        return []
    try:
        names = sorted(
            {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(_INDEX, f"not an index of weights: {error}") from None
    for name in names:
        if not (root / name).is_file():
            raise CallerError(
                "weights-missing",
                f"{_INDEX} names {name}, which is not there",
                hint="Copy all of the model's files.",
            )
    return [root / name for name in names]


def _check_safetensors(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_BYTES_MAX):
            if path.read_bytes()[:40].startswith(b"version https://git-lfs"):
                raise _damaged(path.name, "a Git LFS pointer, not the weights themselves")
            raise _damaged(path.name, f"cut short: {size} bytes are less than its header needs")
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
            needed = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise _damaged(path.name, f"its header can't be read: {error}") from None
    if size != needed:
        raise _damaged(path.name, f"its header tells of {needed} bytes, and it has {size}")


def _damaged(name: str, cause: str) -> CallerError:
    return CallerError(
        "weights-damaged",
        f"{name}: {cause}",
        hint="Copy the file again and compare its size and checksum with the original's.",
    )


HUGGING_FACE = "hugging-face"
SEQ2SEQ = "hugging-face-seq2seq"
EXPORTED = "exported-program"
TORCHSCRIPT = "torchscript"
PICKLED = "pickled-module"
ONNX = "onnx"

#: Types of encoder-decoder models whose configuration may omit `is_encoder_decoder`.
_SEQ2SEQ_TYPES = ("t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100")
_UNDERSTOOD = (
    "a Hugging Face directory (config.json, *.safetensors, tokenizer), a PyTorch exported program "
    "(.pt2), TorchScript (.pt) or ONNX (.onnx)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One model in its owner's form."""

    kind: str  #: one of the constants above
    path: Path  #: the path that the caller gave
    root: Path  #: folder with the tokenizer and the configuration
    file: Path | None = None  #: the graph file; None for Hugging Face directories
    digest: str = ""  #: SHA-256 over names and contents; "" = not computed
    size: int = 0  #: bytes of the weights


def open_source(path: Path, *, trust: bool) -> Source:
    """The source at `path`, after a look at its files.

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


def _refuse_tensorflow(path: Path) -> None:
    """Raises CallerError for models of Keras and TensorFlow: other runtimes serve them."""
    files = [path] if path.is_file() else [*path.glob("*.keras"), *path.glob("*.h5")]
    if (path / "saved_model.pb").is_file():
        what, convert = "a SavedModel", "python -m tf2onnx.convert --saved-model DIR"
    elif any(map(keras_files.kind_of, files)):
        what, convert = "a model of Keras", "python -m tf2onnx.convert --keras FILE"
    else:
        return
    raise CallerError(
        "source-unknown",
        f"{path.name} is {what}, which is not compiled",
        hint="It is served as it is: penstock deploy NAME FOLDER. To compile it, make an ONNX file "
        f"of it where TensorFlow is: {convert} --output model.onnx",
    )


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises CallerError (`source-damaged`)."""
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
    """SHA-256 over names and contents. Names are relative, so a copy has the same digest."""
    return directory_digest(
        (path.relative_to(root).as_posix(), path.stat().st_size, False, _sha256(path))
        for path in paths
    )


def files_of(root: Path) -> list[Path]:
    """Every file of a model's folder except hidden ones: a clone's .git is no part of the model."""
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
        _refuse_tensorflow(root)
        raise CallerError(
            "source-unknown",
            f"{root.name} has no config.json and {len(files) or 'no'} model files at its top",
            hint=f"Give {_UNDERSTOOD}.",
        )
    return _file(files[0], trust=trust)


def transformer_folder(root: Path) -> Path:
    """The folder of config.json and weights: sentence-transformers may use a subfolder."""
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
    _refuse_tensorflow(path)
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
    # Weights of more than 2 GB lie in files beside it whose names begin with its name.
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
    """The kind of a PyTorch file: all are zip archives, and their members differ."""
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
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
