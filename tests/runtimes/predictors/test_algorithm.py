"""AWS's XGBoost image with a model and no code: answers and statuses as the image's own.

What is expected was written down from the image's source (aws/sagemaker-xgboost-container,
algorithm_mode/serve.py and serve_utils.py); the numbers are the library's.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from tests.kit.predictors import AskedModel, answers, files, served

from penstock.errors import PenstockError

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
RECORDIO = "application/x-recordio-protobuf"
CSV = "text/csv"


def csv_of(rows: list[list[float]]) -> bytes:
    """Lines without a header; a missing value is an empty cell."""
    lines = (",".join("" if np.isnan(cell) else repr(cell) for cell in row) for row in rows)
    return "\n".join(lines).encode()


def libsvm_of(rows: list[list[float]], *, first: int) -> bytes:
    """Lines with a label, and columns that count from `first`."""
    lines = (
        " ".join(["1", *(f"{at}:{cell!r}" for at, cell in enumerate(row, first))]) for row in rows
    )
    return "\n".join(lines).encode()


def record_of(row: list[float]) -> bytes:
    """A dense record, by hand: features {"values": Value{float32_tensor{values}}}."""

    def field(number: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    tensor = field(1, struct.pack(f"<{len(row)}f", *row))
    record = field(1, field(1, b"values") + field(2, field(2, tensor)))
    return struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4)


def labels_of(body: bytes) -> list[np.ndarray]:
    """The float32 values of each record's only label."""
    found, at = [], 0
    while at < len(body):
        magic, length = struct.unpack_from("<II", body, at)
        assert magic == 0xCED7230A
        record = body[at + 8 : at + 8 + length]
        key = record.index(b"score") + len(b"score")
        # map value, Value.float32_tensor, Float32Tensor.values: three tags with lengths
        found.append(np.frombuffer(record[key + 6 :], "<f4"))
        at += 8 + length + -length % 4
    return found


async def fails(model: AskedModel, body: bytes, kind: str, **more: Any) -> tuple[int, str]:
    with pytest.raises(PenstockError) as caught:
        await model.ask(body, kind, **more)
    return caught.value.original_status, caught.value.message


async def test_bodies_and_accepts_of_the_image() -> None:
    golden = answers()["xgb-aws"]
    rows, right = golden["rows"], golden["predict"]
    near = pytest.approx(right, rel=1e-6)
    async with served(files() / "xgb-aws", image=IMAGE) as model:
        told = await model.ask(csv_of(rows), CSV)
        assert told == ("\n".join(map(str, right)) + "\n").encode()
        assert await model.ask(csv_of(rows).replace(b",", b";"), "text/csv; label_size=1") == told
        told = await model.ask(csv_of(rows), CSV, accept="application/json")
        assert [each["score"] for each in json.loads(told)["predictions"]] == near
        told = await model.ask(csv_of(rows), CSV, accept="application/jsonlines")
        assert [json.loads(line)["score"] for line in told.splitlines()] == near
        told = await model.ask(csv_of(rows), CSV, accept=RECORDIO)
        assert [each.tolist() for each in labels_of(told)] == [[one] for one in right]
        told = await model.ask(libsvm_of(rows[1:], first=0), "text/libsvm")
        assert [float(line) for line in told.split()] == pytest.approx(right[1:], rel=1e-6)
        told = await model.ask(b"".join(map(record_of, rows)), RECORDIO)
        assert [float(line) for line in told.split()] == near
        assert await model.ask(b"", CSV) == b""


async def test_statuses_of_the_image() -> None:
    rows = answers()["xgb-aws"]["rows"]
    async with served(files() / "xgb-aws", image=IMAGE) as model:
        status, message = await fails(model, b"[[1]]", "application/json")
        assert (status, "not an accepted ContentType" in message) == (415, True)
        status, message = await fails(model, csv_of(rows), "text/csv; label_size=5")
        assert (status, "label_size must be equal to 1" in message) == (415, True)
        assert (await fails(model, b"a,b\n", CSV))[0] == 415
        assert (await fails(model, b"\x00" * 40, RECORDIO))[0] == 415
        for body in (b"1 -1:2", b"1 999999999:1", b"1 a:1", b"1 1:2:3", b"\xff", b" "):
            assert (await fails(model, body, "text/libsvm"))[0] == 415, body
        assert (await fails(model, csv_of(rows), CSV, accept="text/html"))[0] == 406
        wide = csv_of([[*row, 1.0] for row in rows])
        status, message = await fails(model, wide, CSV)
        assert (status, message.startswith("Unable to evaluate payload provided")) == (400, True)


