"""Run by a framework's interpreter: its real models behind the toolkits' default functions.

`python toolkits_tour.py FRAMEWORK FOLDER` prints what came, and what the library itself and the
toolkits' own encoders (`json.dumps`, `numpy.savetxt`, `numpy.save`) make of the same rows.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from penstock.runtimes.python.sagemaker_contract import SageMakerContract
from penstock.runtimes.toolkits.text_rows import libsvm_of
from penstock.wire.frames import RequestMeta, encode_request_meta

JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.1, 4.7, 1.5], [0.1, 0.2, 0.3, 0.4]]
CSV_ROWS = "\n".join(",".join(map(str, row)) for row in ROWS) + "\n"

told: list[dict[str, Any]] = []


def loaded(folder: Path, handler: str, file: str = "inference.py") -> SageMakerContract:
    return SageMakerContract(
        {
            "model_dir": str(folder),
            "file": file,
            "name": "m",
            "handler": f"penstock.runtimes.toolkits.{handler}",
        }
    )


def answer(model: SageMakerContract, body: bytes, kind: str, accept: str) -> tuple[bytes, str]:
    meta = encode_request_meta(RequestMeta(content_type=kind, accept=accept))
    ((got, content_type, _, outcome),) = model.answer([(meta, body)], lambda index: None)
    if outcome == 2:
        error = json.loads(got)
        return f"{error['original_status']} {error['code']}: {error['message']}".encode(), "error"
    return got, content_type.decode()


def tell(case: str, got: tuple[bytes, str], expected: bytes, kind: str) -> None:
    told.append({"case": case, "got": [got[0].decode("latin-1"), got[1]],
                 "expected": [expected.decode("latin-1"), kind]})  # fmt: skip


def npy(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


def csv(value: Any) -> bytes:
    stream = io.StringIO()
    np.savetxt(stream, value, delimiter=",", fmt="%s")
    return stream.getvalue().encode()


def dumped(value: Any) -> bytes:
    return json.dumps(value, default=lambda each: each.tolist()).encode()


def tell_all(model: SageMakerContract, prediction: Any, of_doubles: Any) -> None:
    """The same rows in each of the types, and the answer in each."""
    rows = json.dumps(ROWS).encode()
    tell("json to json", answer(model, rows, JSON, JSON), dumped(prediction), JSON)
    tell("json to any", answer(model, rows, f"{JSON}; charset=utf-8", "*/*"), dumped(prediction),
         JSON)  # fmt: skip
    tell("csv to csv", answer(model, CSV_ROWS.encode(), CSV, CSV), csv(prediction), CSV)
    tell("json to npy", answer(model, rows, JSON, NPY), npy(prediction), NPY)
    doubles = npy(np.array(ROWS))
    tell("npy to json", answer(model, doubles, NPY, JSON), dumped(of_doubles), JSON)


def refusals(model: SageMakerContract) -> None:
    for case, body, kind, accept in (
        ("content type", b"x", "image/png", JSON),
        ("accept", json.dumps(ROWS).encode(), JSON, "image/png"),
        ("text", b'[["a", "b"]]', JSON, JSON),
        ("object", b'{"a": 1}', JSON, JSON),
        ("broken", b"[[1,", JSON, JSON),
    ):
        tell(case, answer(model, body, kind, accept), b"", "error")


def sklearn(folder: Path) -> None:
    """The shape of AWS's multi-model sample: a file that only loads, beside its joblib."""
    import joblib
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression

    features = np.array(ROWS * 4) + np.arange(12)[:, None] * 0.05
    regressor = RandomForestRegressor(n_estimators=3, random_state=0)
    joblib.dump(regressor.fit(features, features.sum(axis=1)), folder / "model.joblib")
    (folder / "inference.py").write_text(
        "import os\nimport joblib\n\n"
        "def model_fn(model_dir):\n"
        "    return joblib.load(os.path.join(model_dir, 'model.joblib'))\n"
    )
    model = loaded(folder, "sklearn")
    single = np.array(ROWS, np.float32)
    tell_all(model, regressor.predict(single), regressor.predict(np.array(ROWS)))
    one = regressor.predict(single[:1])
    tell("one row of csv", answer(model, b"5.1,3.5,1.4,0.2", CSV, JSON), dumped(one), JSON)
    tell("one row of json", answer(model, b"[5.1,3.5,1.4,0.2]", JSON, JSON), dumped(one), JSON)
    refusals(model)

    names = LogisticRegression().fit(features, ["a", "b", "c"] * 4)
    joblib.dump(names, folder / "model.joblib")
    tell("names", answer(loaded(folder, "sklearn"), json.dumps(ROWS).encode(), JSON, CSV),
         csv(names.predict(single)), CSV)  # fmt: skip
    line = LinearRegression().fit(features[:, :1], features[:, 1])
    joblib.dump(line, folder / "model.joblib")
    tell("a column", answer(loaded(folder, "sklearn"), b"1\n2\n3\n", CSV, JSON),
         dumped(line.predict(np.array([[1], [2], [3]], np.float32))), JSON)  # fmt: skip


