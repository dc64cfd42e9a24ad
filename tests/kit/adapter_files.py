"""Tiny LoRA adapters with random weights, in PEFT's form, and the models that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.kit.generation_models import CONFIG, weights

#: Every linear layer of a block.
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


def pairs(
    seed: int, targets: tuple[str, ...] = EVERY, *, rank: int = 4, config: Any = None
) -> Pairs:
    """lora_A and lora_B by module; large enough to change every answer."""
    random = np.random.default_rng(seed)
    made: Pairs = {}
    for name, matrix in weights(config=config).items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in targets:
            rows, columns = matrix.shape
            down = random.standard_normal((rank, columns)) * 0.2
            up = random.standard_normal((rows, rank)) * 0.2
            made[module] = (down.astype(np.float32), up.astype(np.float32))
    return made


def write_adapter(folder: Path, given: Pairs, *, alpha: float | None = None, **config: Any) -> Path:
    """The two files; `alpha` is the rank where nothing is said, so that the scale is 1."""
    folder.mkdir(parents=True, exist_ok=True)
    rank = next(iter(given.values()))[0].shape[0]
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank,
        "lora_alpha": rank if alpha is None else alpha,
        "target_modules": sorted({module.rpartition(".")[2] for module in given}),
        "bias": "none", "base_model_name_or_path": "tiny",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    tensors = {}
    for module, (down, up) in given.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = down
        tensors[f"base_model.model.{module}.lora_B.weight"] = up
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], **changed: Any) -> Path:
    """`changed`: entries of the header that are not what they should be."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, at = [], 0
    for name, array in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "float64": "F64"}[str(array.dtype)]
        header[name] = {
            "dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes],
        }  # fmt: skip
        at += array.nbytes
        parts.append(array.tobytes())
    head = json.dumps(header | changed).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(parts))
    return path


def merged(given: Pairs, *, scale: float = 1.0, config: Any = None) -> dict[str, np.ndarray]:
    """The base's weights with the adapter added, as PEFT's merge_and_unload has it."""
    made = weights(config=config)
    for module, (down, up) in given.items():
        made[f"{module}.weight"] = made[f"{module}.weight"] + np.float32(scale) * (up @ down)
    return made


def write_merged(folder: Path, given: Pairs, *, scale: float = 1.0, **sizes: int) -> Path:
    """A model of its own, to compare an adapter's answers with."""
    import openvino as ov
    from tests.kit.generation_models import write_model

    from penstock.compile.causal_lm.causal_lm_graph import causal_lm
    from penstock.compile.seq2seq.seq2seq_graph import Builder

    write_model(folder)
    config = CONFIG | sizes
    made = merged(given, scale=scale, config=config)
    graph = causal_lm(Builder(made, int8=False, bf16=False), config)
    ov.save_model(graph, folder / "openvino_model.xml", compress_to_fp16=False)
    return folder
