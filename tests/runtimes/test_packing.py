"""Encoders whose texts may lie side by side, and those where that would change an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from openvino import opset13 as ops

from penstock.runtimes.openvino.packing import NotPacked, packed, verify
from penstock.runtimes.openvino.runtime import shared_core
from penstock.runtimes.packed_rows import placed_texts

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "query_intent"
WIDTH = 8
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
NUMBERS = np.random.default_rng(7)
WEIGHTS = {
    name: NUMBERS.normal(size=size).astype(np.float32)
    for name, size in (
        ("words", (50, WIDTH)), ("positions", (70, WIDTH)), ("q", (WIDTH, WIDTH)),
        ("k", (WIDTH, WIDTH)), ("v", (WIDTH, WIDTH)), ("head", (WIDTH, 3)),
    )
}  # fmt: skip


def encoder(
    *,
    positions: Callable[[Any, Any], Any] | None = None,
    mask: Callable[[Any, Any], Any] | None = None,
    pool: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """One layer of attention, as small as encoders are; with what a case has in the place of
    embeddings of places, an additive mask, and a head on the first token."""
    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    given = ops.parameter([-1, -1], np.int64, name="attention_mask")
    for each in (ids, given):
        each.output(0).get_tensor().set_names({each.get_friendly_name()})
    x = ops.gather(ops.constant(WEIGHTS["words"]), ids, np.int64(0))
    x = ops.add(x, (positions or by_length)(ids, given))
    q, k, v = (ops.matmul(x, ops.constant(WEIGHTS[name]), False, False) for name in "qkv")
    one = np.array([1])
    scores = ops.matmul(ops.unsqueeze(q, one), ops.unsqueeze(k, one), False, True)
    scores = ops.add(scores, (mask or additive)(given, scores))
    x = ops.add(
        x,
        ops.squeeze(ops.matmul(ops.softmax(scores, -1), ops.unsqueeze(v, one), False, False), one),
    )
    answer = (pool or of_first)(x, given)
    result = ops.result(answer)
    answer.output(0).get_tensor().set_names({"answer"})
    return openvino.Model([result], [ids, given], "encoder")


# Places


def _length(ids: Any) -> Any:
    return ops.gather(ops.shape_of(ids), np.array([1]), np.int64(0))


def by_length(ids: Any, given: Any) -> Any:
    """BERT: the first rows of a table."""
    zero, one = np.array([0]), np.array([1])
    rows = ops.slice(ops.constant(WEIGHTS["positions"]), zero, _length(ids), one, zero)
    return ops.unsqueeze(rows, zero)


def counted(ids: Any, given: Any) -> Any:
    """RoBERTa: tokens are counted, from 2; padding has place 1."""
    used = ops.convert(ops.not_equal(ids, np.int64(1)), "i64")
    places = ops.add(ops.multiply(ops.cum_sum(used, np.int64(1)), used), np.int64(1))
    return ops.gather(ops.constant(WEIGHTS["positions"]), places, np.int64(0))


def of_neighbours(ids: Any, given: Any) -> Any:
    """Not an encoder's: every text's first place depends on how many follow."""
    rows = by_length(ids, given)
    return ops.multiply(rows, ops.convert(_length(ids), "f32"))


# Masks


def additive(given: Any, scores: Any) -> Any:
    used = ops.unsqueeze(ops.convert(given, "f32"), np.array([1, 2]))
    return ops.multiply(ops.subtract(np.float32(1), used), np.float32(-10000))


def chosen(given: Any, scores: Any) -> Any:
    used = ops.unsqueeze(ops.convert(given, "boolean"), np.array([1, 2]))
    return ops.select(used, np.float32(0), np.float32(-1e9))


def windowed(given: Any, scores: Any) -> Any:
    """A token sees its ten neighbours only."""
    places = ops.range(np.int64(0), ops.squeeze(_length(given), np.array([0])), np.int64(1), "i64")
    far = ops.subtract(ops.unsqueeze(places, np.array([0])), ops.unsqueeze(places, np.array([1])))
    near = ops.less(ops.abs(far), np.int64(10))
    used = ops.unsqueeze(ops.convert(given, "boolean"), np.array([1, 2]))
    return ops.select(ops.logical_and(used, near), np.float32(0), np.float32(-1e9))


# Heads


def of_first(x: Any, given: Any) -> Any:
    return ops.matmul(
        ops.gather(x, np.int64(0), np.int64(1)), ops.constant(WEIGHTS["head"]), False, False
    )


def of_first_sliced(x: Any, given: Any) -> Any:
    zero, one = np.array([0]), np.array([1])
    first = ops.squeeze(ops.slice(x, zero, one, one, one), one)
    return ops.matmul(first, ops.constant(WEIGHTS["head"]), False, False)


def of_first_at_length_one(x: Any, given: Any) -> Any:
    """A sum over a vector's own numbers is none over tokens."""
    vector = of_first(x, given)
    square = ops.reduce_sum(ops.multiply(vector, vector), np.array([1]), True)
    return ops.divide(vector, ops.sqrt(square))


