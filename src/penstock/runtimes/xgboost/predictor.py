"""XGBoost's models in a worker: a Booster, or what a pickle holds.

A Booster predicts what `Booster.predict` does. A file that one of the scikit-learn classes saved
says so in its attributes: a classifier then answers with classes and probabilities, as
`XGBClassifier` does, and the trees behind the best iteration are left out, as in all of these
classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python import estimators
from penstock.runtimes.python.predictor_contract import PREDICT, PREDICT_PROBA, Tensor
from penstock.runtimes.python.tables import Features, bad
from penstock.runtimes.toolkits import recordio, text_rows
from penstock.runtimes.toolkits.xgboost import ends_the_process
from penstock.runtimes.xgboost.learner import learner_of


def load(path: Path, init: dict[str, Any]) -> Any:
    """Raises ModelError (`model-unreadable`)."""
    xgboost = estimators.library("xgboost")
    if estimators.is_pickle(path):
        model = estimators.unpickled(path, init)
        if not isinstance(model, xgboost.Booster):
            return estimators.EstimatorPredictor(model)
        return XGBoostPredictor(xgboost, model)
    return XGBoostPredictor(xgboost, booster_of(xgboost, path))


def booster_of(xgboost: Any, path: Path) -> Any:
    """The Booster of a native file. It is read from memory: XGBoost takes its form from the file's
    name, and AWS's files have none. Version 1.0 reads files only."""
    if ends_the_process(xgboost.__version__, path):
        raise _unreadable(xgboost, path, ValueError("it is JSON, which came with XGBoost 1.0"))
    booster = xgboost.Booster()
    reads_files_only = xgboost.__version__.startswith("1.0.")
    try:
        booster.load_model(str(path) if reads_files_only else bytearray(path.read_bytes()))
    except (xgboost.core.XGBoostError, ValueError, TypeError) as error:
        raise _unreadable(xgboost, path, error) from None
    return booster


_VERSION: Final = re.compile(rb'"version"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)')


def _unreadable(xgboost: Any, path: Path, error: BaseException) -> ModelError:
    here = xgboost.__version__
    made = _VERSION.search(path.read_bytes()[-65_536:])
    hint = "Save it again by save_model of that version, or compare the file with the original."
    if made and tuple(map(int, made.groups())) > tuple(map(int, here.split(".")[:2])):
        hint = f"It was made by XGBoost {made[1].decode()}.{made[2].decode()}: use that version."
    words = " ".join(line for line in str(error).split("\n") if "Stack trace" not in line)[:300]
    return ModelError(
        "model-unreadable", f"{path.name}: XGBoost {here} can't read it: {words}", hint=hint
    )


def _libsvm(body: bytes) -> Any:
    return text_rows.libsvm(body.decode())


def _reader(kind: str, read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def rows(body: bytes) -> Any:
        try:
            return read(body)
        except ValueError as error:
            raise bad(f"the body is not {kind}: {str(error)[:300]}") from None

    return rows


#: Content types that are read for any model of XGBoost.
READERS: Final = {
    kind: _reader(kind, read)
    for kind, read in (
        *((kind, _libsvm) for kind in text_rows.LIBSVM),
        (recordio.RECORDIO, recordio.features),
    )
}

#: Features in a JSON of the configuration that are categories.
_CATEGORY: Final = "c"


class XGBoostPredictor:
    """Answers rows by a Booster."""

    joins = True

    def __init__(self, xgboost: Any, booster: Any) -> None:
        self._xgboost = xgboost
        self._booster = booster
        self._types: list[str] | None = booster.feature_types
        learner = learner_of(booster)
        self.features = Features(
            count=learner.features,
            names=tuple(booster.feature_names or ()),
            dtype="FP32",
        )
        self.faults: tuple[type[BaseException], ...] = (xgboost.core.XGBoostError, ValueError)
        self.readers: Mapping[str, Callable[[bytes], Any]] = READERS
        self._objective, classes = learner.objective, learner.classes
        saved = booster.attributes().get("scikit_learn", "")
        self._is_sklearn = bool(saved)
        self._classifies = "classifier" in saved and self._objective.startswith(
            ("binary:", "multi:")
        )
        self.outputs: tuple[Tensor, ...]
        if self._classifies:
            self.outputs = (
                (PREDICT, "INT64", (-1,)),
                (PREDICT_PROBA, "FP32", (-1, max(classes, 2))),
            )
        else:
            width = classes if self._objective == "multi:softprob" else learner.targets
            self.outputs = ((PREDICT, "FP32", (-1, width) if width > 1 else (-1,)),)

    def predict(self, rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        scores = self._scores(rows)
        if not self._classifies:
            return {PREDICT: scores}
        if scores.ndim == 2:
            return {PREDICT: np.argmax(scores, axis=1), PREDICT_PROBA: scores}
        if self._objective == "multi:softmax":
            chances = np.zeros((len(scores), self.outputs[1][2][1]), np.float32)
            chances[np.arange(len(scores)), scores.astype(int)] = 1.0
            return {PREDICT: scores.astype(np.int64), PREDICT_PROBA: chances}
        return {
            PREDICT: (scores > (0 if self._objective == "binary:logitraw" else 0.5)).astype(
                np.int64
            ),
            PREDICT_PROBA: np.vstack((1.0 - scores, scores)).T,
        }

    def _scores(self, rows: Any) -> np.ndarray:
        named = list(self.features.names) or None
        if not isinstance(rows, np.ndarray) and rows.shape[1] < self.features.count:
            rows.resize((rows.shape[0], self.features.count))
        matrix = self._xgboost.DMatrix(
            rows,
            missing=np.nan,
            feature_names=named,
            feature_types=self._types,
            enable_categorical=bool(self._types and _CATEGORY in self._types),
        )
        best = self._booster.attributes().get("best_iteration")
        more = {"iteration_range": (0, int(best) + 1)} if self._is_sklearn and best else {}
        scores: np.ndarray = self._booster.predict(matrix, **more)
        return scores
