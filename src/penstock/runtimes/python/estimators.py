"""Objects with scikit-learn's interface in a worker: loaded from pickles, asked by `predict`.

A pickle runs whatever it says. It is loaded only where the artifact is trusted, and behind the
walls of the worker.

Imports the standard library and numpy; libraries of models inside of functions.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python.predictor_contract import PREDICT, PREDICT_PROBA, Tensor
from penstock.runtimes.python.tables import Features


def library(name: str, distribution: str = "") -> Any:
    """The library of a model. Raises ModelError (`runtime-not-installed`)."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            "runtime-not-installed",
            f"the model needs {distribution or name}, which is not in its environment: {error}",
            hint="Let the server make an environment for it, or name it in requirements.txt.",
        ) from None


def is_pickle(path: Path) -> bool:
    """Whether the first bytes are a pickle's or a compressed file's, and not a native form's."""
    with open(path, "rb") as file:
        return file.read(2).startswith(
            (b"\x80", b"c", b"\x78", b"\xfd7", b"]\0", b"\x1f\x8b", b"BZ")
        )


def unpickled(path: Path, init: Mapping[str, Any]) -> Any:
    """The object. Raises ModelError: `artifact-untrusted`, `model-unreadable`."""
    if not init.get("trusted"):
        raise ModelError("artifact-untrusted", f"{path.name} is a pickle, and is not trusted")
    try:
        if importlib.util.find_spec("joblib") is not None:
            return importlib.import_module("joblib").load(path)
        with open(path, "rb") as file:
            return pickle.load(file)  # noqa: S301 - trusted, and behind walls
    except Exception as error:
        raise ModelError(
            "model-unreadable",
            f"{path.name} can't be loaded here: {type(error).__name__}: {str(error)[:300]}",
            hint="Pickles need the libraries that they were made with, in these versions: name "
            "them in requirements.txt, or save the model in its library's own format.",
        ) from None


#: Modules of estimators whose answers for a row don't depend on the rows beside it.
_ROW_BY_ROW: Final = ("xgboost.", "lightgbm.", "catboost.")


class EstimatorPredictor:
    """Asks an object's `predict` and, where it has one, `predict_proba`."""

    def __init__(self, model: Any) -> None:
        if not callable(getattr(model, "predict", None)):
            kind = f"{type(model).__module__}.{type(model).__name__}"
            raise ModelError(
                "model-has-no-predict",
                f"the object is a {kind}, which has no predict",
                hint="Save the fitted model itself; for anything else write a code/inference.py.",
            )
        self._model = model
        names = tuple(map(str, _attribute(model, "feature_names_in_", ())))
        texts = _text_columns(model, names)
        self._frame = bool(names) and importlib.util.find_spec("pandas") is not None
        self.features = Features(
            count=int(_attribute(model, "n_features_in_", len(names)) or 0),
            names=names,
            mixed=bool(texts) or _takes_any(model),
            texts=texts,
        )
        self.joins = type(model).__module__.startswith(_ROW_BY_ROW)
        self.readers: Mapping[str, Callable[[bytes], Any]] = {}
        self.faults: tuple[type[BaseException], ...] = (ValueError, TypeError, KeyError)
        self.outputs = _outputs(model)

    def predict(self, rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        data = self._framed(rows) if self._frame else rows
        outputs: dict[str, np.ndarray] = {}
        for name in wanted:
            found = getattr(self._model, name)(data)
            if isinstance(found, list):  # one array for each of several targets
                found = np.stack([np.asarray(one) for one in found], axis=1)
            outputs[name] = np.asarray(found)
        return outputs

    def _framed(self, rows: np.ndarray) -> Any:
        """A DataFrame with the columns that the model was fitted with."""
        pandas = importlib.import_module("pandas")
        frame = pandas.DataFrame(rows, columns=list(self.features.names))
        if not self.features.mixed:
            return frame
        for at, name in enumerate(self.features.names):
            if at not in self.features.texts:
                frame[name] = _typed(pandas, frame[name])
        return frame


def _typed(pandas: Any, column: Any) -> Any:
    """A column of numbers as numbers; one that holds text stays as it is."""
    if any(isinstance(value, str) for value in column):
        return column
    return pandas.to_numeric(column)


def _attribute(model: Any, name: str, otherwise: Any) -> Any:
    """An attribute that may be a property which raises."""
    try:
        value = getattr(model, name, None)
    except Exception:
        value = None
    return otherwise if value is None else value


def _steps(model: Any) -> list[Any]:
    """A pipeline's steps, else the object alone."""
    steps = _attribute(model, "steps", None)
    return [step for _, step in steps] if isinstance(steps, list) else [model]


def _takes_any(model: Any) -> bool:
    """Whether its first step is one that takes text, or anything by column."""
    first = _steps(model)[0]
    categories = _attribute(first, "categories_", None)
    if isinstance(categories, list):
        return any(getattr(each, "dtype", np.dtype(float)).kind in "OUS" for each in categories)
    return hasattr(first, "transformers_")


def _text_columns(model: Any, names: tuple[str, ...]) -> frozenset[int]:
    """Columns that the fitted encoders of a first step know as text."""
    first = _steps(model)[0]
    parts = [(part, columns) for _, part, columns in _attribute(first, "transformers_", [])] or [
        (first, list(range(len(names))))
    ]
    found: set[int] = set()
    for part, given in parts:
        columns = list(given) if isinstance(given, list | np.ndarray) else [given]
        for step in _steps(part):
            categories = _attribute(step, "categories_", None)
            if not isinstance(categories, list) or len(categories) != len(columns):
                continue
            for column, known in zip(columns, categories, strict=True):
                if getattr(known, "dtype", np.dtype(float)).kind not in "OUS":
                    continue
                if isinstance(column, str) and column in names:
                    found.add(names.index(column))
                elif isinstance(column, int | np.integer):
                    found.add(int(column))
    return frozenset(found)


_NAMES: Final = {"i": "INT64", "u": "INT64", "b": "BOOL", "f": "FP64"}


def _outputs(model: Any) -> tuple[Tensor, ...]:
    """As far as the fitted object tells: its classes, and how many outputs it has."""
    classes = _attribute(model, "classes_", None)
    several = isinstance(classes, list)
    kind = np.asarray(classes[0] if several and classes else classes).dtype.kind
    dtype = _NAMES.get(kind, "BYTES") if classes is not None else "FP64"
    count = len(classes) if several else int(_attribute(model, "n_outputs_", 1))
    shape = (-1, count) if count > 1 else (-1,)
    usual: Tensor = (PREDICT, dtype, shape)
    if not callable(_attribute(model, PREDICT_PROBA, None)) or classes is None:
        return (usual,)
    width = (count, -1) if several else (len(classes),)
    return (usual, (PREDICT_PROBA, "FP64", (-1, *width)))
