"""From the trained encoder to the artifact: OpenVINO IR, INT8, description, tokenizer, figures.

Serves `train.py`. Two ways to INT8 are made and measured: post-training quantisation of weights and
activations with fixed ranges (so that an answer can't depend on batch mates), and weights alone.
SHIPPED says which goes out, and the run fails when it loses accuracy or lets padding or batch mates
move an answer.
"""

from __future__ import annotations

import json
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
import torch
from costs import compare
from data import Corpus, Query
from encoder import BertForSequenceClassification
from grammar import LABELS
from measure import BUCKETS, Classifier, accuracy, confusion, padding_effect, report
from tokenizers import Tokenizer
from tokens import padded

#: Close to BF16 where the CPU has BF16 instructions, faster than FP32 and than emulated BF16 where
#: it has none, and half the size.
SHIPPED = "int8"
ACCURACY_LOSS_MAX = 0.005
SCORE_CHANGE_MAX = 0.01
CALIBRATION_QUERIES = 300
#: Of what is not INT8. No slower here than BF16, and never emulated: OpenVINO obeys the hint bf16
#: on any CPU with AVX-512, however slow that is.
PRECISION = "f32"
ROWS_MAX = 32
_PACKAGES = ("torch", "openvino", "nncf", "tokenizers", "numpy")

_DESCRIPTION = """\
# Shopping query intent: text in, labels and scores out. Written by train.py.
schema: 1
name: query-intent
version: "1"
runtime: openvino
task: text-classification
file: model.xml
precision: {precision}
inputs:
  - {{name: input_ids, dtype: INT64, shape: [-1, -1]}}
  - {{name: attention_mask, dtype: INT64, shape: [-1, -1]}}
outputs:
  - {{name: logits, dtype: FP32, shape: [-1, {label_count}]}}
labels: [{labels}]
tokenizer: {{file: tokenizer.json, tokens_max: {tokens_max}, pad_id: 0}}
batching:
  rows_max: {rows_max}
  latency_ms_p99_max: 10
  buckets: [{buckets}]
lanes: 1
threads_per_lane: 1
"""


def export_artifact(
    model: BertForSequenceClassification,
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    calibration: list[Query],
    out: Path,
    facts: dict[str, Any],
) -> None:
    """Writes `out/artifact/` and `out/metrics.json` and prints what they hold."""
    sets = {
        "held_out": corpus.held_out,
        "new_words": corpus.new_words,
        "handwritten": corpus.handwritten,
    }
    variants = _variants(model, tokenizer, calibration)
    results, answers = _measured(variants, tokenizer, sets)
    _refuse_if_worse(results)
    for name, figures in _costs(variants).items():
        results[name]["cost_ms"] = figures
        print(f"{name}: ms {json.dumps(figures)}", flush=True)
    for key, queries in sets.items():
        report(f"{key}, {SHIPPED}", answers[key], queries)
    sizes = _write(out / "artifact", variants[SHIPPED][0], tokenizer)
    metrics = {
        **facts,
        "labels": list(LABELS),
        "queries": {key: len(queries) for key, queries in sets.items()},
        "shipped": SHIPPED,
        "variants": results,
        "torch_difference_max": _torch_difference(
            model, variants["fp32"][0], tokenizer, corpus.held_out[:500]
        ),
        "confusion_held_out": confusion(answers["held_out"], corpus.held_out),
        "size_bytes": sizes,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
    }
    (out / "metrics.json").write_text(_readable_json(metrics), encoding="utf-8")
    print(f"shipped {SHIPPED}: {sizes}, {sum(sizes.values()):,} bytes in all")


def _variants(
    model: BertForSequenceClassification, tokenizer: Tokenizer, calibration: list[Query]
) -> dict[str, tuple[ov.Model, str]]:
    """The graphs to compare, each with the inference precision it is run at."""
    plain = convert(model)
    quantised = quantise(convert(model), tokenizer, calibration)
    compressed = nncf.compress_weights(convert(model), mode=nncf.CompressWeightsMode.INT8_SYM)
    return {
        "fp32": (plain, "f32"),
        "bf16": (plain, "bf16"),
        "int8": (quantised, PRECISION),
        "int8-bf16": (quantised, "bf16"),
        "int8-weights": (compressed, "bf16"),
    }


