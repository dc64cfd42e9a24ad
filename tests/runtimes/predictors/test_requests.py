"""Bodies, doors and errors of models that are files of a library."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from tests.kit.predictors import AskedModel, answers, files, served

from penstock.errors import PenstockError


async def refused(model: AskedModel, body: Any, kind: str = "application/json") -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await model.ask(body, kind)
    assert caught.value.original_status in (400, 415), caught.value
    return caught.value


def oip(name: str, rows: Any, dtype: str = "FP32", **more: Any) -> dict[str, Any]:
    array = np.asarray(rows)
    tensor = {"name": name, "datatype": dtype, "shape": list(array.shape), "data": array.tolist()}
    return {"inputs": [tensor], **more}


async def test_one_answer_shape_for_every_kind_of_body() -> None:
    golden = answers()["xgb-json"]
    rows = golden["rows"][1:3]
    right = pytest.approx(golden["predict"][1:3], rel=1e-6)
    async with served(files() / "xgb-json") as model:
        assert [each.name for each in model.loaded_inputs()] == ["input"]
        csv = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
        told = await model.ask(csv, "text/csv")
        assert [float(line) for line in told.split()] == right
        lines = "\n".join(map(json.dumps, rows)).encode()
        told = json.loads(await model.ask(lines, "application/jsonlines"))
        assert told["predictions"] == right
        buffer = io.BytesIO()
        np.save(buffer, np.array(rows))
        told = await model.ask(buffer.getvalue(), "application/x-npy")
        assert np.load(io.BytesIO(told)).tolist() == right
        told = await model.ask(oip("input", rows))
        (output,) = told["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == ("predict", "FP32", [2])
        assert output["data"] == right
        libsvm = "\n".join(
            " ".join(f"{at}:{value}" for at, value in enumerate(row)) for row in rows
        ).encode()
        told = json.loads(await model.ask(libsvm, "text/libsvm"))
        assert told["predictions"] == right


async def test_outputs_are_named_in_metadata_and_chosen_by_requests() -> None:
    golden = answers()["people"]
    async with served(files() / "people-skops", vouched=True) as model:
        assert [(each.name, each.dtype) for each in model.loaded_inputs()] == [
            ("age", "FP64"), ("city", "BYTES"), ("income", "FP64"),
        ]  # fmt: skip
        described = model.loaded.described["outputs"]
        assert [each["name"] for each in described] == ["predict", "predict_proba"]
        ages, cities, incomes = zip(*golden["rows"], strict=True)
        body = {
            "inputs": [
                *oip("age", [[one] for one in ages], "FP64")["inputs"],
                *oip("city", [[one] for one in cities], "BYTES")["inputs"],
                *oip("income", [[one] for one in incomes], "FP64")["inputs"],
            ],
            "outputs": [{"name": "predict_proba"}, {"name": "predict"}],
        }
        chances, classes = (await model.ask(body))["outputs"]
        assert classes["data"] == golden["predict"]
        assert chances["data"] == pytest.approx(np.ravel(golden["predict_proba"]).tolist())
    always = {"PREDICT_PROBA": "true"}
    async with served(files() / "people-skops", environment=always, vouched=True) as model:
        told = await model.ask(golden["rows"])
        assert np.allclose(told["predictions"], golden["predict_proba"])
    with pytest.raises(PenstockError, match="gives no probabilities"):
        async with served(files() / "lgb", environment=always):
            pass


async def test_what_is_wrong_with_a_body_is_said_in_words() -> None:
    async with served(files() / "xgb-soft") as model:
        message = (await refused(model, [[1, 2, 3]])).message
        assert message == (
            "the model expects 4 features (sepal length, sepal width, petal length, petal width), "
            "got 3"
        )
        assert "row 1 has 3 values" in (await refused(model, [[1, 2, 3, 4], [1, 2, 3]])).message
        assert "'petal length'): 'x' is not a number" in (
            (await refused(model, [[1, 2, "x", 4]])).message
        )
        csv = await refused(model, b"1,2,3,4\n1,2,abc,4\n", "text/csv")
        assert "row 1, feature 2 ('petal length'): 'abc' is not a number" in csv.message
        nan = await refused(model, b"[[1, 2, NaN, 4]]")
        assert (nan.code, "send null" in nan.hint) == ("bad-json", True)
        assert "empty" in (await refused(model, b"")).message
        assert "empty" in (await refused(model, b"\n", "text/csv")).message
        assert "no rows" in (await refused(model, [])).message
        assert "not a list of values" in (await refused(model, [1, 2, 3, 4])).message
        assert "column 'petal width' is missing" in (
            (
                await refused(model, [{"sepal length": 1, "sepal width": 1, "petal length": 1}])
            ).message
        )
        assert "'rows'" in (await refused(model, {"rows": []})).message
        other = await refused(model, b"<x/>", "text/xml")
        assert (other.code, "text/libsvm" in other.message) == ("unsupported-content-type", True)
        assert "'chances' is not one" in (
            (await refused(model, {"instances": [[1, 2, 3, 4]], "outputs": ["chances"]})).message
        )
        assert "of named columns" not in (await refused(model, oip("input", [[1.0]]))).message


async def test_missing_values_where_a_model_takes_none() -> None:
    async with served(files() / "pipeline-skops") as model:
        error = await refused(model, [[1, None, 3, 4]])
        assert "contains NaN" in error.message
        assert (await model.ask([[1, 2, 3, 4]]))["predictions"]


async def test_joined_requests_are_answered_as_alone_and_a_guilty_one_fails_alone() -> None:
    import asyncio

    golden = answers()["lgb"]
    async with served(files() / "lgb") as model:
        told = await asyncio.gather(
            *(model.ask([row]) for row in golden["rows"]), model.ask([[1]]), return_exceptions=True
        )
        assert [each["predictions"][0] for each in told[:-1]] == golden["predict"]
        assert isinstance(told[-1], PenstockError)
