"""Tiny models on disk, made of ONNX graphs and Python files, for tests that load real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ("[PAD]", "[UNK]", "good", "bad", "very", "not", "film", "book")
#: logits that each word adds, for the labels positive and negative
WORD_LOGITS = ((0, 0), (0, 0), (2, 0), (0, 2), (0.5, 0.5), (-1, 1), (0.25, 0), (0, 0.25))


def write_onnx(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[tuple[str, np.ndarray]] = (),
) -> None:
    graph = helper.make_graph(
        list(nodes),
        "test",
        list(inputs),
        list(outputs),
        initializer=[numpy_helper.from_array(array, name) for name, array in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


def value(name: str, kind: int, shape: Sequence[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def describe(folder: Path, **fields: object) -> Path:
    """model.yaml of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(yaml.safe_dump({"schema": 1, **fields}))
    return folder


def tensor_model(
    folder: Path, *, runtime: str = "openvino", rows_max: int = 8, file: str = "model.onnx"
) -> Path:
    return describe(folder, runtime=runtime, file=file, batching={"rows_max": rows_max})


def weights() -> np.ndarray:
    """[4, 3]: 0.0, 0.5, 1.0 ... 5.5."""
    return np.arange(12, dtype=np.float32).reshape(4, 3) / 2


def affine(
    folder: Path, *, runtime: str = "openvino", rows: str | int = "n", rows_max: int = 8
) -> Path:
    """`x` FP32 [n, 4] -> `y` FP32 [n, 3] = x @ weights()."""
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", TensorProto.FLOAT, [rows, 4])],
        [value("y", TensorProto.FLOAT, [rows, 3])],
        [("w", weights())],
    )
    return tensor_model(folder, runtime=runtime, rows_max=rows_max)


def row_sums(folder: Path, *, runtime: str = "openvino") -> Path:
    """`x` FP32 [n, any] -> `sum` FP32 [n] and `twice` FP32 [n, any]."""
    write_onnx(
        folder / "model.onnx",
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "x"], ["twice"]),
        ],
        [value("x", TensorProto.FLOAT, ["n", "m"])],
        [value("sum", TensorProto.FLOAT, ["n"]), value("twice", TensorProto.FLOAT, ["n", "m"])],
        [("axes", np.array([1], dtype=np.int64))],
    )
    return tensor_model(folder, runtime=runtime)


def strings(folder: Path) -> Path:
    """`text` BYTES [n] -> `same` BYTES [n]."""
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("Identity", ["text"], ["same"])],
        [value("text", TensorProto.STRING, ["n"])],
        [value("same", TensorProto.STRING, ["n"])],
    )
    return tensor_model(folder, runtime="onnxruntime")


def picky(folder: Path) -> Path:
    """`at` INT64 [n] -> `picked` FP32 [n]: fails outside 0..3, as ONNX Runtime checks."""
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("Gather", ["table", "at"], ["picked"])],
        [value("at", TensorProto.INT64, ["n"])],
        [value("picked", TensorProto.FLOAT, ["n"])],
        [("table", np.array([10, 11, 12, 13], dtype=np.float32))],
    )
    return tensor_model(folder, runtime="onnxruntime")


def forgetful(folder: Path) -> Path:
    """`x` FP32 [n, 2] -> `y` FP32 [1]: one answer, however many rows came."""
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
         helper.make_node("Reshape", ["s", "one"], ["y"])],
        [value("x", TensorProto.FLOAT, ["n", 2])],
        [value("y", TensorProto.FLOAT, [1])],
        [("one", np.array([1], dtype=np.int64))],
    )  # fmt: skip
    return tensor_model(folder)


def tokenizer(folder: Path) -> None:
    vocabulary = {word: at for at, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))


def classifier(folder: Path, *, runtime: str = "openvino", buckets: Sequence[int] = (4, 8)) -> Path:
    """Sums WORD_LOGITS over a text's words."""
    tokenizer(folder)
    table = np.array(WORD_LOGITS, dtype=np.float32)
    write_onnx(
        folder / "model.onnx",
        [
            helper.make_node("Gather", ["table", "input_ids"], ["all"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
            helper.make_node("Mul", ["all", "wide"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "tokens"], ["logits"], keepdims=0),
        ],
        [
            value("input_ids", TensorProto.INT64, ["n", "t"]),
            value("attention_mask", TensorProto.INT64, ["n", "t"]),
        ],
        [value("logits", TensorProto.FLOAT, ["n", 2])],
        [
            ("table", table),
            ("last", np.array([2], dtype=np.int64)),
            ("tokens", np.array([1], dtype=np.int64)),
        ],
    )
    return describe(
        folder,
        runtime=runtime,
        file="model.onnx",
        task="text-classification",
        labels=["positive", "negative"],
        tokenizer={"file": "tokenizer.json", "tokens_max": 16},
        batching={"rows_max": 8, "buckets": list(buckets)},
    )


def embedder(folder: Path) -> Path:
    """Token vectors are WORD_LOGITS plus 1; mean pooling, length 1."""
    tokenizer(folder)
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        [value("input_ids", TensorProto.INT64, ["n", "t"])],
        [value("last_hidden_state", TensorProto.FLOAT, ["n", "t", 2])],
        [("table", np.array(WORD_LOGITS, dtype=np.float32) + 1)],
    )
    return describe(
        folder,
        runtime="openvino",
        file="model.onnx",
        task="feature-extraction",
        tokenizer={"file": "tokenizer.json", "tokens_max": 16},
        batching={"rows_max": 8},
    )


#: What each word of the second text adds to the one number.
PAIR_LOGITS = (0.0, 0.0, 2.0, -2.0, 0.5, -1.0, 0.25, 0.0)


def cross_encoder(folder: Path, *, task: str = "pair-classification") -> Path:
    """Two texts -> one number: the sum of PAIR_LOGITS over the second one's words."""
    tokenizer(folder)
    write_onnx(
        folder / "model.onnx",
        [
            helper.make_node("Gather", ["table", "input_ids"], ["all"]),
            helper.make_node("Mul", ["attention_mask", "token_type_ids"], ["second"]),
            helper.make_node("Cast", ["second"], ["used"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["all", "used"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "tokens"], ["logits"], keepdims=1),
        ],
        [
            value(name, TensorProto.INT64, ["n", "t"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [value("logits", TensorProto.FLOAT, ["n", 1])],
        [
            ("table", np.array(PAIR_LOGITS, dtype=np.float32)),
            ("tokens", np.array([1], dtype=np.int64)),
        ],
    )
    return describe(
        folder,
        runtime="openvino",
        file="model.onnx",
        task=task,
        labels=["relevance"],
        tokenizer={"file": "tokenizer.json", "tokens_max": 16},
        batching={"rows_max": 4, "buckets": [4, 8]},
    )


def code(folder: Path, source: str, *, rows_max: int = 8, **fields: object) -> Path:
    """`code/inference.py` for the python runtime."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    (folder / "code" / "inference.py").write_text(source)
    return describe(
        folder,
        runtime="python",
        task="payload",
        file="code/inference.py",
        batching={"rows_max": rows_max},
        **fields,
    )
