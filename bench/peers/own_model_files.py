"""Writes one model as a person would bring it: `own_model_files.py KIND FOLDER`.

It runs in an environment with the model's library. Prints, as JSON, what to send (`content_type`,
`body`) and what the library itself answers (`expected`: numbers or words, in order).
"""

# ruff: noqa: PLC0415 - each function needs the libraries of its kind alone

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

SEED = 7
JSON, CSV = "application/json", "text/csv"
Said = dict[str, Any]


def _table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(SEED)
    rows = random.normal(size=(300, 4)).round(3)
    return rows, rows[:, 0] * 2 - rows[:, 1] + random.normal(size=300) * 0.1


def _asked(rows: np.ndarray, expected: Any, content_type: str = JSON) -> Said:
    body = (
        "\n".join(",".join(map(str, row)) for row in rows.tolist())
        if content_type == CSV
        else json.dumps(rows.tolist())
    )
    return {
        "content_type": content_type,
        "body": body,
        "expected": np.asarray(expected).reshape(-1).tolist(),
    }


def _words(target: np.ndarray) -> np.ndarray:
    return np.where(target > 0, "keep", "return")


# scikit-learn


def sklearn_joblib(folder: Path) -> Said:
    import joblib
    from sklearn.ensemble import RandomForestRegressor

    rows, target = _table()
    model = RandomForestRegressor(n_estimators=20, random_state=SEED).fit(rows, target)
    joblib.dump(model, folder / "model.joblib")
    return _asked(rows[:3], model.predict(rows[:3]))


def sklearn_pickle(folder: Path) -> Said:
    import pickle

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, target = _table()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, _words(target))
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    return _asked(rows[:3], model.predict(rows[:3]))


def sklearn_skops(folder: Path) -> Said:
    import skops.io
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, target = _table()
    model = make_pipeline(StandardScaler(), Ridge()).fit(rows, target)
    skops.io.dump(model, folder / "model.skops")
    return _asked(rows[:3], model.predict(rows[:3]))


def sklearn_columns(folder: Path) -> Said:
    import joblib
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rows, target = _table()
    frame = pandas.DataFrame({"size": rows[:, 0], "age": rows[:, 1], "shop": _words(rows[:, 2])})
    encode = make_column_transformer((OneHotEncoder(), ["shop"]), remainder="passthrough")
    model = make_pipeline(encode, Ridge()).fit(frame, target)
    joblib.dump(model, folder / "model.joblib")
    body = json.dumps(frame.head(3).to_dict(orient="records"))
    expected = model.predict(frame.head(3)).tolist()
    return {"content_type": JSON, "body": body, "expected": expected}


def sklearn_code(folder: Path) -> Said:
    """AWS's own sample: nothing but model_fn, and the image's defaults for the rest."""
    import joblib
    from sklearn.linear_model import LinearRegression

    rows, target = _table()
    model = LinearRegression().fit(rows, target)
    joblib.dump(model, folder / "model.joblib")
    (folder / "inference.py").write_text(
        "import os\nimport joblib\n\n\ndef model_fn(model_dir):\n"
        '    return joblib.load(os.path.join(model_dir, "model.joblib"))\n'
    )
    return _asked(rows[:3], model.predict(rows[:3]), CSV)


# Trees


def _booster() -> tuple[Any, np.ndarray, np.ndarray]:
    import xgboost

    rows, target = _table()
    data = xgboost.DMatrix(rows, label=target)
    model = xgboost.train({"max_depth": 3, "seed": SEED}, data, num_boost_round=20)
    return model, rows[:3], model.predict(xgboost.DMatrix(rows[:3]))


def xgboost_json(folder: Path) -> Said:
    model, rows, expected = _booster()
    model.save_model(folder / "model.json")
    return _asked(rows, expected)


def xgboost_ubj(folder: Path) -> Said:
    model, rows, expected = _booster()
    model.save_model(folder / "anything.ubj")
    return _asked(rows, expected)


def xgboost_builtin(folder: Path) -> Said:
    model, rows, expected = _booster()
    model.save_model(folder / "model.json")
    (folder / "model.json").rename(folder / "xgboost-model")
    return _asked(rows, expected, CSV)


def lightgbm_text(folder: Path) -> Said:
    import lightgbm

    rows, target = _table()
    settings = {"verbose": -1, "seed": SEED, "objective": "binary"}
    data = lightgbm.Dataset(rows, label=(target > 0).astype(float))
    model = lightgbm.train(settings, data, num_boost_round=20)
    model.save_model(str(folder / "model.txt"))
    return _asked(rows[:3], model.predict(rows[:3]))


def catboost_cbm(folder: Path) -> Said:
    import catboost

    rows, target = _table()
    model = catboost.CatBoostRegressor(
        iterations=20, depth=3, random_seed=SEED, verbose=False, allow_writing_files=False
    ).fit(rows, target)
    model.save_model(str(folder / "model.cbm"))
    return _asked(rows[:3], model.predict(rows[:3]))


# ONNX by converters


def onnx_zipmap(folder: Path) -> Said:
    return _onnx_classifier(folder, zipmap=True)


def onnx_plain(folder: Path) -> Said:
    return _onnx_classifier(folder, zipmap=False)


def _onnx_classifier(folder: Path, *, zipmap: bool) -> Said:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    rows, target = _table()
    rows = rows.astype(np.float32)
    forest = RandomForestClassifier(n_estimators=10, random_state=SEED).fit(rows, target > 0)
    made = to_onnx(forest, rows[:1], options={"zipmap": zipmap})
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    said = _asked(rows[:3], forest.predict(rows[:3]).astype(int))
    return said | {"probabilities": forest.predict_proba(rows[:3]).tolist()}


