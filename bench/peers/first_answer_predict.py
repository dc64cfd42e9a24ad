"""What a person writes for a server that takes no model files: load the file, predict rows."""

# ruff: noqa: PLC0415 - each function needs the libraries of its kind alone

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np


def loaded() -> Callable[[Any], list[float]]:
    """The model that MODEL_KIND and MODEL_FILE name, as a function of rows."""
    kind, file = os.environ["MODEL_KIND"], os.environ["MODEL_FILE"]
    if kind == "scikit-learn":
        import joblib

        predict = joblib.load(file).predict
    elif kind == "xgboost":
        import xgboost

        booster = xgboost.Booster(model_file=file)

        def predict(rows: Any) -> Any:
            return booster.predict(xgboost.DMatrix(rows))
    elif kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(file)
        taken = session.get_inputs()[0].name

        def predict(rows: Any) -> Any:
            return session.run(None, {taken: rows.astype(np.float32)})[0].reshape(-1)
    else:
        import lightgbm

        predict = lightgbm.Booster(model_file=file).predict
    return lambda rows: np.asarray(predict(np.asarray(rows))).tolist()
