"""From the trained heads to the artifact: OpenVINO IR, INT8, description, tokenizer, figures.

Serves `train.py`. The run fails before anything is written when the shipped variant loses accuracy,
or when padding or batch mates move an answer.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
import torch
from judge import Judge, by_difference, figures, padding_effect, word_overlap
from pair_model import PairHeads
from pairs import DIFFERENCES, Pair, make_pairs, read_handwritten, shelves
from tokenizers import Tokenizer

SHIPPED = "int8"
#: Of what is not INT8: as fast as BF16 here, and never emulated on a CPU without BF16 instructions.
PRECISION = "f32"
ACCURACY_LOSS_MAX = 0.01
SCORE_CHANGE_MAX = 0.02
CALIBRATION_PAIRS = 300
TEST_PAIRS = 4000
BUCKETS = (16, 24, 32, 48, 64)
ROWS_MAX = 32
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_PACKAGES = ("torch", "openvino", "nncf", "tokenizers", "numpy")

_DESCRIPTION = """\
# Duplicate products: two titles in, the answers of all heads out. Written by train.py.
schema: 1
name: duplicates
version: "1"
runtime: openvino
task: multi-head
file: model.xml
precision: {precision}
inputs:
{inputs}
outputs:
{outputs}
heads:
{heads}
tokenizer: {{file: tokenizer.json, tokens_max: {tokens_max}, pad_id: 0}}
batching:
  rows_max: {rows_max}
  wait_ms_max: 1
  buckets: {buckets}
lanes: 1
threads_per_lane: 1
"""


def export_artifact(
    model: PairHeads, tokenizer: Tokenizer, *, seed: int, out: Path, facts: dict[str, Any]
) -> None:
    """Writes `out/artifact/` and `out/metrics.json` and prints what they hold."""
    _, training, held_out = shelves(seed)
    sets = {
        "held_out": make_pairs(held_out, TEST_PAIRS, f"{seed}-held-out"),
        "new_products": make_pairs(training, TEST_PAIRS, f"{seed}-new-products"),
    }
    handwritten = read_handwritten(Path(__file__).parent / "handwritten.tsv")
    plain = convert(model)
    calibration = make_pairs(training, CALIBRATION_PAIRS, f"{seed}-calibration")
    quantised = quantise(convert(model), tokenizer, calibration)
    variants = {
        "fp32": (plain, "f32"),
        "bf16": (plain, "bf16"),
        "int8": (quantised, PRECISION),
    }
    results: dict[str, Any] = {}
    for name, (variant, precision) in variants.items():
        judge = Judge(variant, tokenizer, precision=precision)
        answers = {key: judge.answers(pairs) for key, pairs in sets.items()}
        results[name] = {
            "precision": precision,
            **{key: figures(answers[key], sets[key]) for key in sets},
            "handwritten": figures(judge.answers(handwritten), handwritten)["duplicate"],
            "padding": padding_effect(judge, sets["held_out"][:300], BUCKETS),
        }
        print(f"{name}: {json.dumps(results[name])}", flush=True)
        if name == SHIPPED:
            detail = by_difference(answers["held_out"], sets["held_out"])
    overlap = {
        key: word_overlap(pairs, tuned_on=make_pairs(training, TEST_PAIRS, f"{seed}-tuning"))
        for key, pairs in {**sets, "handwritten": handwritten}.items()
    }
    print(f"word overlap alone: {json.dumps(overlap)}")
    _refuse_if_worse(results)
    sizes = _write(out / "artifact", quantised, model, tokenizer)
    metrics = {
        **facts,
        "pairs": {**{key: len(p) for key, p in sets.items()}, "handwritten": len(handwritten)},
        "shipped": SHIPPED,
        "variants": results,
        "duplicate_accuracy_by_difference_held_out": detail,
        "word_overlap_duplicate_accuracy": overlap,
        "torch_difference_max": _torch_difference(model, plain, tokenizer, sets["held_out"][:200]),
        "size_bytes": sizes,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
    }
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    print(f"shipped {SHIPPED}: {sizes}, {sum(sizes.values()):,} bytes in all")


def convert(model: PairHeads) -> ov.Model:
    """OpenVINO's graph with free batch and length; outputs are called after their heads."""
    example = torch.ones((2, 7), dtype=torch.int64)
    free = ov.PartialShape([-1, -1])
    converted = ov.convert_model(
        model,
        example_input=dict.fromkeys(INPUTS, example),
        input=[(name, free, ov.Type.i64) for name in INPUTS],
    )
    names = (*INPUTS, *model.heads)
    for port, name in zip((*converted.inputs, *converted.outputs), names, strict=True):
        port.get_tensor().set_names({name})
    return converted


