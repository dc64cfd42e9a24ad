"""When a compiled model is its source's equal: the rule itself, on answers written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.artifacts.description.description import Head, ModelDescription
from penstock.compile.contract import Parity, Tolerance
from penstock.compile.libraries import need
from penstock.compile.proof.parity import compare
from penstock.errors import CallerError

TIGHT = Tolerance(difference_max=0.01, difference_mean=0.005, agreement_min=1.0)
CLASSIFIER = ModelDescription(runtime="openvino", task="text-classification", labels=("a", "b"))


def compared(theirs: list[list[float]], ours: list[list[float]], task: str = "") -> Parity:
    description = ModelDescription(runtime="openvino", task=task) if task else CLASSIFIER
    return compare([{"y": np.array(theirs)}], [{"y": np.array(ours)}], description, TIGHT)


def test_equal_answers_are_equal() -> None:
    parity = compared([[2.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 2.0]])
    assert parity.failures() == ()
    assert (parity.samples, parity.agreement, parity.difference_max) == (2, 1.0, 0.0)


def test_classifiers_are_compared_by_probability_not_by_logit() -> None:
    """A constant added to all logits changes no probability."""
    assert compared([[2.0, 0.0]], [[12.0, 10.0]]).failures() == ()


def test_another_label_is_a_failure_with_its_numbers() -> None:
    failures = compared([[2.0, 0.0], [2.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]]).failures()
    assert "agreement 0.5000 (1.0000 needed)" in failures
    assert failures[0].startswith("largest difference 0.76")


def test_a_label_that_the_source_itself_hardly_decides_counts_neither_way() -> None:
    parity = compared([[0.001, 0.0]], [[0.0, 0.001]])
    assert parity.agreement is None
    assert parity.failures() == ()


def test_a_nan_is_never_parity() -> None:
    assert compared([[2.0, 0.0]], [[float("nan"), 0.0]]).failures()


def test_answers_of_another_shape_are_never_parity() -> None:
    assert compared([[2.0, 0.0]], [[2.0, 0.0, 0.0]]).failures()


def test_embeddings_are_compared_by_direction() -> None:
    assert compared([[3.0, 4.0]], [[6.0, 8.0]], "feature-extraction").failures() == ()
    assert compared([[1.0, 0.0]], [[0.0, 1.0]], "feature-extraction").difference_max == 1.0


def test_numbers_are_compared_in_relation_to_the_largest() -> None:
    parity = compared([[1000.0], [0.0]], [[1005.0], [0.0]], "text-regression")
    assert parity.difference_max == 0.005
    assert parity.failures() == ()


def test_the_worst_head_decides() -> None:
    description = ModelDescription(
        runtime="openvino",
        task="multi-head",
        heads=(
            Head(name="same", task="classification", output="same", labels=("no", "yes")),
            Head(name="price", task="regression", output="price"),
        ),
    )
    theirs = {"same": np.array([[2.0, 0.0]]), "price": np.array([[1.0]])}
    ours = {"same": np.array([[2.0, 0.0]]), "price": np.array([[2.0]])}
    parity = compare([theirs], [ours], description, TIGHT)
    assert (parity.difference_max, parity.agreement) == (1.0, 1.0)


def test_a_missing_library_is_named_with_what_to_install() -> None:
    with pytest.raises(CallerError) as caught:
        need("a_library_that_is_nowhere")
    assert caught.value.code == "compile-not-installed"
    assert "[compile]" in caught.value.hint
