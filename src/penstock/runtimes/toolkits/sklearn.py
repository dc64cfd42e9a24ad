"""Defaults of SageMaker's scikit-learn container: `model.predict(data)` on an array.

JSON and CSV become float32, as there. The toolkit takes a lone row or column as one row of
features; only a model of one feature gets a column as rows. Source: handler_service.py of
sagemaker-scikit-learn-container.
"""

from __future__ import annotations

from typing import Any

from penstock.runtimes.toolkits import bodies


def default_model_fn(model_dir: str) -> Any:
    """There is none: a pickle is loaded by the user's own code. Raises ModelError."""
    raise bodies.no_model_fn(
        "scikit-learn",
        'def model_fn(model_dir): return joblib.load(os.path.join(model_dir, "model.joblib"))',
    )


def default_input_fn(data: Any, content_type: str) -> Any:
    """An array of rows."""
    import numpy as np

    array = bodies.array_of(data, content_type)
    if array.ndim <= 1:
        array = array.reshape(1, -1)
    kind = bodies.media_type(content_type)
    if kind == bodies.NPY:
        return array
    try:
        return array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise bodies.unreadable(kind, error) from None


def default_predict_fn(data: Any, model: Any) -> Any:
    if getattr(data, "shape", ())[:1] == (1,) and getattr(model, "n_features_in_", 0) == 1:
        data = data.reshape(-1, 1)
    return model.predict(data)


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    return bodies.written(prediction, accept)
