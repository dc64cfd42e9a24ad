"""References in a pipeline's declaration, and text cut into sentences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CallerError, ModelError, PenstockError
from penstock.runtimes.pipeline.events import Sentences
from penstock.runtimes.pipeline.templates import Template, from_environment

SCOPE: dict[str, Any] = {
    "request": {"question": "A kettle?", "n": 2},
    "find": {"products": [{"id": "p1"}, {"id": "p2"}]},
    "skipped": None,
}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        (5, 5),
        ("plain", "plain"),
        ("$request", SCOPE["request"]),
        ("$find.products[1].id", "p2"),
        ("$skipped.anything[3].at_all", None),
        ("$request.history?", None),
        ("$$5", "$5"),
        ("It costs $5", "It costs $5"),
        ("${request.question} (${request.n}, ${find.products[0]})", 'A kettle? (2, {"id":"p1"})'),
        ({"a": ["$request.n", {"b": "$request.n"}]}, {"a": [2, {"b": 2}]}),
    ],
)
def test_references_are_filled_in(value: Any, filled: Any) -> None:
    assert Template(value).fill(SCOPE) == filled


def test_a_template_knows_what_it_refers_to() -> None:
    value = {"a": "$find.products", "b": ["${request.question} and $skipped"]}
    assert Template(value).names == {"find", "request"}


@pytest.mark.parametrize(
    ("value", "whose"),
    [
        ("$request.history", CallerError),
        ("$request.n.x", CallerError),
        ("$find.products[2]", ModelError),
        ("$find.products.first", ModelError),  # a list: a TypeError
    ],
)
def test_a_key_that_is_missing_is_an_error_of_whoever_gave_the_value(
    value: str, whose: type[PenstockError]
) -> None:
    with pytest.raises(whose, match="is needed, and"):
        Template(value).fill(SCOPE)


@pytest.mark.parametrize("value", ["$", "$A", "$a.", "$a[x]", "$a b"])
def test_what_is_no_reference_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is no reference"):
        Template(value)


def test_places_come_from_the_environment() -> None:
    assert from_environment("${HOST}:${PORT:-80}", {"HOST": "shop"}) == "shop:80"
    with pytest.raises(KeyError):
        from_environment("${HOST}", {})


@pytest.mark.parametrize(
    ("pieces", "cuts"),
    [
        (["One. Two"], [("One. ", True), ("Two", False)]),
        (["One.", " Two."], [("One.", False), (" ", True), ("Two.", False)]),
        (["3.5 litres"], [("3.5 litres", False)]),
        (['He said "no!" And'], [('He said "no!" ', True), ("And", False)]),
        (["a line\nanother"], [("a line\n", True), ("another", False)]),
        (["Wait... ", " Yes"], [("Wait... ", True), (" Yes", False)]),
        ([""], []),
    ],
)
def test_sentences_end_behind_their_mark_and_its_space(
    pieces: list[str], cuts: list[tuple[str, bool]]
) -> None:
    sentences = Sentences()
    assert [cut for piece in pieces for cut in sentences.cut(piece)] == cuts


@given(st.lists(st.text(alphabet='ab.!? \n"')))
def test_cutting_loses_nothing_and_counts_the_same_however_text_comes(pieces: list[str]) -> None:
    whole = "".join(pieces)
    sentences = Sentences()
    cuts = [cut for piece in pieces for cut in sentences.cut(piece)]
    assert "".join(part for part, _ in cuts) == whole
    ends = sum(complete for _, complete in Sentences().cut(whole))
    assert sum(complete for _, complete in cuts) == ends
