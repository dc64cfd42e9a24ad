"""Writes model files of all libraries with their own answers: `python make_files.py FOLDER`.

Runs in the environment `predictors`. Each model is a folder, and `answers.json` has what the
library itself predicts for rows: name -> {"rows", "predict", "predict_proba", "columns"}.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import catboost
import joblib
import lightgbm
import numpy as np
import pandas as pd
import skops.io
import xgboost
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ANSWERS: dict[str, dict[str, Any]] = {}


def listed(value: Any) -> Any:
    if isinstance(value, list):
        value = np.stack(value, axis=1)
    return np.asarray(value).tolist()


def noted(name: str, rows: Any, predict: Any, proba: Any = None, columns: Any = None) -> None:
    ANSWERS[name] = {
        "rows": listed(rows), "predict": listed(predict),
        "predict_proba": None if proba is None else listed(proba), "columns": columns,
    }  # fmt: skip


def folder(root: Path, name: str) -> Path:
    made = root / name
    made.mkdir(parents=True)
    return made


def people() -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of numbers and of text, some of them missing."""
    random = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 90, 200).astype(float),
            "city": random.choice(["Bern", "Oslo", "Rom"], 200),
            "income": random.normal(50.0, 10.0, 200).round(2),
        }
    )
    bought = np.where(frame["age"] + 10 * (frame["city"] == "Oslo") > 50, "yes", "no")
    return frame, bought


def of_sklearn(root: Path) -> None:
    iris, diabetes = load_iris(), load_diabetes()
    names = np.array(iris.target_names)[iris.target]
    rows = iris.data[::25]
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(iris.data, names)
    noted("pipeline", rows, scaled.predict(rows), scaled.predict_proba(rows))
    joblib.dump(scaled, folder(root, "pipeline") / "model.joblib")
    skops.io.dump(scaled, folder(root, "pipeline-skops") / "model.skops")
    with open(folder(root, "pipeline-pickle") / "model.pkl", "wb") as file:
        pickle.dump(scaled, file, protocol=2)
    for method in ("zlib", "gzip", "bz2", "lzma", "xz"):
        joblib.dump(
            scaled, folder(root, f"pipeline-{method}") / "model.joblib", compress=(method, 3)
        )
    forest = RandomForestClassifier(20, random_state=3).fit(iris.data, iris.target)
    noted("forest", rows, forest.predict(rows), forest.predict_proba(rows))
    joblib.dump(forest, folder(root, "forest") / "classifier.joblib")
    several = LinearRegression().fit(diabetes.data[:, :6], diabetes.data[:, 6:8])
    noted("outputs", diabetes.data[:5, :6], several.predict(diabetes.data[:5, :6]))
    joblib.dump(several, folder(root, "outputs") / "model.joblib")
    holes = HistGradientBoostingRegressor(random_state=1).fit(diabetes.data, diabetes.target)
    rows = diabetes.data[:4].copy()
    rows[1, 2] = rows[3, 0] = np.nan
    noted("holes", rows, holes.predict(rows))
    skops.io.dump(holes, folder(root, "holes") / "model.skops")
    clusters = KMeans(3, n_init=1, random_state=1).fit(iris.data)
    noted("clusters", iris.data[::40], clusters.predict(iris.data[::40]))
    joblib.dump(clusters, folder(root, "clusters") / "model.joblib")
    frame, bought = people()
    columns = ColumnTransformer(
        [("city", OneHotEncoder(handle_unknown="ignore"), ["city"])], remainder=StandardScaler()
    )
    model = make_pipeline(columns, LogisticRegression()).fit(frame, bought)
    few = frame.head(5)
    noted("people", few.to_numpy(), model.predict(few), model.predict_proba(few), list(frame))
    joblib.dump(model, folder(root, "people") / "model.joblib")
    skops.io.dump(model, folder(root, "people-skops") / "model.skops")


