"""Defaults of SageMaker's XGBoost container for user code: a booster, on a DMatrix of the body.

Source: handler_service.py and encoder.py of sagemaker-xgboost-container. The installed version
decides how libsvm is read, as models are trained alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError
from penstock.runtimes.toolkits import bodies, recordio, text_rows

_IMAGE: Final = "sagemaker-xgboost:1.7-1"
_MODEL_FILE: Final = "xgboost-model"
_READS: Final = (bodies.CSV, *text_rows.LIBSVM, recordio.RECORDIO)


def ends_the_process(version: str, path: Path) -> bool:
    """Whether this XGBoost would end its process at this file: JSON and UBJSON came with 1.0."""
    with path.open("rb") as file:
        return version.startswith("0.") and file.read(1) == b"{"


def default_model_fn(model_dir: str) -> Any:
    """Loads `xgboost-model` where XGBoost itself wrote it; a pickle is left to the user's code."""
    path = Path(model_dir, _MODEL_FILE)
    if not path.is_file():
        raise bodies.no_model_fn(
            f"XGBoost without a file {_MODEL_FILE}",
            "def model_fn(model_dir): return xgb.Booster(model_file=...)",
        )
    xgboost = bodies.library("xgboost", _IMAGE)
    try:
        if ends_the_process(xgboost.__version__, path):
            raise ValueError("it is JSON, which came with XGBoost 1.0")
        return xgboost.Booster(model_file=str(path))
    except ValueError as error:  # XGBoost's own are such
        raise ModelError(
            "model-file-invalid",
            f"{_MODEL_FILE} is no model that XGBoost {xgboost.__version__} saved: "
            f"{str(error).strip().splitlines()[-1][:300]}",
            hint="Save it by booster.save_model(), or define model_fn, which loads it.",
        ) from None


def default_input_fn(data: Any, content_type: str) -> Any:
    """A DMatrix."""
    xgboost = bodies.library("xgboost", _IMAGE)
    kind = bodies.media_type(content_type)
    if kind not in _READS:
        raise bodies.unsupported(content_type, _READS)
    try:
        if kind == bodies.CSV:
            return xgboost.DMatrix(text_rows.csv_rows(data))
        if kind == recordio.RECORDIO:
            return xgboost.DMatrix(recordio.features(bytes(data)))
        text = data if isinstance(data, str) else bytes(data).decode()
        return xgboost.DMatrix(text_rows.libsvm_of(xgboost.__version__, text))
    except (ValueError, IndexError, TypeError) as error:
        raise bodies.unreadable(kind, error) from None


def default_predict_fn(data: Any, model: Any) -> Any:
    return model.predict(data, validate_features=False)


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    return bodies.written(prediction, accept)
