"""Keras's files by their content: an archive with config.json and model.weights.h5, or HDF5.

A Lambda layer is Python code in the file, which Keras would run. Nothing is executed here, and no
h5py is imported: HDF5 holds the model's configuration as one text.
"""

from __future__ import annotations

import json
import mmap
import zipfile
from pathlib import Path
from typing import Final

from penstock.core.request.grants import TRUST_VARIABLE
from penstock.errors import CallerError

ARCHIVE, HDF5 = "keras", "hdf5"
_HDF5_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_CONFIG_BYTES_MAX: Final = 64 * 2**20
#: What Keras writes for a function that it serialized as code.
_LAMBDA: Final = (b'"class_name": "__lambda__"', b'"class_name": "Lambda"')


def kind_of(path: Path) -> str:
    """ARCHIVE or HDF5; "" for a file that is no whole model of Keras."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = set(archive.namelist())
                return ARCHIVE if {"config.json", "model.weights.h5"} <= names else ""
        with open(path, "rb") as file:
            if file.read(len(_HDF5_MAGIC)) != _HDF5_MAGIC:
                return ""
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return HDF5 if data.find(b"model_config") >= 0 else ""
    except (OSError, ValueError, zipfile.BadZipFile):
        return ""


def check(path: Path, *, trusted: bool) -> None:
    """Raises CallerError: `model-file-invalid`, `artifact-untrusted` (it holds code)."""
    kind = kind_of(path)
    if not kind:
        raise CallerError(
            "model-file-invalid",
            f"{path.name} is no whole model of Keras",
            hint="Save the model again (model.save); a file of weights alone "
            "(save_weights) needs the program that makes the model: a code/inference.py.",
        )
    if not trusted and _has_lambda(path, kind):
        raise CallerError(
            "artifact-untrusted",
            f"{path.name} has a Lambda layer: it holds Python code that Keras would run",
            hint="Replace it by a layer of Keras; if the file is your own: penstock deploy NAME "
            f"FOLDER --trust (or {TRUST_VARIABLE}=true in the Environment of CreateModel).",
        )


def _has_lambda(path: Path, kind: str) -> bool:
    if kind == HDF5:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(word) >= 0 for word in _LAMBDA)
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("config.json").file_size > _CONFIG_BYTES_MAX:
            return True
        try:
            config = json.dumps(json.loads(archive.read("config.json"))).encode()
        except (ValueError, RecursionError):
            return True
    return any(word in config for word in _LAMBDA)