@pytest.mark.parametrize("image", [IMAGE, ""])
async def test_columns_of_libsvm_are_taken_as_they_stand(image: str) -> None:
    """As XGBoost's own reader takes them: a model that was trained on columns from 1 has one more,
    which no line names."""
    rows = answers()["xgb-aws"]["rows"][1:]
    golden = answers()["xgb-from-1"]
    from_1 = libsvm_of(rows, first=1)
    async with served(files() / "xgb-from-1", image=image) as model:
        told = await model.ask(from_1, "text/libsvm", accept=CSV)
        assert [float(line) for line in told.split()] == pytest.approx(golden["predict"], rel=1e-6)
    async with served(files() / "xgb-aws", image=image) as model:
        status, message = await fails(model, from_1, "text/libsvm")
        assert (status, "columns" in message.lower()) == (400, True), message


async def test_selected_outputs() -> None:
    golden = answers()["xgb-binary"]
    rows, chances = golden["rows"], golden["predict"]
    keys = "predicted_label, probabilities,raw_score,predicted_score"
    selects = {"SAGEMAKER_INFERENCE_OUTPUT": keys}
    async with served(files() / "xgb-binary", image=IMAGE, environment=selects) as model:
        told = json.loads(await model.ask(csv_of(rows), CSV, accept="application/json"))
        for row, chance in zip(told["predictions"], chances, strict=True):
            assert row["predicted_label"] == int(chance > 0.5)
            assert row["probabilities"] == [1.0 - chance, chance]
            assert row["raw_score"] == chance
            assert np.isnan(row["predicted_score"])
        told = (await model.ask(csv_of(rows), CSV)).decode().split("\n")
        first = chances[0]
        assert told[0] == f'{int(first > 0.5)},"[{1.0 - first}, {first}]",{first},nan'
    golden = answers()["xgb-soft"]
    selects = {"SAGEMAKER_INFERENCE_OUTPUT": "labels,predicted_label,probability"}
    async with served(files() / "xgb-soft", image=IMAGE, environment=selects) as model:
        body = csv_of(golden["rows"])
        told = (await model.ask(body, CSV, accept="application/jsonlines")).splitlines()
        for line, chances in zip(told, golden["predict"], strict=True):
            row = json.loads(line)
            assert row["labels"] == [0, 1, 2]
            assert row["predicted_label"] == int(np.argmax(chances))
            assert row["probability"] == max(chances)


async def test_several_files_are_an_ensemble() -> None:
    golden = answers()["xgb-two"]
    body = csv_of(golden["rows"])
    mean = np.mean(golden["each"], axis=0)
    async with served(files() / "xgb-two", image=IMAGE) as model:
        told = await model.ask(body, CSV)
        assert [float(line) for line in told.split()] == pytest.approx(mean.tolist(), rel=1e-6)
    alone = {"SAGEMAKER_INFERENCE_ENSEMBLE": "false"}
    async with served(files() / "xgb-two", image=IMAGE, environment=alone) as model:
        told = await model.ask(body, CSV)
        assert [float(line) for line in told.split()] == pytest.approx(golden["each"][0])


async def test_in_a_job_every_record_has_a_line() -> None:
    golden = answers()["xgb-soft"]
    async with served(files() / "xgb-soft", image=IMAGE, offline=True) as model:
        told = (await model.ask(csv_of(golden["rows"]), CSV)).decode()
        assert told == "\n".join(map(str, golden["predict"])) + "\n"


async def test_a_target_model_answers_as_the_image_s_server_of_several_models() -> None:
    """One line of commas, or a plain list; the image says that the former is no CSV."""
    golden = answers()["xgb-aws"]
    rows, right = golden["rows"], golden["predict"]
    several = {"SAGEMAKER_MULTI_MODEL": "true"}
    async with served(files() / "xgb-aws", image=IMAGE, environment=several) as model:
        assert await model.ask(csv_of(rows), CSV) == ",".join(map(str, right)).encode()
        told = await model.ask(csv_of(rows), CSV, accept="application/json")
        assert json.loads(told) == pytest.approx(right, rel=1e-6)
        status, words = await fails(model, csv_of(rows), CSV, accept=RECORDIO)
        assert (status, "is not an accepted Accept type" in words) == (415, True)


async def test_a_pickled_booster_of_the_old_image_needs_trust() -> None:
    golden = answers()["xgb-pickle"]
    with pytest.raises(PenstockError) as caught:
        async with served(files() / "xgb-pickle", image=IMAGE):
            pass
    assert caught.value.code == "artifact-untrusted"
    async with served(files() / "xgb-pickle", image=IMAGE, vouched=True) as model:
        told = await model.ask(csv_of(golden["rows"]), CSV)
        assert [float(line) for line in told.split()] == pytest.approx(golden["predict"], rel=1e-6)
        narrow = csv_of([row[:5] for row in golden["rows"]])
        status, message = await fails(model, narrow, CSV)
        assert (status, "is not consistent with feature size" in message) == (400, True)
