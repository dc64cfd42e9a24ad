"""A model of a kind as its library writes it: `first_answer_models.py KIND FOLDER SEED`.

Prints the file's name, rows to ask for, and the library's own answers, as JSON.
"""

# ruff: noqa: PLC0415 - each function needs the libraries of its kind alone

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main(kind: str, folder: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(400, 6)).round(4)
    target = rows[:, 0] * 2 - rows[:, 1] + random.normal(size=400) * 0.1
    asked = rows[:3]
    if kind == "scikit-learn":
        import joblib
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(n_estimators=50, random_state=seed).fit(rows, target)
        file, expected = "model.joblib", forest.predict(asked)
        joblib.dump(forest, Path(folder, file))
    elif kind == "xgboost":
        import xgboost

        data = xgboost.DMatrix(rows, label=target)
        booster = xgboost.train({"max_depth": 4, "seed": seed}, data, num_boost_round=50)
        file, expected = "model.json", booster.predict(xgboost.DMatrix(asked))
        booster.save_model(Path(folder, file))
    elif kind == "onnx":
        from skl2onnx import to_onnx
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(n_estimators=50, random_state=seed).fit(rows, target)
        file, expected = "model.onnx", forest.predict(asked)
        graph = to_onnx(forest, rows[:1].astype(np.float32))
        Path(folder, file).write_bytes(graph.SerializeToString())
    else:
        import lightgbm

        data = lightgbm.Dataset(rows, label=target)
        made = lightgbm.train({"verbose": -1, "seed": seed}, data, num_boost_round=50)
        file, expected = "model.txt", np.asarray(made.predict(asked))
        made.save_model(str(Path(folder, file)))
    print(json.dumps({"file": file, "rows": asked.tolist(), "expected": expected.tolist()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
