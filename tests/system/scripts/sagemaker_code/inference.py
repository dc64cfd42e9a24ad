"""Code that reads and writes what the SDK's predictors speak, with no framework."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

NPY = "application/x-npy"


def model_fn(model_dir: str) -> Any:
    return json.loads(Path(model_dir, "weights.json").read_text())


def input_fn(body: Any, content_type: str) -> Any:
    return np.load(io.BytesIO(body)) if content_type == NPY else np.array(json.loads(body))


def predict_fn(data: Any, model: Any) -> Any:
    return data * model["factor"]


def output_fn(prediction: Any, accept: str) -> tuple[bytes | str, str]:
    if accept != NPY:
        return json.dumps(prediction.tolist()), "application/json"
    file = io.BytesIO()
    np.save(file, prediction)
    return file.getvalue(), NPY
