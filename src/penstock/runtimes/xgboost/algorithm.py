"""What AWS's XGBoost image does with a model and no code: its built-in algorithm.

The functions are the defaults of SageMaker's contract in the worker. Bodies, answers and statuses
are those of the image (aws/sagemaker-xgboost-container: algorithm_mode): text/csv without labels,
text/libsvm and recordio-protobuf come in; CSV, JSON, JSON lines or recordio-protobuf go out. All
files of the artifact are models: the answer is their mean, or their vote where the objective gives
classes (SAGEMAKER_INFERENCE_ENSEMBLE). SAGEMAKER_INFERENCE_OUTPUT selects what is answered. Target
models of a multi-model endpoint answer as the image's other server does (handler_service).

Where the image fails on an Accept that it lists (JSON lines and recordio-protobuf without selected
outputs), scores are written in the form that it has for JSON.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.python import estimators
from penstock.runtimes.python.tables import bad
from penstock.runtimes.python.toolkit_variables import MULTI_MODEL
from penstock.runtimes.toolkits import recordio, text_rows
from penstock.runtimes.toolkits.bodies import media_type
from penstock.runtimes.toolkits.recordio import RECORDIO
from penstock.runtimes.xgboost.learner import learner_of
from penstock.runtimes.xgboost.predictor import booster_of

JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
_ACCEPTS: Final = (JSON, JSON_LINES, RECORDIO, CSV)
_KINDS: Final = {
    "csv": CSV, CSV: CSV, "": "text/libsvm",
    "libsvm": "text/libsvm", "text/libsvm": "text/libsvm", "text/x-libsvm": "text/libsvm",
    "recordio-protobuf": RECORDIO, RECORDIO: RECORDIO,
}  # fmt: skip
_ENSEMBLE: Final = "SAGEMAKER_INFERENCE_ENSEMBLE"
_OUTPUT: Final = "SAGEMAKER_INFERENCE_OUTPUT"
_BATCH: Final = "SAGEMAKER_BATCH"
_VOTES: Final = ("multi:softmax", "binary:hinge")


class Algorithm:
    """The models of an artifact."""

    def __init__(self, boosters: list[Any], pickled: list[bool]) -> None:
        self.boosters = boosters
        self.pickled = pickled[0]
        learner = learner_of(boosters[0])
        self.objective = learner.objective
        self.classes = learner.classes
        self.features = learner.features

    def predict(self, data: Any) -> np.ndarray:
        scores = [_scores(booster, data) for booster in self.boosters]
        if len(scores) == 1:
            return scores[0]
        if self.objective in _VOTES:
            return np.apply_along_axis(_most, 0, np.stack(scores))
        mean: np.ndarray = np.mean(scores, axis=0)
        return mean


def _most(votes: np.ndarray) -> Any:
    """The most frequent value; of several the smallest, as scipy's mode."""
    values, counts = np.unique(votes, return_counts=True)
    return values[np.argmax(counts)]


def _scores(booster: Any, data: Any) -> np.ndarray:
    """With the trees up to the best iteration, where XGBoost's version keeps that number."""
    limit = int(getattr(booster, "best_ntree_limit", 0) or 0)
    more: dict[str, Any] = {}
    if "ntree_limit" in inspect.signature(booster.predict).parameters:
        more["ntree_limit"] = limit
    elif limit > 0:
        more["iteration_range"] = (0, limit)
    scores: np.ndarray = booster.predict(data, validate_features=False, **more)
    return scores


def default_model_fn(model_dir: str, context: Any) -> Algorithm:
    xgboost = estimators.library("xgboost")
    files = sorted(path for path in Path(model_dir).iterdir() if path.is_file())
    files = [path for path in files if not path.name.startswith(".")]
    if os.environ.get(_ENSEMBLE, "true") != "true":
        files = files[:1]
    pickled = [estimators.is_pickle(path) for path in files]
    trusted = context.manifest["model"].get("trusted", False)
    boosters = [
        estimators.unpickled(path, {"trusted": trusted}) if is_pickle else booster_of(xgboost, path)
        for path, is_pickle in zip(files, pickled, strict=True)
    ]
    for path, booster in zip(files, boosters, strict=True):
        if not isinstance(booster, xgboost.Booster):
            raise ModelError(
                "model-unreadable",
                f"{path.name} holds a {type(booster).__name__}, and the image serves a Booster",
                hint="Save model.get_booster(), or leave the image out: the file is served as "
                "it is then.",
            )
    return Algorithm(boosters, pickled)