def pytorch(folder: Path) -> None:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    torch.jit.script(net).save(str(folder / "model.pth"))
    with torch.no_grad():
        expected = net(torch.tensor(ROWS)).numpy().tolist()
        alone = net(torch.tensor(ROWS[0])).numpy().tolist()
    model = loaded(folder, "pytorch", "model.pth")
    rows = json.dumps(ROWS).encode()
    tell("json to json", answer(model, rows, JSON, JSON), dumped(expected), JSON)
    tell("csv to csv", answer(model, CSV_ROWS.encode(), CSV, CSV), csv(expected), CSV)
    tell("npy to npy", answer(model, npy(np.array(ROWS, np.float32)), NPY, NPY), npy(expected), NPY)
    tell("one row of csv", answer(model, b"5.1,3.5,1.4,0.2\n", CSV, JSON), dumped(alone), JSON)
    refusals(model)

    # A sample of an image model's shape: the module is the code's own, so are its weights.
    torch.save(net.state_dict(), folder / "model.pth")
    (folder / "inference.py").write_text(
        "import os\nimport torch\n\n"
        "def model_fn(model_dir):\n"
        "    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())\n"
        "    with open(os.path.join(model_dir, 'model.pth'), 'rb') as file:\n"
        "        net.load_state_dict(torch.load(file, map_location=device))\n"
        "    return net.to(device).eval()\n"
    )
    tell("own module", answer(loaded(folder, "pytorch"), rows, JSON, JSON), dumped(expected), JSON)
    (folder / "inference.py").unlink()
    try:
        loaded(folder, "pytorch", "model.pth")
    except Exception as error:
        tell("weights alone", (f"{error}".encode(), "error"), b"", "error")


def huggingface(folder: Path) -> None:
    import transformers

    classifier(folder)
    model = loaded(folder, "huggingface", "config.json")
    pipeline = transformers.pipeline("text-classification", model=str(folder))

    def compact(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    one = b'{"inputs": "good film"}'
    tell("one text", answer(model, one, JSON, "*/*"), compact(pipeline("good film")), JSON)
    several = b'{"inputs": ["good film", "bad"], "parameters": {"top_k": 2}}'
    expected = compact(pipeline(["good film", "bad"], top_k=2))
    tell("parameters", answer(model, several, JSON, JSON), expected, JSON)
    tell("csv", answer(model, b"inputs\ngood film\nbad\n", CSV, JSON),
         compact(pipeline(["good film", "bad"])), JSON)  # fmt: skip
    got, kind = answer(model, one, JSON, CSV)
    first = pipeline("good film")[0]
    tell("csv out", (got, kind), f"label,score\r\n{first['label']},{first['score']}\r\n".encode(),
         CSV)  # fmt: skip
    for case, body, kind in (
        ("content type", b"x", "application/xml"),
        ("a list", b'["good"]', JSON),
        ("csv without header", b"good\n", CSV),
        ("no text", b'{"inputs": 5}', JSON),
    ):
        tell(case, answer(model, body, kind, JSON), b"", "error")
    os.environ["HF_TASK"] = "no-such-task"
    try:
        loaded(folder, "huggingface", "config.json")
    except Exception as error:
        tell("unknown task", (f"{error}".encode(), "error"), b"", "error")


def classifier(folder: Path) -> None:
    """A tiny BERT with two labels, and the tokenizer of its words."""
    import tokenizers
    import torch
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    split = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]")
    )
    split.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, num_labels=2, id2label={0: "NEGATIVE", 1: "POSITIVE"},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).eval().save_pretrained(folder)


