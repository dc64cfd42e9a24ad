"""The record of the runtime "catboost"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.detection.boosters import check_catboost, is_catboost
from penstock.artifacts.detection.predictors import (
    PICKLES,
    REQUESTS_MAX,
    checked_pickle,
    is_pickle_of,
)
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

_is_pickle = is_pickle_of("catboost")


def _recognises(path: Path) -> bool:
    return is_catboost(path) or _is_pickle(path)


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    """Raises CallerError (`artifact-untrusted`, `model-file-invalid`)."""
    if not is_catboost(root / file):
        return checked_pickle(root / file, file, trusted, "model.save_model('model.cbm').")
    check_catboost(root / file, file)
    return FileFacts(rows_max=REQUESTS_MAX)


RECORD: Final = RuntimeRecord(
    name="catboost",
    title="Model files of CatBoost, in a worker process with its library",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=6.0, each_bytes=256 * 2**20),
    process_per_lane=True,
    understood="CatBoost (*.cbm)",
    suffixes=(".cbm", ".bin", ".model"),
    pickles=PICKLES,
    recognises=_recognises,
    check=_check,
    handler="penstock.runtimes.catboost.predictor",
    predicts=True,
    framework=("catboost",),
)
