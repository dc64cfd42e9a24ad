"""A model on BentoML; `first_answer_predict` says which."""

from __future__ import annotations

import bentoml
from first_answer_predict import loaded


@bentoml.service(workers=1)
class Model:
    def __init__(self) -> None:
        self._predict = loaded()

    @bentoml.api
    def predict(self, rows: list[list[float]]) -> list[float]:
        return self._predict(rows)