def xgboost(folder: Path) -> None:
    import xgboost as xgb

    features = np.array(ROWS * 4) + np.arange(12)[:, None] * 0.05
    booster = xgb.train({"max_depth": 2}, xgb.DMatrix(features, features.sum(axis=1)), 3)
    booster.save_model(folder / "model.json")
    (folder / "model.json").rename(folder / "xgboost-model")
    (folder / "inference.py").write_text("import xgboost\n")
    model = loaded(folder, "xgboost")
    expected = booster.predict(xgb.DMatrix(np.array(ROWS)))
    tell("csv to json", answer(model, CSV_ROWS.encode(), CSV, JSON), dumped(expected), JSON)
    tell("csv to csv", answer(model, CSV_ROWS.encode(), CSV, CSV), csv(expected), CSV)
    tell("semicolons", answer(model, CSV_ROWS.replace(",", ";").encode(), CSV, JSON),
         dumped(expected), JSON)  # fmt: skip
    base = 1 if int(xgb.__version__.partition(".")[0]) >= 3 else 0
    pairs = "\n".join(
        "0 " + " ".join(f"{at + base}:{value}" for at, value in enumerate(row)) for row in ROWS
    )
    for kind in ("text/libsvm", "text/x-libsvm"):
        tell(kind, answer(model, pairs.encode(), kind, JSON), dumped(expected), JSON)
    for version, rows in (
        ("2.1.4", [[0, 5, 0, 6], [0, 0, 5, 0]]),
        ("3.0.5", [[5, 0, 6], [0, 5, 0]]),
    ):
        matrix = libsvm_of(version, "0 1:5 3:6\n1 2:5\n")
        values = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        tell(f"libsvm of {version}", (dumped(values), JSON), dumped(np.array(rows, float)), JSON)
    kind = "application/x-recordio-protobuf"
    single = booster.predict(xgb.DMatrix(np.array(ROWS, np.float32)))
    tell("records", answer(model, records(ROWS), kind, JSON), dumped(single), JSON)
    missing = booster.predict(xgb.DMatrix(np.array([[5.1, np.nan, 1.4, np.nan]], np.float32)))
    tell("sparse records", answer(model, records([[5.1, 1.4]], [0, 2], 4), kind, JSON),
         dumped(missing), JSON)  # fmt: skip
    tell("empty cells", answer(model, b"5.1,,1.4,\n", CSV, JSON), dumped(missing), JSON)
    for case, body, sent in (
        ("content type", b"[]", JSON),
        ("broken records", b"\x0a\x23\xd7\xce\xff\xff\xff\xff", kind),
        ("text", b"a,b\n", CSV),
    ):
        tell(case, answer(model, body, sent, JSON), b"", "error")


def records(rows: list[list[float]], keys: list[int] | None = None, width: int = 0) -> bytes:
    """RecordIO, as SageMaker's writer makes it: each field by its number, packed."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    found = b""
    for row in rows:
        tensor = field(1, struct.pack(f"<{len(row)}f", *row))
        if keys is not None:
            tensor += field(2, bytes(keys)) + field(3, bytes([width]))
        entry = field(1, b"values") + field(2, field(2, tensor))
        record = field(1, entry)
        found += struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4)
    return found


if __name__ == "__main__":
    {"sklearn": sklearn, "pytorch": pytorch, "huggingface": huggingface, "xgboost": xgboost}[
        sys.argv[1]
    ](Path(sys.argv[2]))
    print(json.dumps(told))