def default_input_fn(data: str | bytes, content_type: str) -> tuple[Any, str]:
    xgboost = estimators.library("xgboost")
    kind = _kind(content_type)
    if not data:
        return None, kind
    body = data.encode() if isinstance(data, str) else data
    try:
        if kind == RECORDIO:
            return xgboost.DMatrix(recordio.features(body)), kind
        text = body.decode()
        if kind == CSV:
            return xgboost.DMatrix(text_rows.csv_rows(text)), kind
        return xgboost.DMatrix(text_rows.libsvm_of(xgboost.__version__, text)), kind
    except ValueError as error:
        raise bad(
            f"Loading {kind} data failed with Exception, please ensure data is in that format: "
            f"{str(error)[:300]}",
            status=415,
        ) from None


def _kind(content_type: str) -> str:
    """One of the types of the image. Raises ModelError (415)."""
    name, *parameters = (part.strip() for part in content_type.lower().split(";"))
    kind = _KINDS.get(name)
    if kind is None:
        raise bad(
            f"{content_type[:100]} is not an accepted ContentType: csv, libsvm, "
            f"recordio-protobuf, text/csv, text/libsvm, text/x-libsvm, {RECORDIO}.",
            code="unsupported-content-type",
            status=415,
        )
    for parameter in parameters:
        key, _, value = (part.strip() for part in parameter.partition("="))
        if kind == CSV and key == "label_size" and value != "1":
            raise bad(
                f"{content_type[:100]} is not an accepted csv ContentType. Optional parameter "
                "label_size must be equal to 1",
                code="unsupported-content-type",
                status=415,
            )
    return kind


def default_predict_fn(data: tuple[Any, str], model: Algorithm) -> tuple[Algorithm, Any]:
    matrix, kind = data
    if matrix is None:
        return model, None
    try:
        _check_width(model, matrix.num_col(), kind)
        return model, model.predict(matrix)
    except Exception as error:
        words = error.message if isinstance(error, ModelError) else str(error).split("\nStack")[0]
        raise bad(f"Unable to evaluate payload provided: {words[:400]}") from None


def _check_width(model: Algorithm, given: int, kind: str) -> None:
    """The image checks this for pickled models; for others XGBoost itself refuses more columns."""
    known = model.features
    if not model.pickled:
        return
    if kind == "text/libsvm" and given > known + 1:
        raise bad(
            f"Feature size of libsvm inference data {given} is larger than feature size of "
            f"trained model {known}."
        )
    if kind != "text/libsvm" and given not in (known, known + 1):
        raise bad(
            f"Feature size of {kind} inference data {given} is not consistent with feature size "
            f"of trained model {known}."
        )


def default_output_fn(prediction: tuple[Algorithm, Any], accept: str) -> tuple[bytes, str]:
    model, scores = prediction
    kind = media_type(accept)
    if kind not in _ACCEPTS:
        raise bad(
            f"Accept type {accept[:100]} is not supported. Please use supported accept types: "
            f"{list(_ACCEPTS)}.",
            code="not-acceptable",
            status=406,
        )
    if scores is None:
        return b"", kind
    if os.environ.get(MULTI_MODEL):
        return _of_multi_model(scores.tolist(), kind), kind
    if _OUTPUT in os.environ:
        return _selected(model, scores, kind), kind
    listed = scores.tolist()
    if os.environ.get(_BATCH):
        return ("\n".join(map(str, listed)) + "\n").encode(), kind
    if kind == CSV:
        lines = [",".join(map(str, one)) if isinstance(one, list) else str(one) for one in listed]
        return ("\n".join(lines) + "\n").encode(), kind
    return _rows([{"score": one} for one in listed], kind), kind


