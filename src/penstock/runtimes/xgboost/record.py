"""The record of the runtime "xgboost"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.description.description import Batching, ModelDescription
from penstock.artifacts.detection.boosters import xgboost_form, xgboost_requirement
from penstock.artifacts.detection.predictors import (
    PICKLES,
    REQUESTS_MAX,
    checked_pickle,
    is_pickle_of,
)
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

_is_pickle = is_pickle_of("xgboost")
#: Repositories of AWS's images whose built-in algorithm serves such files.
_IMAGES: Final = ("sagemaker-xgboost", "xgboost")
_ALGORITHM: Final = "penstock.runtimes.xgboost.algorithm"


def _recognises(path: Path) -> bool:
    return bool(xgboost_form(path)) or _is_pickle(path)


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    """Raises CallerError (`artifact-untrusted`, `model-file-invalid`)."""
    if not xgboost_form(root / file):
        return checked_pickle(root / file, file, trusted, "booster.save_model('model.ubj').")
    framework = (xgboost_requirement(root / file, file),)
    return FileFacts(rows_max=REQUESTS_MAX, framework=framework)


def _image_layout(root: Path, image: str, trusted: bool) -> ModelDescription | None:
    """The image's algorithm takes every file of the artifact as a model, and answers with the mean
    or the vote of several. Raises as `_check`."""
    if image.rpartition("/")[2].partition(":")[0].partition("@")[0] not in _IMAGES:
        return None
    files = sorted(path.name for path in root.iterdir() if path.is_file() and path.name[0] != ".")
    if not files or not all(_recognises(root / file) for file in files):
        return None
    facts = [_check(root, file, trusted) for file in files]
    return ModelDescription(
        runtime=RECORD.name,
        task="payload",
        file=files[0],
        framework=facts[0].framework,
        handler=_ALGORITHM,
        environment={"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"},
        batching=Batching(),
    )


RECORD: Final = RuntimeRecord(
    name="xgboost",
    title="Model files of XGBoost, in a worker process with its library",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=6.0, each_bytes=192 * 2**20),
    process_per_lane=True,
    understood="XGBoost (xgboost-model, *.ubj, *.json)",
    suffixes=("xgboost-model", ".ubj", ".json", ".model", ".bin", ".bst", ".xgb"),
    pickles=PICKLES,
    recognises=_recognises,
    check=_check,
    handler="penstock.runtimes.xgboost.predictor",
    predicts=True,
    image_layout=_image_layout,
)
