"""Outputs of a model to results of a head, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.artifacts.description.description import Embedding, Head
from penstock.errors import ModelError
from penstock.instance.engines.text import checked_head, result

LABELS = Head(name="", task="classification", output="o", labels=("a", "b"))
NUMBERS = Head(name="", task="regression", output="o")
VECTORS = Head(name="", task="embedding", output="o")
MASK = np.array([[1, 1, 0], [1, 0, 0]])


def rows(*values: object) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_classification_is_a_softmax_of_each_row() -> None:
    scores = result(LABELS, rows([0.0, 0.0], [1000.0, 0.0]), MASK, None)
    assert scores.tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_a_single_logit_is_a_binary_classifiers() -> None:
    scores = result(LABELS, rows([0.0], [40.0]), MASK, None)
    assert scores.tolist() == [[0.5], [1.0]]


@pytest.mark.parametrize("output", [rows(1.5, -2.0), rows([1.5], [-2.0])])
def test_regression_is_the_models_number(output: np.ndarray) -> None:
    assert result(NUMBERS, output, MASK, None).tolist() == [[1.5], [-2.0]]


TOKENS = rows([[2.0, 0.0], [4.0, 2.0], [9.0, 9.0]], [[0.0, 3.0], [9.0, 9.0], [9.0, 9.0]])


def test_the_mean_of_token_vectors_leaves_padding_out() -> None:
    pooled = result(VECTORS, TOKENS, MASK, Embedding(normalize=False))
    assert pooled.tolist() == [[3.0, 1.0], [0.0, 3.0]]


def test_the_first_tokens_vector_may_stand_for_the_text() -> None:
    pooled = result(VECTORS, TOKENS, MASK, Embedding(pooling="cls", normalize=False))
    assert pooled.tolist() == [[2.0, 0.0], [0.0, 3.0]]


def test_vectors_have_length_1_unless_the_description_says_otherwise() -> None:
    assert result(VECTORS, rows([3.0, 4.0], [0.0, 0.0]), MASK, None).tolist() == [
        pytest.approx([0.6, 0.8]),
        [0.0, 0.0],
    ]


def test_a_head_is_completed_from_the_shapes_that_the_model_has() -> None:
    outputs = {"first": (1, 2), "second": (1,)}
    unnamed = Head(name="", task="classification", output="")
    assert checked_head(unnamed, outputs) == Head(
        name="", task="classification", output="first", labels=("LABEL_0", "LABEL_1")
    )
    number = Head(name="n", task="regression", output="second")
    assert checked_head(number, outputs).labels == ("LABEL_0",)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (Head(name="h", task="regression", output="missing"), "output-missing"),
        (Head(name="h", task="embedding", output="second"), "output-mismatch"),
        (Head(name="h", task="classification", output="o", labels=("a",)), "labels-mismatch"),
        (Head(name="", task="regression", output="o", labels=("a",)), "labels-mismatch"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(head: Head, code: str) -> None:
    with pytest.raises(ModelError) as caught:
        checked_head(head, {"o": (-1, 2), "second": (-1,)})
    assert caught.value.code == code
    assert caught.value.hint
