"""LightGBM's models in a worker: a Booster, or what a pickle holds.

A Booster predicts what `Booster.predict` does: values, the probability of class 1, or those of all
classes. Columns that were categories of a DataFrame take their values; the file has the categories,
and a value's place among them is what LightGBM computes with (`pandas_categorical`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python import estimators
from penstock.runtimes.python.predictor_contract import PREDICT, Tensor
from penstock.runtimes.python.tables import Features, matrix


def load(path: Path, init: dict[str, Any]) -> Any:
    """Raises ModelError (`model-unreadable`)."""
    lightgbm = estimators.library("lightgbm")
    if estimators.is_pickle(path):
        model = estimators.unpickled(path, init)
        if not isinstance(model, lightgbm.Booster):
            return estimators.EstimatorPredictor(model)
        return LightGBMPredictor(lightgbm, model)
    try:
        booster = lightgbm.Booster(model_file=str(path))
    except (lightgbm.basic.LightGBMError, ValueError) as error:
        raise ModelError(
            "model-unreadable",
            f"{path.name}: LightGBM {lightgbm.__version__} can't read it: {str(error)[:300]}",
            hint="Save it again by save_model, or use the version that made it.",
        ) from None
    return LightGBMPredictor(lightgbm, booster)


class LightGBMPredictor:
    """Answers rows by a Booster."""

    joins = True

    def __init__(self, lightgbm: Any, booster: Any) -> None:
        self._booster = booster
        names = tuple(booster.feature_name())
        own = any(name != f"Column_{at}" for at, name in enumerate(names))
        self._categories = _categories(booster)
        texts = {
            at
            for at, known in self._categories.items()
            if any(isinstance(value, str) for value in known)
        }
        self.features = Features(
            count=int(booster.num_feature()),
            names=names if own else (),
            mixed=bool(self._categories),
            texts=frozenset(texts),
        )
        self._places = {
            at: {value: place for place, value in enumerate(known)}
            for at, known in self._categories.items()
        }
        self.readers: Mapping[str, Callable[[bytes], Any]] = {}
        self.faults: tuple[type[BaseException], ...] = (
            lightgbm.basic.LightGBMError, ValueError, TypeError,
        )  # fmt: skip
        classes = int(booster.num_model_per_iteration())
        self.outputs: tuple[Tensor, ...] = (
            (PREDICT, "FP64", (-1, classes) if classes > 1 else (-1,)),
        )

    def predict(self, rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        if self._categories:
            coded = rows.copy()
            for at, places in self._places.items():
                # LightGBM takes an unknown category as a missing value, too
                coded[:, at] = [places.get(value) for value in rows[:, at]]
            rows = matrix(self.features, coded)
        return {PREDICT: self._booster.predict(rows)}


def _categories(booster: Any) -> dict[int, list[Any]]:
    """Feature -> its categories in a DataFrame, in their order. Features that are categories have
    their numbers in `feature_infos`, as in "0:2:1", others a range, as in "[0:1]", or "none"."""
    known = getattr(booster, "pandas_categorical", None)
    if not known:
        return {}
    text = booster.model_to_string(num_iteration=1)
    infos = next(line for line in text.split("\n") if line.startswith("feature_infos="))
    listed = infos.partition("=")[2].split(" ")
    places = [at for at, info in enumerate(listed) if info != "none" and info[0] != "["]
    if len(places) != len(known):
        raise ModelError(
            "model-unreadable",
            f"the file has categories of {len(known)} columns, and {len(places)} features use some",
            hint="Fit it without columns of one value, or serve it by a code/inference.py.",
        )
    return dict(zip(places, known, strict=True))
