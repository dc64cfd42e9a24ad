"""CatBoost's models in a worker: a .cbm file, or what a pickle holds.

A classifier answers with classes and probabilities, others with values: what `predict` of the class
does that the model was fitted with. Which one that was is in its loss function. Columns of
categories take texts and integers, columns of text take texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python import estimators
from penstock.runtimes.python.predictor_contract import PREDICT, PREDICT_PROBA, Tensor
from penstock.runtimes.python.tables import Features

_CLASSIFY: Final = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll")


def load(path: Path, init: dict[str, Any]) -> Any:
    """Raises ModelError (`model-unreadable`)."""
    catboost = estimators.library("catboost")
    if estimators.is_pickle(path):
        return CatBoostPredictor(catboost, estimators.unpickled(path, init))
    model = catboost.CatBoost()
    try:
        model.load_model(str(path))
    except (catboost.CatBoostError, ValueError) as error:
        raise ModelError(
            "model-unreadable",
            f"{path.name}: CatBoost {catboost.__version__} can't read it: {str(error)[:300]}",
            hint="Save it again by save_model, or use the version that made it.",
        ) from None
    return CatBoostPredictor(catboost, model)


class CatBoostPredictor:
    """Answers rows by a model of any of CatBoost's classes."""

    joins = True

    def __init__(self, catboost: Any, model: Any) -> None:
        self._model = model
        names = tuple(map(str, model.feature_names_ or ()))
        own = any(name != str(at) for at, name in enumerate(names))
        texts = {*_places(model, "cat"), *_places(model, "text")}
        self._numbers = [at for at in range(len(names)) if at not in texts]
        self._catboost = catboost
        self.features = Features(
            count=len(names),
            names=names if own else (),
            mixed=len(self._numbers) < len(names),
            texts=frozenset(texts),
            dtype="FP32",
        )
        self.readers: Mapping[str, Callable[[bytes], Any]] = {}
        self.faults: tuple[type[BaseException], ...] = (
            catboost.CatBoostError, ValueError, TypeError,
        )  # fmt: skip
        classes = [] if model.classes_ is None else list(model.classes_)
        self._classifies = bool(classes) and _loss(model) in _CLASSIFY
        self.outputs: tuple[Tensor, ...] = ((PREDICT, "FP64", (-1,)),)
        if self._classifies:
            numbers = all(isinstance(one, int | np.integer) for one in classes)
            self.outputs = (
                (PREDICT, "INT64" if numbers else "BYTES", (-1,)),
                (PREDICT_PROBA, "FP64", (-1, len(classes))),
            )

    def predict(self, rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        data = self._data(rows) if self.features.mixed else rows
        outputs: dict[str, np.ndarray] = {}
        for name in wanted:
            if not self._classifies:
                outputs[name] = np.asarray(self._model.predict(data))
                continue
            kind = "Class" if name == PREDICT else "Probability"
            found = np.asarray(self._model.predict(data, prediction_type=kind))
            outputs[name] = found.reshape(-1) if name == PREDICT else found
        return outputs

    def _data(self, rows: np.ndarray) -> Any:
        """Categories as texts or integers, all else as numbers; what is missing of a number is
        NaN."""
        data = rows.copy()
        for at in self._numbers:
            data[:, at] = [np.nan if value is None else value for value in rows[:, at]]
        return self._catboost.Pool(
            data.tolist(),
            cat_features=_places(self._model, "cat") or None,
            text_features=_places(self._model, "text") or None,
            feature_names=list(self.features.names) or None,
        )


def _places(model: Any, kind: str) -> list[int]:
    return list(getattr(model, f"get_{kind}_feature_indices")())


def _loss(model: Any) -> str:
    """The name of its loss function, which the file keeps with its parameters."""
    loss = model.get_all_params().get("loss_function") or "" if hasattr(model, "_object") else ""
    return str(loss).partition(":")[0]