def of_tokens(x: Any, given: Any) -> Any:
    return x


def mean(x: Any, given: Any) -> Any:
    used = ops.unsqueeze(ops.convert(given, "f32"), np.array([2]))
    return ops.divide(
        ops.reduce_sum(ops.multiply(x, used), np.array([1])), ops.reduce_sum(used, np.array([1]))
    )


def mean_by_length(x: Any, given: Any) -> Any:
    """The mask as wide as the tokens, and counted without its last dimension."""
    used = ops.convert(given, "f32")
    wide = ops.broadcast(ops.unsqueeze(used, np.array([2])), ops.shape_of(x))
    summed = ops.reduce_sum(ops.multiply(x, wide), np.array([-2]))
    count = ops.maximum(ops.reduce_sum(used, np.array([1]), True), np.float32(1))
    return ops.divide(summed, count)


def largest(x: Any, given: Any) -> Any:
    used = ops.unsqueeze(ops.convert(given, "f32"), np.array([2]))
    far = ops.multiply(ops.subtract(np.float32(1), used), np.float32(-1e9))
    return ops.reduce_max(ops.add(x, far), np.array([1]))


def shifted(x: Any, given: Any) -> Any:
    """Each token with the one before it: the neighbour may be another text's."""
    pads = np.array([0, 1, 0]), np.array([0, -1, 0])
    before = ops.pad(x, *pads, "constant", np.float32(0))
    return ops.add(x, before)


@pytest.mark.parametrize("positions", [by_length, counted])
@pytest.mark.parametrize("mask", [additive, chosen])
@pytest.mark.parametrize(
    "pool", [of_first, of_first_sliced, of_first_at_length_one, of_tokens, mean, mean_by_length]
)
def test_answers_are_those_of_each_text_alone(positions: Any, mask: Any, pool: Any) -> None:
    def model() -> Any:
        return encoder(positions=positions, mask=mask, pool=pool)

    made = packed(model())
    verify(model(), made, EXACT)
    texts = [NUMBERS.integers(5, 50, size).tolist() for size in (9, 3, 21, 64, 1, 40)]
    placed = placed_texts([len(text) for text in texts])
    assert placed is not None
    together = shared_core().compile_model(made.model, "CPU", EXACT)
    outputs = together(placed.inputs(made.layout, {"input_ids": texts}, 32))
    found = placed.outputs(made.layout, {"answer": np.array(outputs[0])})["answer"]
    alone = shared_core().compile_model(model(), "CPU", EXACT)
    for row, text in zip(found, texts, strict=True):
        expected = np.array(alone([np.array([text]), np.ones((1, len(text)), np.int64)])[0])[0]
        own = row[: len(text)] if pool is of_tokens else row
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-4)
    assert made.layout.of_rows == (pool is not of_tokens,)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"positions": of_neighbours}, "in a way of its own"),
        ({"mask": windowed}, "not one of tokens alone"),
        ({"pool": largest}, "pools by ReduceMax"),
    ],
)
def test_what_can_not_be_packed_is_refused_with_its_reason(case: Any, why: str) -> None:
    with pytest.raises(NotPacked, match=why):
        packed(encoder(**case))


def test_a_change_that_looks_right_and_is_not_is_found_by_trying() -> None:
    """Nothing in the graph says that a neighbour's value must be of the same text."""
    made = packed(encoder(pool=shifted))
    with pytest.raises(NotPacked, match="answers differ"):
        verify(encoder(pool=shifted), made, EXACT)


def test_no_number_is_no_answer() -> None:
    """What divides by zero where nobody's token is a text's."""

    def broken(x: Any, given: Any) -> Any:
        used = ops.unsqueeze(ops.convert(given, "f32"), np.array([2]))
        return ops.matmul(
            ops.gather(ops.divide(x, used), np.int64(0), np.int64(1)),
            ops.constant(np.full((WIDTH, 3), np.nan, dtype=np.float32)), False, False,
        )  # fmt: skip

    made = packed(encoder(pool=broken))
    with pytest.raises(NotPacked, match="answers differ"):
        verify(encoder(pool=broken), made, EXACT)


def test_a_graph_of_other_inputs_is_refused() -> None:
    x = ops.parameter([-1, 4], np.float32, name="x")
    x.output(0).get_tensor().set_names({"x"})
    with pytest.raises(NotPacked, match="inputs are x"):
        packed(openvino.Model([ops.result(ops.relu(x))], [x], "m"))


def test_the_example_is_packed() -> None:
    """A trained BERT with rounded arithmetic, as a compiler wrote it."""
    file = str(EXAMPLE / "artifact" / "model.xml")
    made = packed(shared_core().read_model(file))
    verify(shared_core().read_model(file), made, EXACT)
    assert made.layout.inputs == ("input_ids", "positions", "texts", "first")
