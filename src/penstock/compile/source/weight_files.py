"""Weights of a Hugging Face directory: are they there, whole, and of a kind that runs no code?

A safetensors file says in its header how long it is, so a copy that was cut short is found before
any library opens it. Nothing is loaded here.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.errors import CallerError

#: Names of weights, safe ones first.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_HEADER_BYTES_MAX = 100_000_000  #: the format's own bound
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
