"""Which answers agree: `core/rollout/comparison.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.comparison import agree


def agrees(old: Any, new: Any, kind: str, **more: Any) -> bool:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (old, new)]
    return agree(*bodies, AgreementSpec(kind=kind, **more))


def labelled(*scores: float) -> list[dict[str, Any]]:
    return [{"label": name, "score": score} for name, score in zip("abc", scores, strict=False)]


@pytest.mark.parametrize(
    ("old", "new", "yes"),
    [
        ({"score": 0.50}, {"score": 0.505}, True),
        ({"score": 0.50}, {"score": 0.52}, False),
        ([1000.0, 1.0], [1009.0, 1.0], True),
        ([1.0], [1.0, 1.0], False),
        ({"a": 1}, {"b": 1}, False),
        ({"label": "a", "score": 0.5}, {"label": "b", "score": 0.5}, False),
        (True, 1, False),
        (None, None, True),
        ({"id": "x1", "created": 5, "out": [1]}, {"id": "x2", "created": 6, "out": [1]}, True),
        (b'{"a":1,  "b":2}', b'{"b":2,"a":1}', True),
        (b"[NaN]", b"[NaN]  ", True),
        (b"no JSON", b"no json", False),
    ],
)
def test_scores_are_the_same_json_but_for_a_tolerance(old: Any, new: Any, yes: bool) -> None:
    assert agrees(old, new, "scores") is yes


@pytest.mark.parametrize(
    ("old", "new", "yes"),
    [
        ([[0.1, 0.7], [0.9, 0.2]], [[0.3, 0.4], [0.6, 0.5]], True),
        ([[0.1, 0.7], [0.9, 0.2]], [[0.3, 0.4], [0.4, 0.5]], False),
        (labelled(0.9, 0.1), list(reversed(labelled(0.6, 0.4))), True),
        (labelled(0.9, 0.1), labelled(0.4, 0.6), False),
        ({"label": "a"}, {"label": "b"}, False),
        ({"predictions": ["cat", "dog"]}, {"predictions": ["cat", "cow"]}, True),
        ({"outputs": [{"shape": [1, 2], "data": [0.2, 0.8]}]},
         {"outputs": [{"shape": [1, 2], "data": [0.4, 0.6]}]}, True),
        ({"text": 3}, {"text": 4}, False),
    ],
)  # fmt: skip
def test_classes_are_the_places_of_the_best(old: Any, new: Any, yes: bool) -> None:
    assert agrees(old, new, "classes") is yes


def test_rankings_have_the_same_order_of_the_first_places() -> None:
    old = {"results": [{"index": n, "relevance_score": 1 - n / 10} for n in range(6)]}
    swapped = json.loads(json.dumps(old))
    swapped["results"][4]["relevance_score"], swapped["results"][5]["relevance_score"] = 0.1, 0.2
    assert not agrees(old, swapped, "ranking", top=6)
    assert agrees(old, swapped, "ranking", top=4)
    assert not agrees([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], "ranking", top=1)


def test_texts_are_compared_by_their_tokens() -> None:
    old = {"choices": [{"message": {"content": "the cat sat on the mat."}}], "id": "a"}
    new = {"choices": [{"message": {"content": "the  cat sat on a mat."}}], "id": "b"}
    assert agrees(old, new, "text", tolerance=0.15), "one of seven"
    assert not agrees(old, new, "text", tolerance=0.14)
    assert agrees(b"one two", b"one  two", "text", tolerance=0.0)


def test_exact_means_the_bytes() -> None:
    assert agrees(b'{"a":1}', b'{"a":1}', "exact")
    assert not agrees(b'{"a":1}', b'{"a": 1}', "exact")


@pytest.mark.parametrize("kind", ["scores", "classes", "ranking", "text", "exact"])
def test_nothing_that_a_model_says_is_an_error(kind: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    strange = [b"", b"\xff\xfe", b"null", b"[]", b"{}", b"[[]]", b"[1, null]", b'[{"score": 1}]',
               b"1e999", b"[NaN, 1]", b'[{"label": [1], "score": 2}]', deep]  # fmt: skip
    for old in strange:
        assert agree(old, old, AgreementSpec(kind=kind))
        for new in strange:
            assert agree(old, new, AgreementSpec(kind=kind)) in (True, False)


def test_only_both_may_be_no_number() -> None:
    assert not agrees(b"[NaN, 1]", b"[2, 1]", "scores")
    assert not agrees(b"[2, 1]", b"[NaN, 1]", "scores")
    assert not agrees([1, 5, 3], [1, 2, 3], "scores"), "each element has to agree"


def test_a_label_is_a_class_where_its_object_has_no_score_and_nothing_inside() -> None:
    assert agrees({"label": "a", "took": 1}, {"label": "a", "took": 2}, "classes")
    nested = {"label": "a", "parts": [0.1, 0.9]}
    assert agrees(nested, {"label": "b", "parts": [0.2, 0.8]}, "classes"), "its parts decide"
    assert not agrees(nested, {"label": "a", "parts": [0.8, 0.2]}, "classes")
    both = {"model": "m", "outputs": [0.1, 0.9], "usage": [3, 1]}
    assert agrees(both, both | {"usage": [1, 3]}, "classes"), "what it took is no answer"
    assert not agrees([0.1, {"score": 1}], [0.1, {"score": 2, "x": [1, 2]}], "classes")
    assert agrees([["a", 1]], [["a", 2]], "classes") is agrees([["a", 1]], [["a", 2]], "ranking")


@pytest.mark.parametrize(
    ("old", "new", "distance"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a c", 1),
        ("a c", "a b c", 1),
        ("a b c", "a x c", 1),
        ("a b c d", "b c d e", 2),
        ("", "a b", 2),
        ("a b", "", 2),
        ("k i t t e n", "s i t t i n g", 3),
    ],
)
def test_texts_differ_by_what_was_put_in_taken_out_or_replaced(
    old: str, new: str, distance: int
) -> None:
    tokens = max(len(old.split()), len(new.split()))
    at, below = distance / tokens, (distance - 0.5) / tokens
    assert agrees(old.encode(), new.encode(), "text", tolerance=at)
    assert distance == 0 or not agrees(old.encode(), new.encode(), "text", tolerance=below)


@pytest.mark.parametrize("kind", ["classes", "ranking"])
def test_what_has_no_scores_has_to_be_the_same(kind: str) -> None:
    assert agrees({"done": True}, {"done": True, "id": 7}, kind)
    assert not agrees({"done": True}, {"done": False}, kind)
    assert not agrees({"done": True}, {"done": True, "scores": [0.1, 0.2]}, kind)
