"""The record of the runtime "sklearn": models of scikit-learn, as skops files and as pickles."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import Final

from penstock.artifacts.detection.pickles import beside_sklearn
from penstock.artifacts.detection.predictors import PICKLES, checked_pickle, is_pickle_of
from penstock.artifacts.files.model_files import FileFacts
from penstock.artifacts.files.paths import shown
from penstock.core.models.memory_need import MemoryRule
from penstock.errors import CallerError
from penstock.runtimes.record import Interface, RuntimeRecord

_SCHEMA: Final = "schema.json"
#: A schema names every object of a model; a forest of a thousand trees has 20 MiB.
_SCHEMA_BYTES_MAX: Final = 256 << 20
_UNPACKED_BYTES_MAX: Final = 16 << 30
_UNPACKED_RATIO_MAX: Final = 200
_MAGIC: Final = b"PK\x03\x04"

#: The value of an attribute stands behind its name, as JSON in JSON: \\"1.6.1\\".
_VERSION: Final = re.compile(rb'"(\d+\.\d+(?:\.[0-9a-z]+)*)\\')
_CONTENT_BYTES: Final = 1000

_is_pickle = is_pickle_of("sklearn", "imblearn")


def _is_skops(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return _SCHEMA in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return path.suffix == ".skops"  # `_check` says that it is cut short


def _recognises(path: Path) -> bool:
    return _is_skops(path) or _is_pickle(path)


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    """Raises CallerError (`artifact-untrusted`, `model-file-invalid`)."""
    path = root / file
    if not _is_skops(path):
        better = "skops.io.dump(model, 'model.skops'), or ONNX by skl2onnx."
        return checked_pickle(path, file, trusted, better)
    schema = _schema(path, file)
    at = schema.find(b"_sklearn_version")
    found = _VERSION.search(schema, at, at + _CONTENT_BYTES) if at >= 0 else None
    version = found.group(1).decode() if found else ""
    lines = [f"scikit-learn=={version}" if version else "scikit-learn", "skops"]
    if b"ColumnTransformer" in schema or b"feature_names_in_" in schema:
        lines.append("pandas")
    return FileFacts(rows_max=1, framework=(*lines, *beside_sklearn(version)))


def _schema(path: Path, file: str) -> bytes:
    """Checks the sizes that the archive claims before any part is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
            size = path.stat().st_size
            if unpacked > min(_UNPACKED_BYTES_MAX, max(_UNPACKED_RATIO_MAX * size, 16 << 20)):
                raise CallerError(
                    "model-file-invalid",
                    f"{shown(file)}: {size} bytes that unpack to {unpacked}",
                    hint="No model compresses that well: save it again by skops.io.dump.",
                )
            with archive.open(_SCHEMA) as schema:
                return schema.read(_SCHEMA_BYTES_MAX)
    except (
        zipfile.BadZipFile,
        OSError,
        ValueError,
        NotImplementedError,
        EOFError,
        zlib.error,
    ) as error:
        raise CallerError(
            "model-file-invalid",
            f"{shown(file)}: not a whole skops file: {str(error)[:200]}",
            hint="Save it again; a copy may have been cut short.",
        ) from None


RECORD: Final = RuntimeRecord(
    name="sklearn",
    title="Models of scikit-learn (skops; pickle and joblib where they are trusted), in a worker "
    "process with its library",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=4.0, each_bytes=256 * 2**20),
    process_per_lane=True,
    understood="scikit-learn (*.skops; *.joblib and *.pkl with --trust)",
    suffixes=(".skops",),
    pickles=PICKLES,
    recognises=_recognises,
    check=_check,
    handler="penstock.runtimes.sklearn.predictor",
    predicts=True,
)