def _measured(
    variants: dict[str, tuple[ov.Model, str]], tokenizer: Tokenizer, sets: dict[str, list[Query]]
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """(figures of every variant, logits of the shipped one by set)."""
    logits: dict[str, dict[str, np.ndarray]] = {}
    results: dict[str, dict[str, Any]] = {}
    for name, (variant, precision) in variants.items():
        classifier = Classifier(variant, tokenizer, precision=precision)
        logits[name] = {key: classifier.logits(queries) for key, queries in sets.items()}
        results[name] = {
            "precision": precision,
            "accuracy": {key: accuracy(logits[name][key], sets[key]) for key in sets},
            "agreement_with_fp32": {
                key: _agreement(logits[name][key], logits["fp32"][key]) for key in sets
            },
            "padding": padding_effect(classifier, sets["held_out"][:500]),
        }
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    return results, logits[SHIPPED]


def convert(model: BertForSequenceClassification) -> ov.Model:
    """OpenVINO's graph with free batch and length, named as the description says."""
    example = torch.ones((2, 7), dtype=torch.int64)
    free = ov.PartialShape([-1, -1])
    converted = ov.convert_model(
        model,
        example_input={"input_ids": example, "attention_mask": example},
        input=[("input_ids", free, ov.Type.i64), ("attention_mask", free, ov.Type.i64)],
    )
    names = ("input_ids", "attention_mask", "logits")
    for port, name in zip((*converted.inputs, *converted.outputs), names, strict=True):
        port.get_tensor().set_names({name})  # the converter leaves names of its own beside these
    return converted


def quantise(model: ov.Model, tokenizer: Tokenizer, queries: list[Query]) -> ov.Model:
    """INT8 weights and activations; ranges come from training queries, one at a time, unpadded.

    Activations are symmetric and attention's own products stay as they are: with zero points
    OpenVINO takes several times as long to make the kernels for a batch shape not seen before.
    """

    def inputs(query: Query) -> dict[str, np.ndarray]:
        ids, mask = padded([tokenizer.encode(query.text)])
        return {"input_ids": ids, "attention_mask": mask}

    return nncf.quantize(
        model,
        nncf.Dataset(queries[:CALIBRATION_QUERIES], inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.PERFORMANCE,
        ignored_scope=nncf.IgnoredScope(types=["ScaledDotProductAttention"]),
        subset_size=CALIBRATION_QUERIES,
    )


def _refuse_if_worse(results: dict[str, dict[str, Any]]) -> None:
    """Stops before anything is written when the shipped variant does not hold what it promises."""
    reference, ours = results["fp32"], results[SHIPPED]
    loss = reference["accuracy"]["held_out"] - ours["accuracy"]["held_out"]
    if loss > ACCURACY_LOSS_MAX:
        raise SystemExit(f"{SHIPPED} loses {loss:.4f} of accuracy; {ACCURACY_LOSS_MAX} is allowed")
    if ours["padding"]["score_change_max"] > SCORE_CHANGE_MAX:
        raise SystemExit(f"{SHIPPED}: padding moves a score: {ours['padding']}")


def _costs(variants: dict[str, tuple[ov.Model, str]]) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, tuple[Path, str]] = {}
        for name, (model, precision) in variants.items():
            files[name] = (Path(folder) / f"{name}.xml", precision)
            ov.save_model(model, files[name][0])
        return compare(files)


def _write(folder: Path, model: ov.Model, tokenizer: Tokenizer) -> dict[str, int]:
    """The artifact's files and their sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    ov.save_model(model, folder / "model.xml")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    description = _DESCRIPTION.format(
        precision=PRECISION,
        label_count=len(LABELS),
        labels=", ".join(LABELS),
        tokens_max=tokenizer.truncation["max_length"],
        rows_max=ROWS_MAX,
        buckets=", ".join(map(str, BUCKETS)),
    )
    (folder / "model.yaml").write_text(description, encoding="utf-8")
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def _agreement(ours: np.ndarray, reference: np.ndarray) -> float:
    return round(float(np.mean(ours.argmax(axis=1) == reference.argmax(axis=1))), 4)


def _torch_difference(
    model: BertForSequenceClassification,
    converted: ov.Model,
    tokenizer: Tokenizer,
    queries: list[Query],
) -> float:
    """Largest difference of a logit between PyTorch and OpenVINO, both FP32."""
    ids, mask = padded(tokenizer.encode_batch([query.text for query in queries]))
    with torch.inference_mode():
        reference = model(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
    ours = Classifier(converted, tokenizer, precision="f32").logits(queries, rows=len(queries))
    return round(float(np.abs(ours - reference).max()), 6)


def _readable_json(metrics: dict[str, Any]) -> str:
    """One line for each row of the confusion table, else indented."""
    table = metrics["confusion_held_out"]
    text = json.dumps({**metrics, "confusion_held_out": "TABLE"}, indent=2)
    rows = ",\n    ".join(json.dumps(row) for row in table)
    return text.replace('"TABLE"', f"[\n    {rows}\n  ]") + "\n"
