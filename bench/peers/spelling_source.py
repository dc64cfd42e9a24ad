"""The spelling corrector's INT8 weights back in PyTorch's form, as a model for the python runtime.

`python spelling_source.py ARTIFACT CONFIG FOLDER`; runs where the extra `compile` is installed. The
committed artifact has no names for its weights. So the graphs are built once more from random
weights, which are told apart by their content: what stands at the same place of the artifact has
the same name. Weights are undone to FP32 (value times scale), so both peers compute the same
function, and the benchmark compares their answers.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import openvino as ov
import torch
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from penstock.compile.seq2seq import seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import Builder

PARTS = {"encoder": True, "decoder": False}  #: whether positions look both ways
TABLE = "table"
DTYPES = {"f32": np.float32, "i8": np.int8, "i32": np.int32, "i64": np.int64, "u8": np.uint8}


class Recorder(Builder):
    """A builder that remembers which bytes are which weights."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__(weights, int8=True, bf16=False)
        self.known: dict[bytes, str] = {}

    def array(self, name: str) -> np.ndarray:
        array = super().array(name)
        self.known[array.tobytes()] = name
        return array

    def _quantised(self, key: str, matrix: np.ndarray) -> Any:
        stored, scales = super()._quantised(key, matrix)
        self.known[stored.data.tobytes()] = f"values {key}"
        self.known[scales.data.tobytes()] = f"scales {key}"
        return stored, scales

    def table(self, ids: Any, rows: np.ndarray) -> Any:
        self.known[np.ascontiguousarray(rows, dtype=np.float32).tobytes()] = TABLE
        return super().table(ids, rows)


@dataclass(frozen=True, slots=True)
class Constant:
    shape: tuple[int, ...]
    dtype: str
    content: bytes

    def array(self) -> np.ndarray:
        return np.frombuffer(self.content, dtype=DTYPES[self.dtype]).reshape(self.shape)


def constants(path: Path) -> list[Constant]:
    """Of an IR file, in its order."""
    weights = path.with_suffix(".bin").read_bytes()
    found = []
    for layer in ElementTree.parse(path).getroot().iter("layer"):
        if layer.get("type") != "Const":
            continue
        data = layer.find("data")
        assert data is not None
        start, size = int(data.attrib["offset"]), int(data.attrib["size"])
        shape = tuple(int(each) for each in data.attrib["shape"].split(",") if each.strip())
        found.append(Constant(shape, data.attrib["element_type"], weights[start : start + size]))
    return found


def weights_of(artifact: Path, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """PyTorch's names and the artifact's numbers. Raises ValueError if the graphs differ."""
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(**config))
    for name, weights in model.named_parameters():
        if name.endswith("layer_norm.weight"):  # all ones at first: not to be told apart
            weights.data.uniform_(0.5, 1.5)
    probe = {name: weights.numpy() for name, weights in model.state_dict().items()}
    state: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, both_ways in PARTS.items():
            recorder = Recorder(probe)
            path = Path(folder, f"{part}.xml")
            graph = getattr(seq2seq_t5, part)(recorder, config)
            ov.save_model(graph, path, compress_to_fp16=False)
            made, real = constants(path), constants(artifact / f"{part}.xml")
            if [(c.shape, c.dtype) for c in made] != [(c.shape, c.dtype) for c in real]:
                raise ValueError(f"{part}: the artifact has another graph than {config}")
            named = {
                recorder.known[one.content]: other.array()
                for one, other in zip(made, real, strict=True)
                if one.content in recorder.known
            }
            state |= _undone(named, part, config, both_ways=both_ways)
    return state


def _undone(
    named: dict[str, np.ndarray], part: str, config: dict[str, Any], *, both_ways: bool
) -> dict[str, np.ndarray]:
    """One part's constants as weights of PyTorch's layers."""
    state = {}
    for name, array in named.items():
        kind, _, key = name.partition(" ")
        if kind == "values":
            matrix = array.astype(np.float32) * named[f"scales {key}"]
            layers = key.split("+")
            for layer, rows in zip(layers, np.split(matrix, len(layers)), strict=True):
                state[layer if layer.endswith(".weight") else f"{layer}.weight"] = rows
        elif name == TABLE:
            layer = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            state[layer] = _by_bucket(array, config, both_ways=both_ways)
        elif name.endswith("layer_norm.weight"):
            state[name] = array
    return state


def _by_bucket(by_distance: np.ndarray, config: dict[str, Any], *, both_ways: bool) -> np.ndarray:
    """The position bias as PyTorch keeps it; buckets that no distance falls into stay zero."""
    count = int(config["relative_attention_num_buckets"])
    places = np.arange(count, dtype=np.float32)[:, None]
    buckets, reach = seq2seq_t5._distances(config, places, both_ways=both_ways)
    if not both_ways:
        buckets = buckets[: reach + 1][::-1]
    table = np.zeros((count, by_distance.shape[1]), dtype=np.float32)
    table[buckets[:, 0].astype(int)] = by_distance
    return table


def main(artifact: Path, config_file: Path, folder: Path) -> None:
    config = T5Config.from_json_file(config_file)
    full = config.to_dict()
    # As `penstock compile` has it: a tied output is scaled, which the file does not say.
    full["scale_decoder_outputs"] = config.scale_decoder_outputs
    model = T5ForConditionalGeneration(config)
    state = {name: torch.tensor(array) for name, array in weights_of(artifact, full).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    if unexpected or set(missing) - tied:
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder / "source")
    PreTrainedTokenizerFast(
        tokenizer_file=str(artifact / "tokenizer.json"),
        pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
    ).save_pretrained(folder / "source")  # fmt: skip
    shutil.copy(artifact / "tokenizer.json", folder / "source")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
