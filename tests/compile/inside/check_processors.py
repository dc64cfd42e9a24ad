"""What a compile promises on whatever processor it runs.

Nothing here is a number of one machine: formats are compared with the source on this machine, and
the recipe with the instruction set that is in force.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.compile.proof.samples import BYTES_MAX, FILE, TEXTS, read_samples
from penstock.errors import CallerError
from penstock.runtimes.processor import instruction_set_here

LABELS = {0: "buy", 1: "track", 2: "return"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "intent"
    tiny_models.save(folder, "bert", id2label=LABELS)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    lines = [f"{text} {at}" for at in range(12) for text in tiny_models.TEXTS]
    file.write_text("\n".join(lines))
    return file


def choices(out: Path) -> dict[str, object]:
    return dict(json.loads((out / "provenance.json").read_text())["choices"])


@pytest.mark.processors
def test_calibrated_int8_is_as_near_its_source_on_every_processor(
    source: Path, texts: Path, tmp_path: Path
) -> None:
    """Within the target's own tolerance. Products of 8 bits that are cut off are not: without VNNI
    weights have 7 bits, which is said."""
    options = Options(target="cpu-int8", calibration=texts, measure_s=0.0, threads=1)
    report = compile_model(source, tmp_path / "out", options)
    here = instruction_set_here()
    assert report["instruction_set"] == here.name
    assert choices(tmp_path / "out")["weight_bits"] == (8 if here.int8_exact else 7)
    assert any("no VNNI" in note for note in report["notes"]) is not here.int8_exact


def test_an_artifact_brings_a_few_of_the_compilers_own_samples_along(
    source: Path, texts: Path, tmp_path: Path
) -> None:
    """Whatever texts of the caller's it was calibrated by and compared on."""
    options = Options(target="cpu-int8", calibration=texts, samples=texts, measure_s=0.0, threads=1)
    report = compile_model(source, tmp_path / "out", options)
    samples = read_samples(tmp_path / "out")
    assert report["parity"]["batches_kept"] == len(samples) > 0
    assert (tmp_path / "out" / FILE).stat().st_size < 2 * BYTES_MAX
    rows = sum(len(inputs["input_ids"]) for inputs, _ in samples)
    assert rows <= len(TEXTS)
    model = torch_model(source)
    for inputs, answer in samples:
        with torch.inference_mode():
            asked = {name: torch.from_numpy(array) for name, array in inputs.items()}
            logits = model(**asked).logits.numpy()
        assert np.abs(logits - answer["logits"]).max() < 1e-4


def torch_model(source: Path) -> torch.nn.Module:
    import transformers

    return transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()


@pytest.mark.processors
def test_auto_tries_each_format_and_tells_the_figures(
    source: Path, texts: Path, tmp_path: Path
) -> None:
    options = Options(target="auto", calibration=texts, measure_s=0.0, threads=1)
    report = compile_model(source, tmp_path / "out", options)
    story = report["auto"]
    tried = {each["candidate"]: each for each in story["tried"]}
    formats = {"cpu-fp32", "cpu-int8", "cpu-int8 with activations"}
    assert set(tried) == formats | ({"cpu-bf16"} if instruction_set_here().bf16 else set())
    assert all(each["speedup"] > 0 for each in tried.values())
    fastest = max(each["speedup"] for each in tried.values())
    best = tried[story["chosen"]]
    assert best["speedup"] * (1 + story["tie"]) >= fastest * 0.999  # figures are rounded
    assert report["target"] == story["chosen"].split()[0]
    assert choices(tmp_path / "out").get("int8", "") == {
        "cpu-int8": "weights", "cpu-int8 with activations": "weights and activations",
    }.get(story["chosen"], "")  # fmt: skip
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir()]


def test_auto_never_takes_what_is_outside_of_the_tolerance(
    source: Path, texts: Path, tmp_path: Path
) -> None:
    """A tolerance that FP32 alone keeps: the others are refused, whatever their speed."""
    options = Options(target="auto", calibration=texts, measure_s=0.0, threads=1, tolerance=1e-4)
    report = compile_model(source, tmp_path / "out", options)
    assert report["target"] == "cpu-fp32"
    refused = [each for each in report["auto"]["tried"] if "refused" in each]
    assert len(refused) == len(report["auto"]["tried"]) - 1


def test_auto_that_can_take_nothing_leaves_nothing(source: Path, tmp_path: Path) -> None:
    options = Options(target="auto", measure_s=0.0, threads=1, tolerance=0.0)
    with pytest.raises(CallerError) as caught:
        compile_model(source, tmp_path / "out", options)
    assert caught.value.code == "parity-failed"
    assert list(tmp_path.iterdir()) == []
