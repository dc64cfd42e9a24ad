"""Every family and every text task, compiled and asked beside transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from served import ServedModel, transformers_answer

from penstock.compile.build import compile_model
from penstock.compile.contract import Options

FP32 = Options(target="cpu-fp32", measure_s=0.0, threads=1)
LABELS = {0: "buy", 1: "track", 2: "return"}


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_a_classifier_of_each_family_answers_as_in_transformers(
    family: str, tmp_path: Path
) -> None:
    model = tiny_models.save(tmp_path / "source", family, id2label=LABELS)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    texts = tiny_models.TEXTS
    expected = transformers_answer(model, served.encoded(texts)).logits.numpy()
    assert np.ptp(expected, axis=0).max() > 0.05  # the texts are told apart at all
    np.testing.assert_allclose(served.ask(texts), expected, atol=2e-4)
    assert served.description.task == "text-classification"
    assert served.description.labels == ("buy", "track", "return")


def test_an_answer_depends_on_no_batch_mate(tmp_path: Path) -> None:
    tiny_models.save(tmp_path / "source", "roberta", id2label=LABELS)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    alone = np.concatenate([served.ask([text]) for text in tiny_models.TEXTS])
    np.testing.assert_allclose(served.ask(tiny_models.TEXTS), alone, atol=1e-4)


def test_two_texts_are_told_apart_by_their_segments(tmp_path: Path) -> None:
    model = tiny_models.save(tmp_path / "source", "bert", id2label={0: "different", 1: "same"})
    options = Options(target="cpu-fp32", task="pair-classification", measure_s=0.0)
    compile_model(tmp_path / "source", tmp_path / "out", options)
    served = ServedModel(tmp_path / "out")
    pairs = [("red shoes", "running shoes"), ("a", "where is my package"), ("a", "a")]
    expected = transformers_answer(model, served.encoded(pairs), types=True).logits.numpy()
    np.testing.assert_allclose(served.ask(pairs), expected, atol=2e-4)
    assert [spec.name for spec in served.description.inputs][2:] == ["token_type_ids"]
    assert served.description.task == "pair-classification"


def test_a_single_output_is_a_regression(tmp_path: Path) -> None:
    model = tiny_models.save(tmp_path / "source", "distilbert", num_labels=1)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    expected = transformers_answer(model, served.encoded(tiny_models.TEXTS)).logits.numpy()
    np.testing.assert_allclose(served.ask(tiny_models.TEXTS), expected, atol=2e-4)
    assert served.description.task == "text-regression"


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_a_cross_encoder_scores_pairs_with_its_own_activation(
    activation: str, tmp_path: Path
) -> None:
    settings = {"version": "5.0", "activation_fn": f"torch.nn.modules.activation.{activation}"}
    model = tiny_models.save(
        tmp_path / "source", "bert", num_labels=1, sentence_transformers=settings
    )
    report = compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    pairs = [("red shoes", "running shoes"), ("a", "where is my package")]
    logits = transformers_answer(model, served.encoded(pairs), types=True).logits
    expected = logits.sigmoid() if activation == "Sigmoid" else logits
    np.testing.assert_allclose(served.ask(pairs), expected.numpy(), atol=2e-4)
    assert served.description.task == "text-regression"
    assert any("pairs of texts" in note for note in report["notes"])


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_a_sentence_encoder_pools_and_normalises_as_it_was_saved(
    pooling: str, normalize: bool, tmp_path: Path
) -> None:
    model = tiny_models.sentence_encoder(tmp_path / "source", pooling=pooling, normalize=normalize)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    arrays = served.encoded(tiny_models.TEXTS)
    hidden = transformers_answer(model, arrays).last_hidden_state.numpy()
    mask = arrays["attention_mask"][:, :, None]
    expected = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    if normalize:
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(served.ask(tiny_models.TEXTS), expected, atol=2e-4)
    embedding = served.description.embedding
    assert embedding is not None
    assert (embedding.pooling, embedding.normalize) == (pooling, normalize)


def test_a_dense_layer_after_pooling_is_part_of_the_graph(tmp_path: Path) -> None:
    tiny_models.sentence_encoder(tmp_path / "source", pooling="mean", normalize=True, dense=8)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    vectors = ServedModel(tmp_path / "out").ask(tiny_models.TEXTS)
    assert vectors.shape == (5, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_a_bare_backbone_gives_mean_pooled_vectors_and_says_so(tmp_path: Path) -> None:
    tiny_models.save(tmp_path / "source", "electra", "ForMaskedLM")
    report = compile_model(tmp_path / "source", tmp_path / "out", FP32)
    assert ServedModel(tmp_path / "out").description.task == "feature-extraction"
    assert any("mean pooling" in note for note in report["notes"])


def test_long_texts_are_cut_where_positions_end(tmp_path: Path) -> None:
    """RoBERTa counts positions from its padding id on: 66 rows of the table are 64 tokens."""
    tiny_models.save(tmp_path / "source", "roberta", id2label=LABELS)
    compile_model(tmp_path / "source", tmp_path / "out", FP32)
    served = ServedModel(tmp_path / "out")
    assert served.description.tokenizer is not None
    assert served.description.tokenizer.tokens_max == 64
    assert served.description.batching.buckets == (8, 16, 32, 64)
    assert np.isfinite(served.ask(["shoes " * 500])).all()


def test_a_checkpoint_in_bf16_is_compared_with_its_fp32_answers(tmp_path: Path) -> None:
    model = tiny_models.save(tmp_path / "source", "bert", id2label=LABELS)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    report = compile_model(tmp_path / "source", tmp_path / "out", FP32)
    assert report["parity"]["difference_max"] < 1e-3
