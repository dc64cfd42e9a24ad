"""Defaults of SageMaker's XGBoost container for user code: a booster, on a DMatrix of the body.

Source: handler_service.py and encoder.py of sagemaker-xgboost-container. How that container reads
libsvm changed with version 3: before, indices are columns as they stand and what is absent is
missing; since then, indices from 1 are shifted and what is absent is 0. The installed version
decides here too, as models are trained alike.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError
from penstock.runtimes.toolkits import bodies, recordio

_IMAGE: Final = "sagemaker-xgboost:1.7-1"
_MODEL_FILE: Final = "xgboost-model"
_LIBSVM: Final = ("text/libsvm", "text/x-libsvm")
_RECORDIO: Final = "application/x-recordio-protobuf"
_READS: Final = (bodies.CSV, *_LIBSVM, _RECORDIO)
_DENSE_SINCE: Final = 3


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
        return xgboost.Booster(model_file=str(path))
    except xgboost.core.XGBoostError as error:
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
            return xgboost.DMatrix(_csv_rows(data))
        if kind == _RECORDIO:
            return xgboost.DMatrix(recordio.features(bytes(data)))
        text = data if isinstance(data, str) else bytes(data).decode()
        dense = int(xgboost.__version__.partition(".")[0]) >= _DENSE_SINCE
        return xgboost.DMatrix(_dense(text) if dense else _sparse(text))
    except (ValueError, IndexError, TypeError) as error:
        raise bodies.unreadable(kind, error) from None


def _csv_rows(text: str) -> Any:
    """Rows by the delimiter that the first line has; an empty cell is missing."""
    import numpy as np

    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError("there are no rows")
    delimiter = _delimiter(lines[0])
    rows = [
        [float(cell) if cell.strip() else math.nan for cell in line.split(delimiter)]
        for line in lines
    ]
    return np.array(rows)


def _delimiter(line: str) -> str:
    try:
        found = csv.Sniffer().sniff(line[:512]).delimiter
    except csv.Error:  # one column
        return ","
    return "," if found.isalnum() or found in ".-+" else found


def _pairs(text: str) -> list[dict[int, float]]:
    """Index -> value of each line; the label before them is no feature."""
    rows = []
    for line in text.strip().splitlines():
        cells = (token.split(":", 1) for token in line.split() if ":" in token)
        rows.append({int(index): float(value) for index, value in cells})
    return rows


def _dense(text: str) -> Any:
    import numpy as np

    rows = _pairs(text)
    indices = [index for row in rows for index in row]
    if not indices:
        return np.empty((0, 0))
    offset = 1 if min(indices) >= 1 else 0
    array = np.zeros((len(rows), max(indices) - offset + 1))
    for at, row in enumerate(rows):
        for index, value in row.items():
            array[at, index - offset] = value
    return array


def _sparse(text: str) -> Any:
    rows = _pairs(text)
    return recordio.sparse(
        [(sorted(row), [row[index] for index in sorted(row)], 0) for row in rows]
    )


def default_predict_fn(data: Any, model: Any) -> Any:
    return model.predict(data, validate_features=False)


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    return bodies.written(prediction, accept)
