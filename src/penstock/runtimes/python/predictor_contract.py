"""Models that come as files of a library, in a worker process: rows in, predictions out.

The module in `description.handler` has `load(path, init)`, which gives a `Predictor`. A request is
a body with its content type, or packed tensors (`tensor_bytes`) of the Open Inference Protocol; the
answer is packed tensors, which the instance writes in the form that the caller asked for.

Where a row's answer depends on nothing beside it, the rows of several requests run together. When
such a run fails each request runs alone, so that only the guilty one gets the error.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.python import tables
from penstock.runtimes.python.batches import ALL_ITEMS, Answer, answered, failed
from penstock.runtimes.python.tables import BodyRows, Features, bad
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.runtimes.toolkits import bodies
from penstock.wire.frames import decode_request_meta

PACKED: Final = "application/x-penstock-tensors"
#: The tensor of a model whose columns have no names, and what predictions are called.
INPUT, PREDICT, PREDICT_PROBA = "input", "predict", "predict_proba"
#: KServe's variable: "true" answers with probabilities where a request names no outputs.
_PROBABILITIES: Final = "PREDICT_PROBA"

#: (name, dtype, shape) as in the Open Inference Protocol.
Tensor = tuple[str, str, tuple[int, ...]]


class Predictor(Protocol):
    """A loaded model."""

    features: Features
    outputs: tuple[Tensor, ...]  #: the usual one first
    joins: bool  #: a row's answer is the same whatever rows are beside it
    #: content type -> rows of a body, for types that only this library reads
    readers: Mapping[str, Callable[[bytes], Any]]
    faults: tuple[type[BaseException], ...]  #: exceptions of the library that mean a wrong request

    def predict(self, rows: Any, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        """`rows`: an array [rows, features] of numbers, or of objects where columns are mixed, or
        what a reader of its own gave."""


class PredictorContract:
    def __init__(self, init: dict[str, Any]) -> None:
        module = importlib.import_module(init["handler"])
        self._predictor: Predictor = module.load(Path(init["model_dir"], init["file"]), init)
        names = [name for name, _, _ in self._predictor.outputs]
        self._usual = (names[0],)
        if os.environ.get(_PROBABILITIES, "").strip().lower() == "true":
            if PREDICT_PROBA not in names:
                raise ModelError(
                    "environment-invalid",
                    f"{_PROBABILITIES} is true, and the model gives no probabilities",
                    hint="Leave it out.",
                )
            self._usual = (PREDICT_PROBA,)

    def about(self) -> dict[str, Any]:
        """What the instance tells of the model: its tensors."""
        features = self._predictor.features
        inputs: list[Tensor] = [(INPUT, features.dtype, (-1, features.count or -1))]
        if features.mixed and features.names:
            inputs = [
                (name, "BYTES" if at in features.texts else features.dtype, (-1, 1))
                for at, name in enumerate(features.names)
            ]
        elif features.mixed:
            inputs = [(INPUT, "BYTES", (-1, features.count or -1))]
        return {"inputs": inputs, "outputs": self._predictor.outputs}

    def close(self) -> None:
        del self._predictor

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        read: list[BodyRows | BaseException] = []
        for index, (meta, body) in enumerate(items):
            progress(index)
            try:
                read.append(self._read(meta, body))
            except BaseException as error:
                read.append(error)
        joined = self._joined(read, progress)
        if joined is not None:
            return joined
        answers = []
        for index, table in enumerate(read):
            progress(index)
            answers.append(self._one(table))
        return answers

    def _joined(
        self, read: list[BodyRows | BaseException], progress: Callable[[int], None]
    ) -> list[Answer] | None:
        """All answers from one run; None where that is impossible, or failed."""
        if not self._predictor.joins or len(read) < 2:
            return None
        whole = [table for table in read if isinstance(table, BodyRows)]
        parts = [table.rows for table in whole if isinstance(table.rows, np.ndarray)]
        if len(parts) < len(read) or len({part.shape[1] for part in parts}) > 1:
            return None
        progress(ALL_ITEMS)
        wanted = tuple(dict.fromkeys(name for table in whole for name in table.wanted))
        try:
            outputs = self._predictor.predict(np.concatenate(parts), wanted)
        except Exception:
            return None
        answers, at = [], 0
        for table, part in zip(whole, parts, strict=True):
            end = at + len(part)
            answers.append(_answer({name: outputs[name][at:end] for name in table.wanted}))
            at = end
        return answers

    def _one(self, table: BodyRows | BaseException) -> Answer:
        if not isinstance(table, BodyRows):
            return failed(table)
        try:
            outputs = self._predictor.predict(table.rows, table.wanted)
            return _answer({name: outputs[name] for name in table.wanted})
        except PenstockError as error:
            return failed(error)
        except self._predictor.faults as error:
            words = " ".join(str(error).split())[:400]
            return failed(bad(f"the model refuses these rows: {words}"))
        except BaseException as error:
            return failed(error)

    def _read(self, meta: bytes, body: bytes) -> BodyRows:
        """The rows in the form that the predictor takes, with the outputs that are wanted."""
        predictor = self._predictor
        known = tuple(name for name, _, _ in predictor.outputs)
        if not meta:
            return BodyRows(self._formed(self._tensors(unpack(body))), known)
        kind = bodies.media_type(decode_request_meta(meta).content_type or "")
        if kind in predictor.readers:
            return BodyRows(predictor.readers[kind](body), self._usual)
        table = tables.read(predictor.features, kind, body)
        if table is None:
            types = (tables.JSON[0], tables.JSON_LINES[0], tables.CSV, tables.NPY)
            raise bad(
                f"content type {kind[:100]!r} is not one that this model reads: "
                f"{', '.join((*types, *predictor.readers))}",
                code="unsupported-content-type",
                status=415,
            )
        for name in table.wanted:
            if name not in known:
                raise bad(f"output {name[:80]!r} is not one of the model's: {', '.join(known)}")
        return BodyRows(self._formed(table.rows), table.wanted or self._usual)

    def _tensors(self, tensors: dict[str, np.ndarray]) -> Any:
        if INPUT in tensors and len(tensors) == 1:
            return tensors[INPUT]
        columns = [tensors[name] for name in self._predictor.features.names]
        made = np.empty((len(columns[0]), len(columns)), dtype=object)
        for at, column in enumerate(columns):
            made[:, at] = column.reshape(-1)
        return made

    def _formed(self, rows: Any) -> np.ndarray:
        features = self._predictor.features
        return tables.objects(rows) if features.mixed else tables.matrix(features, rows)


def _answer(outputs: dict[str, np.ndarray]) -> Answer:
    return answered(pack({name: plain(array) for name, array in outputs.items()}), PACKED)


def plain(given: Any) -> np.ndarray:
    """An array of a dtype that the Open Inference Protocol has."""
    array: np.ndarray = np.asarray(given)
    if array.dtype.kind == "O" and array.size and not isinstance(array.flat[0], str | bytes):
        array = np.array(array.tolist())
    return array.astype(np.float64) if array.dtype.kind == "f" and array.itemsize > 8 else array
