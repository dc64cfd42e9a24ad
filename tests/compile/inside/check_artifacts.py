"""What a compile writes: number formats, tokenizers, records; and the cache for deployments."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiny_models
import torch
from served import ServedModel, transformers_answer

from penstock.compile import serving
from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.compile.encoder.encoder import encoder_graph
from penstock.compile.encoder.encoder_plan import plan_encoder
from penstock.compile.graphs.lowering import lower_exported
from penstock.compile.serving import compile_for_serving, needs_compiling
from penstock.compile.targets import TARGETS
from penstock.errors import CallerError, NotNowError

LABELS = {0: "buy", 1: "track", 2: "return"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "intent"
    tiny_models.save(folder, "bert", id2label=LABELS)
    return folder


def probabilities(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits), -1).numpy()


def expected(source: Path, served: ServedModel) -> np.ndarray:
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    arrays = served.encoded(tiny_models.TEXTS)
    return probabilities(transformers_answer(model, arrays).logits.numpy())


@pytest.mark.processors
@pytest.mark.parametrize("target", ["cpu-bf16", "cpu-int8"])
def test_a_smaller_format_is_smaller_and_within_its_tolerance(
    target: str, source: Path, tmp_path: Path
) -> None:
    apart = TARGETS[target].tolerance.difference_max
    report = compile_model(
        source, tmp_path / "out", Options(target=target, measure_s=0.0, threads=1)
    )
    served = ServedModel(tmp_path / "out")
    ours = probabilities(served.ask(tiny_models.TEXTS))
    assert np.abs(ours - expected(source, served)).max() <= apart
    graph = (tmp_path / "out" / "model.bin").stat().st_size
    assert graph < report["size"]["source_bytes"] * 0.75
    assert report["parity"]["tolerance"]["difference_max"] == apart


def test_without_a_calibration_set_int8_is_of_weights_and_says_so(
    source: Path, tmp_path: Path
) -> None:
    report = compile_model(
        source, tmp_path / "out", Options(target="cpu-int8", measure_s=0.0, threads=1)
    )
    assert any("INT8 weights only" in note for note in report["notes"])
    assert "FakeQuantize" not in (tmp_path / "out" / "model.xml").read_text()


@pytest.mark.processors
def test_a_calibration_set_quantises_activations_too(source: Path, tmp_path: Path) -> None:
    texts = [f"{text} {at}" for at in range(12) for text in tiny_models.TEXTS]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    options = Options(
        target="cpu-int8",
        calibration=tmp_path / "texts.txt",
        measure_s=0.0,
        threads=1,
        tolerance=0.3,
    )
    compile_model(source, tmp_path / "out", options)
    assert "FakeQuantize" in (tmp_path / "out" / "model.xml").read_text()
    made = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert made["choices"]["int8"] == "weights and activations"
    assert made["choices"]["calibration_rows"] == 48  # every fifth is kept for the comparison
    assert made["options"]["calibration"] == "texts.txt"


def test_the_records_say_what_was_made_of_what_and_how_fast(source: Path, tmp_path: Path) -> None:
    options = Options(target="cpu-fp32", measure_s=0.01, threads=1, name="intent")
    report = compile_model(source, tmp_path / "out", options)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    shapes = [(each["rows"], each["tokens"]) for each in report["timings"]]
    assert shapes == [(1, 16), (8, 16), (32, 16)]  # 66 positions: nothing of 128 tokens
    assert all(each["before_ms"] > 0 and each["after_ms"] > 0 for each in report["timings"])
    made = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert made["source"]["kind"] == "hugging-face"
    assert len(made["source"]["sha256"]) == 64
    assert {"torch", "transformers", "openvino", "penstock"} <= set(made["versions"])
    assert str(tmp_path) not in json.dumps(made)
    assert ServedModel(tmp_path / "out").description.name == "intent"


def test_a_word_piece_vocabulary_becomes_a_fast_tokenizer(source: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    for name in ("config.json", "model.safetensors"):
        (slow / name).write_bytes((source / name).read_bytes())
    (slow / "vocab.txt").write_text("\n".join(tiny_models.vocabulary()))
    (slow / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    options = Options(target="cpu-fp32", measure_s=0.0, threads=1)
    compile_model(slow, tmp_path / "out", options)
    compile_model(source, tmp_path / "fast", options)
    texts = ["Red running SHOES, size 42!", "where is my package"]
    ours, theirs = (ServedModel(tmp_path / name).encoded(texts) for name in ("out", "fast"))
    assert ours["input_ids"].tolist() == theirs["input_ids"].tolist()


def test_a_sentencepiece_model_becomes_a_fast_tokenizer(tmp_path: Path) -> None:
    import transformers

    folder = tmp_path / "source"
    tiny_models.save(folder, "xlm-roberta", id2label=LABELS)
    (folder / "tokenizer.json").unlink()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny_models.TEXTS * 20),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    compile_model(folder, tmp_path / "out", Options(target="cpu-fp32", measure_s=0.0, threads=1))
    served = ServedModel(tmp_path / "out")
    ours = served.encoded(["where is my package"])["input_ids"][0].tolist()
    theirs = transformers.AutoTokenizer.from_pretrained(folder)("where is my package")
    assert ours == theirs["input_ids"]
    assert served.description.tokenizer is not None
    assert served.description.tokenizer.pad_id == 1


@pytest.mark.parametrize("target", ["cuda-bf16", "cuda-fp16"])
def test_a_gpu_program_has_free_rows_and_lengths_and_answers_fp32(
    target: str, source: Path, tmp_path: Path
) -> None:
    """Made for the CPU here: the same program, without the chip that the target needs."""
    options = Options(target=target)
    graph = encoder_graph(plan_encoder(source, options), trust=False)
    lowered = lower_exported(graph, TARGETS[target], tmp_path, device="cpu")
    program = torch.export.load(str(tmp_path / lowered.file)).module()
    for rows, tokens in ((1, 1), (1, 9), (5, 33)):
        ids = torch.randint(0, 90, (rows, tokens))
        given = program(ids, torch.ones_like(ids))
        reference = graph.run(
            {"input_ids": ids.numpy(), "attention_mask": np.ones((rows, tokens), np.int64)}
        )
        assert given.dtype == torch.float32
        apart = np.abs(probabilities(given.numpy()) - probabilities(reference["logits"])).max()
        assert apart < TARGETS[target].tolerance.difference_max


def test_what_is_deployed_uncompiled_is_compiled_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needs_compiling(source)
    first = compile_for_serving(source, tmp_path / "cache", target="cpu-fp32")
    assert ServedModel(first).description.labels == ("buy", "track", "return")
    assert not needs_compiling(first)
    monkeypatch.setattr(serving, "_compile_in_child", None)  # a second compile would fail
    assert compile_for_serving(source, tmp_path / "cache", target="cpu-fp32") == first


def test_a_folder_around_everything_is_stepped_into(source: Path, tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked" / "my_model").symlink_to(source)
    assert needs_compiling(tmp_path / "unpacked")


def test_a_compile_that_fails_in_its_child_tells_the_same_error(
    source: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("config.json", "model.safetensors"):
        (broken / name).write_bytes((source / name).read_bytes())
    with pytest.raises(CallerError) as caught:
        compile_for_serving(broken, tmp_path / "cache", target="cpu-fp32")
    assert caught.value.code == "tokenizer-missing"
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_a_compile_that_nobody_waits_for_is_given_up(source: Path, tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(NotNowError) as caught:
        compile_for_serving(source, tmp_path / "cache", target="cpu-fp32", cancelled=cancelled)
    assert caught.value.code == "compile-cancelled"


def test_without_the_extra_the_error_says_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "missing", lambda: ("torch", "transformers"))
    with pytest.raises(CallerError) as caught:
        compile_for_serving(source, tmp_path / "cache", target="cpu-fp32")
    assert caught.value.code == "compile-not-installed"
    assert "[compile]" in caught.value.hint


def test_the_command_prints_json_alone_on_standard_output(source: Path, tmp_path: Path) -> None:
    script = (
        "import typer; from penstock.cli import options\n"
        "from penstock.cli.artifacts.compile import compile_\n"
        "app = typer.Typer(); options.command(app, 'compile')(compile_); app()"
    )
    run = subprocess.run(
        [
            *(sys.executable, "-c", script, str(source), "-o", str(tmp_path / "out")),
            *("--target", "cpu-int8", "--measure-s", "0", "--json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout)["target"] == "cpu-int8"
