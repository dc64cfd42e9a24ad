"""What a worker does with a Keras model: SageMaker's four functions, by Keras.

Runs in the worker, maybe with the Python of another environment, so Keras is imported by the
functions. A JSON list, CSV or NPY is the model's one input; `{"inputs": {name: rows}}` or a list of
objects gives several by name. Answers are plain lists; several outputs are an object by name.

Keras's `safe_mode` is off here: detection has refused code inside the file, unless the operator
trusts it, and the worker has walls as for any code of a model.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python.default_bodies import arrays_of, decode_default
from penstock.runtimes.python.toolkit_context import Context


def default_model_fn(model_dir: str, context: Context) -> Any:
    """Raises ModelError (`runtime-not-installed`, `model-unreadable`)."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        keras: Any = importlib.import_module("keras")
    except ImportError as error:
        raise ModelError(
            "runtime-not-installed",
            f"the model is one of Keras, and its Python has no Keras with a backend: {error}",
            hint="Install keras and tensorflow-cpu into the server's environment, or let the model "
            "have an environment of its own.",
        ) from None
    file = context.manifest["model"]["serializedFile"]
    try:
        return keras.saving.load_model(str(Path(model_dir, file)), compile=False, safe_mode=False)
    except Exception as error:  # Keras has no class for it
        words = " ".join(str(error).split())[:400]
        raise ModelError(
            "model-unreadable",
            f"{file}: Keras {keras.__version__} cannot load it: {words}",
            hint="A layer of your own needs its code: a code/inference.py that registers it. A "
            "model of Keras 2 may need the version that wrote it in code/requirements.txt.",
        ) from None


def default_input_fn(data: Any, content_type: str) -> Any:
    """An array, or arrays by name. Raises ModelError (400 or 415)."""
    return arrays_of(decode_default(data, content_type), lambda rows, name: np.array(rows))


def default_predict_fn(data: Any, model: Any) -> Any:
    """Raises ModelError: 400 for inputs that the model has not, `model-failed` for its errors."""
    names = [each.name for each in model.inputs]
    if isinstance(data, dict):
        if set(data) != set(names):
            raise ModelError(
                "bad-input",
                f"the model's inputs are {', '.join(names)}; {', '.join(data) or 'none'} came",
                original_status=400,
            )
        data = [data[name] for name in names]
    elif len(names) != 1:
        raise ModelError(
            "bad-input",
            f"the model has several inputs ({', '.join(names)})",
            hint='Send {"inputs": {name: rows, ...}}.',
            original_status=400,
        )
    for each, array in zip(model.inputs, data if isinstance(data, list) else [data], strict=True):
        wanted = tuple(each.shape)
        if len(wanted) != array.ndim or any(
            size not in (None, given) for size, given in zip(wanted, array.shape, strict=True)
        ):
            raise ModelError(
                "bad-shape",
                f"input {each.name!r} has shape {list(array.shape)}, the model takes "
                f"{[size or -1 for size in wanted]} (-1 is any size)",
                original_status=400,
            )
    try:
        return model.predict_on_batch(data)
    except Exception as error:  # of whichever backend
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            "model-failed", f"the model failed: {(lines or [type(error).__name__])[0][:400]}"
        ) from None