def quantise(model: ov.Model, tokenizer: Tokenizer, pairs: list[Pair]) -> ov.Model:
    """INT8 weights and activations; ranges come from training pairs, one at a time, unpadded, so
    that an answer can't depend on batch mates. Attention's own products stay as they are."""

    def inputs(pair: Pair) -> dict[str, np.ndarray]:
        encoding = tokenizer.encode(pair.text, pair.text_pair)
        rows = (encoding.ids, encoding.attention_mask, encoding.type_ids)
        return {n: np.array([row], dtype=np.int64) for n, row in zip(INPUTS, rows, strict=True)}

    return nncf.quantize(
        model,
        nncf.Dataset(pairs, inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.PERFORMANCE,
        ignored_scope=nncf.IgnoredScope(types=["ScaledDotProductAttention"]),
        subset_size=len(pairs),
    )


def _refuse_if_worse(results: dict[str, Any]) -> None:
    reference, ours = results["fp32"], results[SHIPPED]
    loss = reference["held_out"]["duplicate"] - ours["held_out"]["duplicate"]
    if loss > ACCURACY_LOSS_MAX:
        raise SystemExit(f"{SHIPPED} loses {loss:.4f} of accuracy; {ACCURACY_LOSS_MAX} is allowed")
    if ours["padding"]["score_change_max"] > SCORE_CHANGE_MAX:
        raise SystemExit(f"{SHIPPED}: padding moves a score: {ours['padding']}")


def _write(
    folder: Path, quantised: ov.Model, model: PairHeads, tokenizer: Tokenizer
) -> dict[str, int]:
    """The artifact's files and their sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    ov.save_model(quantised, folder / "model.xml")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    labels = {"difference": DIFFERENCES}
    heads, outputs = [], []
    for name, head in model.heads.items():
        outputs.append(f"  - {{name: {name}, dtype: FP32, shape: [-1, {head.out_features}]}}")
        line = f"  - {{name: {name}, output: {name}, task: "
        if name in model.bounded:
            heads.append(f"{line}regression}}")
        else:
            named = ", ".join(f'"{label}"' for label in labels.get(name, ("no", "yes")))
            heads.append(f"{line}classification, labels: [{named}]}}")
    description = _DESCRIPTION.format(
        precision=PRECISION,
        inputs="\n".join(f"  - {{name: {n}, dtype: INT64, shape: [-1, -1]}}" for n in INPUTS),
        outputs="\n".join(outputs),
        heads="\n".join(heads),
        tokens_max=tokenizer.truncation["max_length"],
        rows_max=ROWS_MAX,
        buckets=list(BUCKETS),
    )
    (folder / "model.yaml").write_text(description, encoding="utf-8")
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def _torch_difference(
    model: PairHeads, converted: ov.Model, tokenizer: Tokenizer, pairs: list[Pair]
) -> float:
    """Largest difference of an output between PyTorch and OpenVINO, both FP32."""
    judge = Judge(converted, tokenizer, precision="f32")
    inputs = judge.inputs(pairs)
    with torch.inference_mode():
        reference = model(*(torch.from_numpy(inputs[name]) for name in INPUTS))
    ours = judge.run(inputs)
    return round(
        max(
            float(np.abs(ours[name] - tensor.numpy()).max())
            for name, tensor in zip(model.heads, reference, strict=True)
        ),
        6,
    )