def onnx_regressor(folder: Path) -> Said:
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor

    rows, target = _table()
    rows = rows.astype(np.float32)
    model = GradientBoostingRegressor(n_estimators=20, random_state=SEED).fit(rows, target)
    (folder / "trees.onnx").write_bytes(to_onnx(model, rows[:1]).SerializeToString())
    return _asked(rows[:3], model.predict(rows[:3]))


# PyTorch and Hugging Face


def _network() -> Any:
    import torch

    torch.manual_seed(SEED)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).eval()


def _computed(network: Any, rows: np.ndarray) -> Any:
    import torch

    with torch.no_grad():
        return network(torch.tensor(rows, dtype=torch.float32)).numpy()


def torch_script(folder: Path) -> Said:
    import torch

    network, (rows, _) = _network(), _table()
    torch.jit.script(network).save(str(folder / "model.pt"))
    return _asked(rows[:3], _computed(network, rows[:3]))


def torch_onnx(folder: Path) -> Said:
    import torch

    network, (rows, _) = _network(), _table()
    torch.onnx.export(
        network, torch.zeros(1, 4), str(folder / "model.onnx"), dynamo=False,
        input_names=["rows"], output_names=["y"],
        dynamic_axes={"rows": {0: "batch"}, "y": {0: "batch"}},
    )  # fmt: skip
    return _asked(rows[:3], _computed(network, rows[:3]))


def torch_code(folder: Path) -> Said:
    """A state_dict and the class in code/inference.py, as PyTorch's samples have it."""
    import torch

    network, (rows, _) = _network(), _table()
    torch.save(network.state_dict(), folder / "model.pth")
    (folder / "code").mkdir()
    (folder / "code/inference.py").write_text(
        "import os\nimport torch\n\n\ndef model_fn(model_dir):\n"
        "    net = torch.nn.Sequential(\n"
        "        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)\n    )\n"
        '    path = os.path.join(model_dir, "model.pth")\n'
        "    net.load_state_dict(torch.load(path, weights_only=True))\n    return net.eval()\n"
    )
    # Of the version whose build for processors every index has: others bring CUDA, gigabytes of it.
    (folder / "code/requirements.txt").write_text("torch==2.13.0\n")
    return _asked(rows[:3], _computed(network, rows[:3]))


def hugging_face(folder: Path) -> Said:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        PreTrainedTokenizerFast,
        pipeline,
        set_seed,
    )

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "where", "is", "my", "order", "return"]
    tokenizer = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip
    set_seed(SEED)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, id2label={0: "track", 1: "buy"},
        label2id={"track": 0, "buy": 1},
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    text = "where is my order"
    best = pipeline("text-classification", model=model, tokenizer=fast)(text)[0]
    return {
        "content_type": JSON,
        "body": json.dumps({"inputs": text}),
        "expected": [best["label"]],
        "score": best["score"],
    }


# Servers and code


def fast_api(folder: Path) -> Said:
    (folder / "app.py").write_text(
        "from fastapi import FastAPI, Request\n\napp = FastAPI()\n\n\n"
        '@app.get("/ping")\ndef ping():\n    return {}\n\n\n'
        '@app.post("/invocations")\nasync def invocations(request: Request):\n'
        "    return [sum(row) for row in await request.json()]\n"
    )
    (folder / "requirements.txt").write_text("fastapi\nuvicorn\n")
    return {"content_type": JSON, "body": "[[1, 2], [3, 4.5]]", "expected": [3, 7.5]}


def flask(folder: Path) -> Said:
    (folder / "app.py").write_text(
        "from flask import Flask, jsonify, request\n\napp = Flask(__name__)\n\n\n"
        '@app.get("/ping")\ndef ping():\n    return ""\n\n\n'
        '@app.post("/invocations")\ndef invocations():\n'
        "    return jsonify([sum(row) for row in request.get_json()])\n"
    )
    (folder / "requirements.txt").write_text("flask\n")
    return {"content_type": JSON, "body": "[[1, 2], [3, 4.5]]", "expected": [3, 7.5]}


def plain_code(folder: Path) -> Said:
    """Code with a requirement that the server does not have."""
    (folder / "code").mkdir()
    (folder / "code/inference.py").write_text(
        "import json\n\nimport humanize\n\n\n"
        "def model_fn(model_dir):\n    return humanize.intword\n\n\n"
        "def predict_fn(data, model):\n    return [model(each) for each in data]\n\n\n"
        "def output_fn(prediction, accept):\n    return json.dumps(prediction)\n"
    )
    (folder / "code/requirements.txt").write_text("humanize==4.9.0\n")
    return {
        "content_type": JSON,
        "body": "[1000000, 2500000000]",
        "expected": ["1.0 million", "2.5 billion"],
    }


KINDS: Final[dict[str, Callable[[Path], Said]]] = {
    "sklearn-joblib": sklearn_joblib,
    "sklearn-pickle": sklearn_pickle,
    "sklearn-skops": sklearn_skops,
    "sklearn-columns": sklearn_columns,
    "sklearn-code": sklearn_code,
    "xgboost-json": xgboost_json,
    "xgboost-ubj": xgboost_ubj,
    "xgboost-builtin": xgboost_builtin,
    "lightgbm-text": lightgbm_text,
    "catboost-cbm": catboost_cbm,
    "onnx-zipmap": onnx_zipmap,
    "onnx-no-zipmap": onnx_plain,
    "onnx-regressor": onnx_regressor,
    "torchscript": torch_script,
    "torch-onnx": torch_onnx,
    "torch-code": torch_code,
    "hugging-face": hugging_face,
    "fastapi": fast_api,
    "flask": flask,
    "plain-code": plain_code,
}


if __name__ == "__main__":
    print(json.dumps(KINDS[sys.argv[1]](Path(sys.argv[2]))))
