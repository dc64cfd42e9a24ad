"""Model files of real libraries, answered by a worker: as the library itself answers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from tests.kit.predictors import answers, files, served

#: Models whose rows are numbers.
NUMBERS = (
    "pipeline-skops", "xgb-json", "xgb-ubj", "xgb-aws", "xgb-old", "xgb-soft",
    "xgb-classifier", "xgb-early", "xgb-binary", "xgb-ranker", "lgb", "lgb-classes", "cat",
    "cat-classes",
)  # fmt: skip
#: Those that nobody serves without trust: pickles, and types that skops does not trust.
PICKLES = (
    "pipeline", "pipeline-pickle", "pipeline-xz", "holes", "forest", "outputs", "clusters",
    "xgb-pickle", "xgb-joblib",
    "lgb-joblib", "cat-joblib",
)  # fmt: skip
NAMED = ("people-skops", "lgb-people", "cat-people")


def golden(name: str) -> dict[str, Any]:
    first = name if name in answers() else name.partition("-")[0]
    return answers()[first]


def sent(rows: list[list[Any]]) -> list[list[Any]]:
    """NaN as null."""
    return [
        [None if isinstance(one, float) and math.isnan(one) else one for one in row] for row in rows
    ]


def equal(told: Any, wanted: Any) -> bool:
    """Numbers to the precision of their dtype, as JSON has it; classes exactly."""
    given, right = np.asarray(told), np.asarray(wanted)
    if right.dtype.kind in "US" or right.dtype.kind in "iub":
        return bool(given.tolist() == right.tolist())
    return given.shape == right.shape and np.allclose(given, right, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", [*NUMBERS, *PICKLES])
async def test_rows_of_numbers_are_answered_as_the_library_does(name: str) -> None:
    wanted = golden(name)
    async with served(files() / name, vouched=name in PICKLES) as model:
        rows = sent(wanted["rows"])
        for body in (rows, {"instances": rows}, {"inputs": rows}):
            assert equal((await model.ask(body))["predictions"], wanted["predict"])
        if wanted["predict_proba"] is not None:
            both = await model.ask({"instances": rows, "outputs": ["predict_proba"]})
            assert equal(both["predictions"], wanted["predict_proba"])


@pytest.mark.parametrize("name", [*NAMED, "people"])
async def test_columns_by_name(name: str) -> None:
    wanted = golden(name)
    columns, rows = wanted["columns"], wanted["rows"]
    turned = [[row[at] for at in (2, 0, 1)] for row in rows]
    names = [columns[at] for at in (2, 0, 1)]
    async with served(files() / name, vouched=name.startswith("people")) as model:
        objects = [dict(zip(names, row, strict=True)) for row in turned]
        by_name = {key: [row[at] for row in turned] for at, key in enumerate(names)}
        header = ",".join(names) + "\n"
        lines = "".join(",".join(map(str, row)) + "\n" for row in turned)
        for body in (
            rows, objects, {"instances": objects}, {"inputs": by_name},
            {"columns": names, "data": turned},
            {"dataframe_split": {"columns": names, "data": turned}},
        ):  # fmt: skip
            assert equal((await model.ask(body))["predictions"], wanted["predict"])
        body = (header + lines).encode()
        told = json.loads(await model.ask(body, "text/csv", accept="application/json"))
        assert equal(told["predictions"], wanted["predict"])
        if wanted["predict_proba"] is not None:
            both = await model.ask({"instances": objects, "outputs": ["predict_proba"]})
            assert equal(both["predictions"], wanted["predict_proba"])
