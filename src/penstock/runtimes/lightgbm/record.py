"""The record of the runtime "lightgbm"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.detection.boosters import check_lightgbm, is_lightgbm
from penstock.artifacts.detection.predictors import (
    PICKLES,
    REQUESTS_MAX,
    checked_pickle,
    is_pickle_of,
)
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

_is_pickle = is_pickle_of("lightgbm")


def _recognises(path: Path) -> bool:
    return is_lightgbm(path) or _is_pickle(path)


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    """Raises CallerError (`artifact-untrusted`, `model-file-invalid`)."""
    if not is_lightgbm(root / file):
        better = "model.booster_.save_model('model.txt')."
        return checked_pickle(root / file, file, trusted, better)
    check_lightgbm(root / file, file)
    return FileFacts(rows_max=REQUESTS_MAX)


RECORD: Final = RuntimeRecord(
    name="lightgbm",
    title="Model files of LightGBM, in a worker process with its library",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=6.0, each_bytes=192 * 2**20),
    process_per_lane=True,
    understood="LightGBM (*.txt)",
    suffixes=(".txt", ".lgb", ".lgbm", ".bst", ".model"),
    pickles=PICKLES,
    recognises=_recognises,
    check=_check,
    handler="penstock.runtimes.lightgbm.predictor",
    predicts=True,
    framework=("lightgbm",),
)