def of_xgboost(root: Path) -> None:
    iris, diabetes = load_iris(), load_diabetes()
    rows = diabetes.data[:6].astype(np.float32)
    rows[0, 3] = np.nan
    plain = xgboost.train({"max_depth": 3}, xgboost.DMatrix(diabetes.data, diabetes.target), 10)
    golden = plain.predict(xgboost.DMatrix(rows))
    for name, file in (("xgb-json", "model.json"), ("xgb-ubj", "booster.ubj")):
        noted(name, rows, golden)
        plain.save_model(folder(root, name) / file)
    noted("xgb-aws", rows, golden)
    saved = folder(root, "xgb-aws")
    plain.save_model(saved / "m.json")
    (saved / "m.json").rename(saved / "xgboost-model")
    from_1 = np.hstack([np.full((len(diabetes.data), 1), np.nan), diabetes.data])
    other = xgboost.train({"max_depth": 3}, xgboost.DMatrix(from_1, diabetes.target), 10)
    few = np.hstack([np.full((5, 1), np.nan), rows[1:]])
    noted("xgb-from-1", few, other.predict(xgboost.DMatrix(few)))
    other.save_model(folder(root, "xgb-from-1") / "m.json")
    (root / "xgb-from-1" / "m.json").rename(root / "xgb-from-1" / "xgboost-model")
    old = folder(root, "xgb-old")
    plain.save_model(old / "model.deprecated")
    (old / "model.deprecated").rename(old / "xgboost-model")
    noted("xgb-old", rows, golden)
    with open(folder(root, "xgb-pickle") / "xgboost-model", "wb") as file:
        pickle.dump(plain, file)
    noted("xgb-pickle", rows, golden)
    names = [name.split(" (")[0] for name in iris.feature_names]
    data = xgboost.DMatrix(iris.data, iris.target, feature_names=names)
    soft = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 5)
    few = iris.data[::25].astype(np.float32)
    noted("xgb-soft", few, soft.predict(xgboost.DMatrix(few, feature_names=names)), columns=names)
    soft.save_model(folder(root, "xgb-soft") / "model.ubj")
    classifier = xgboost.XGBClassifier(n_estimators=5).fit(iris.data, iris.target)
    noted("xgb-classifier", few, classifier.predict(few), classifier.predict_proba(few))
    classifier.save_model(folder(root, "xgb-classifier") / "model.json")
    joblib.dump(classifier, folder(root, "xgb-joblib") / "model.joblib")
    noted("xgb-joblib", few, classifier.predict(few), classifier.predict_proba(few))
    early = xgboost.XGBRegressor(n_estimators=60, early_stopping_rounds=2, learning_rate=0.9)
    held_out = [(diabetes.data[:90], -diabetes.target[:90])]
    early.fit(diabetes.data, diabetes.target, eval_set=held_out, verbose=False)
    noted("xgb-early", rows, early.predict(rows))
    early.save_model(folder(root, "xgb-early") / "model.json")
    binary = xgboost.train(
        {"objective": "binary:logistic"},
        xgboost.DMatrix(diabetes.data, diabetes.target > 150), 6,
    )  # fmt: skip
    noted("xgb-binary", rows, binary.predict(xgboost.DMatrix(rows)))
    binary.save_model(folder(root, "xgb-binary") / "model.ubj")
    ranker = xgboost.XGBRanker(n_estimators=5)
    ranker.fit(iris.data, iris.target, group=[50, 50, 50])
    noted("xgb-ranker", few, ranker.predict(few))
    ranker.save_model(folder(root, "xgb-ranker") / "model.json")
    two = folder(root, "xgb-two")
    for at in (0, 1):
        each = xgboost.train(
            {"max_depth": 1 + at}, xgboost.DMatrix(diabetes.data, diabetes.target), 3
        )
        each.save_model(two / f"m{at}.json")
        (two / f"m{at}.json").rename(two / f"xgboost-model-{at}")
        ANSWERS.setdefault("xgb-two", {"rows": listed(rows), "each": []})["each"].append(
            listed(each.predict(xgboost.DMatrix(rows)))
        )


def of_lightgbm(root: Path) -> None:
    iris, diabetes = load_iris(), load_diabetes()
    quiet = {"verbose": -1}
    plain = lightgbm.train(quiet, lightgbm.Dataset(diabetes.data, diabetes.target), 8)
    noted("lgb", diabetes.data[:5], plain.predict(diabetes.data[:5]))
    plain.save_model(folder(root, "lgb") / "model.txt")
    several = lightgbm.train(
        quiet | {"objective": "multiclass", "num_class": 3},
        lightgbm.Dataset(iris.data, iris.target), 4,
    )  # fmt: skip
    noted("lgb-classes", iris.data[::30], several.predict(iris.data[::30]))
    several.save_model(folder(root, "lgb-classes") / "boosted.txt")
    classifier = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1)
    classifier.fit(iris.data, np.array(iris.target_names)[iris.target])
    few = iris.data[::30]
    noted("lgb-joblib", few, classifier.predict(few), classifier.predict_proba(few))
    joblib.dump(classifier, folder(root, "lgb-joblib") / "model.joblib")
    frame, bought = people()
    frame["city"] = frame["city"].astype("category")
    named = lightgbm.train(quiet, lightgbm.Dataset(frame, bought == "yes"), 5)
    few = frame.head(6)
    noted("lgb-people", few.astype(object).to_numpy(), named.predict(few), columns=list(frame))
    named.save_model(folder(root, "lgb-people") / "model.txt")


def of_catboost(root: Path) -> None:
    diabetes = load_diabetes()
    quiet = {"iterations": 5, "verbose": False, "allow_writing_files": False}
    plain = catboost.CatBoostRegressor(**quiet).fit(diabetes.data, diabetes.target)
    rows = diabetes.data[:5].copy()
    rows[2, 2] = np.nan
    noted("cat", rows, plain.predict(rows))
    plain.save_model(str(folder(root, "cat") / "model.cbm"))
    frame, bought = people()
    model = catboost.CatBoostClassifier(**quiet, cat_features=["city"]).fit(frame, bought)
    few = frame.head(5)
    noted("cat-people", few.to_numpy(), model.predict(few), model.predict_proba(few), list(frame))
    model.save_model(str(folder(root, "cat-people") / "model.cbm"))
    iris = load_iris()
    several = catboost.CatBoostClassifier(**quiet).fit(iris.data, iris.target)
    few = iris.data[::30]
    noted("cat-classes", few, several.predict(few).reshape(-1), several.predict_proba(few))
    several.save_model(str(folder(root, "cat-classes") / "model.cbm"))
    joblib.dump(several, folder(root, "cat-joblib") / "model.joblib")
    noted("cat-joblib", few, several.predict(few).reshape(-1), several.predict_proba(few))


def main(root: Path) -> None:
    of_sklearn(root)
    of_xgboost(root)
    of_lightgbm(root)
    of_catboost(root)
    (root / "answers.json").write_text(json.dumps(ANSWERS))


main(Path(sys.argv[1]))