def _of_multi_model(listed: list[Any], kind: str) -> bytes:
    """The image's server of several models writes otherwise: one line of commas, or a JSON list."""
    if kind == CSV and os.environ.get(_BATCH):
        return ("\n".join(map(str, listed)) + "\n").encode()
    if kind == CSV:
        return ",".join(map(str, listed)).encode()
    if kind == JSON:
        return json.dumps(listed).encode()
    raise bad(
        f"Encoding to accept type {kind} failed with exception: {kind} is not an accepted Accept "
        f"type. Please choose one of the following: ['{CSV}', '{JSON}'].",
        code="not-acceptable",
        status=415,
    )


def _rows(rows: list[dict[str, Any]], kind: str) -> bytes:
    if kind == JSON:
        return json.dumps({"predictions": rows}).encode()
    if kind == JSON_LINES:
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    return recordio.written(
        [
            {key: value if isinstance(value, list) else [value] for key, value in row.items()}
            for row in rows
        ]
    )


def _selected(model: Algorithm, scores: np.ndarray, kind: str) -> bytes:
    keys = os.environ[_OUTPUT].replace(" ", "").lower().split(",")
    if model.objective not in _SELECTABLE:
        raise ModelError(
            "model-code-failed",
            f"Objective `{model.objective}` unsupported for selectable inference predictions.",
            hint=f"Leave {_OUTPUT} out of the model's Environment.",
        )
    possible = _SELECTABLE[model.objective]
    # The image answers NaN for a key that the objective does not have, after those that it has.
    order = [*(key for key in possible if key in keys), *(k for k in keys if k not in possible)]
    rows = [
        {key: _VALUES[key](model, one) if key in possible else np.nan for key in order}
        for one in scores
    ]
    if kind != CSV:
        return _rows(rows, kind)
    lines = [
        ",".join(f'"{row[key]}"' if isinstance(row[key], list) else str(row[key]) for key in keys)
        for row in rows
    ]
    return ("\n".join(lines) + ("\n" if os.environ.get(_BATCH) else "")).encode()


_SCORE: Final = ("predicted_score",)
_LABELS: Final = ("predicted_label", "labels")
_CHANCES: Final = ("probability", "probabilities")
_RAW: Final = ("raw_score", "raw_scores")
#: Objective -> what can be selected, in the order in which it is written.
_SELECTABLE: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("reg:squarederror", "reg:logistic", "reg:gamma", "reg:absoluteerror", "reg:tweedie"),
        _SCORE,
    ),
    "binary:logistic": (*_LABELS, *_CHANCES, *_RAW),
    "binary:logitraw": (*_LABELS, *_RAW),
    "binary:hinge": (*_LABELS, *_RAW),
    "multi:softmax": (*_LABELS, *_RAW),
    "multi:softprob": (*_LABELS, *_CHANCES, *_RAW),
}


def _label(model: Algorithm, score: Any) -> Any:
    if model.objective == "binary:logistic":
        return int(score > 0.5)
    if model.objective == "binary:logitraw":
        return int(score > 0)
    return np.argmax(score).item() if model.objective == "multi:softprob" else score.item()


def _labels(model: Algorithm, score: Any) -> list[int]:
    return [0, 1] if "binary:" in model.objective else list(range(model.classes))


def _best(model: Algorithm, score: Any) -> Any:
    return max(score).item() if model.objective == "multi:softprob" else score.item()


def _all(model: Algorithm, score: Any) -> list[Any]:
    if model.objective == "multi:softprob":
        return list(score.tolist())
    return [1.0 - score.item(), score.item()]


_VALUES: Final[dict[str, Callable[[Algorithm, Any], Any]]] = {
    "predicted_score": lambda model, score: score.item(),
    "predicted_label": _label,
    "labels": _labels,
    "probability": _best,
    "probabilities": _all,
    "raw_score": _best,
    "raw_scores": _all,
}
