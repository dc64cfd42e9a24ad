"""What the assistant's own steps make of questions, of what was found, and of what a model says."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.kit.servers import EXAMPLES

from penstock.errors import CallerError

for package in ("faiss", "bm25s"):
    pytest.importorskip(package, reason="the example's requirements are not installed")

ASSISTANT = EXAMPLES / "assistant"
NOWHERE = [0.0, 1.0]


@pytest.fixture(scope="module")
def steps() -> Iterator[ModuleType]:
    """`code/steps.py` as a pipeline's worker loads it."""
    before = list(sys.path)
    sys.path[:0] = [str(ASSISTANT), str(ASSISTANT / "pipeline" / "code")]
    spec = importlib.util.spec_from_file_location(
        "assistant_steps", ASSISTANT / "pipeline" / "code" / "steps.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


@pytest.fixture(scope="module")
def model(steps: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An index of 800 products whose vectors say nothing."""
    from catalogue import make_catalogue
    from retrieval import write

    folder: Path = tmp_path_factory.mktemp("index")
    products = [asdict(product) for product in make_catalogue(count=800)]
    write(folder / "index", products, np.ones((len(products), 2), dtype=np.float32))
    return steps.model_fn(str(folder))


def conversation(*said: str) -> list[dict[str, str]]:
    return [
        {"role": "assistant" if at % 2 else "user", "content": each} for at, each in enumerate(said)
    ]


def products_for(steps: ModuleType, model: Any, question: str, *said: str) -> list[dict[str, Any]]:
    asked = steps.asked({"question": question, "messages": conversation(*said)})
    words = steps.keywords(asked["search"], model)
    return list(steps.found(asked, words, NOWHERE, model)["products"])


@pytest.mark.parametrize(
    ("said", "question", "search"),
    [
        ((), "a red tent", "a red tent"),
        (("a red tent", "..."), "show me a rug", "show me a rug"),
        (("a red tent", "..."), "a blue one?", "tent a blue one?"),
        (
            ("a red tent under $90", "..."),
            "which is lighter?",
            "tent red under $90 which is lighter?",
        ),
        (("a red tent", "...", "a blue one?", "..."), "waterproof?", "tent blue waterproof?"),
        (("hello", "Hello!"), "how are you?", "how are you?"),
    ],
)
def test_a_search_goes_on_from_what_was_wanted(
    steps: ModuleType, said: tuple[str, ...], question: str, search: str
) -> None:
    asked = steps.asked({"question": question, "messages": conversation(*said)})
    assert asked["search"] == search


def test_what_is_said_outright_is_kept_while_there_is_enough_of_it(
    steps: ModuleType, model: Any
) -> None:
    rug = next(each for each in model.products if each["kind"] == "rug")
    limit = rug["price_cents"] // 100 + 1
    found = products_for(steps, model, f"a {rug['colour']} rug under ${limit}")
    assert len(found) == 4
    assert {each["kind"] for each in found} == {"rug"}
    fitting = [
        each["colour"] == rug["colour"] and each["price_cents"] <= limit * 100 for each in found
    ]
    assert fitting[0]
    assert fitting == sorted(fitting, reverse=True)


def test_it_and_they_are_the_products_that_were_named(steps: ModuleType, model: Any) -> None:
    first = products_for(steps, model, "a red tent")
    answer = f"Take the {first[0]['title']}, or the {first[2]['title']}."
    for question in ("compare the two", "which of them is cheaper?", "thanks"):
        again = products_for(steps, model, question, "a red tent", answer)
        assert [each["id"] for each in again][:2] == [first[0]["id"], first[2]["id"]]


def test_something_cheaper_costs_less_than_what_was_named(steps: ModuleType, model: Any) -> None:
    first = max(products_for(steps, model, "a tent"), key=lambda each: each["price_cents"])
    named, *others = products_for(
        steps, model, "a cheaper one?", "a tent", f"The {first['title']} is nice."
    )
    assert named["id"] == first["id"]
    assert others
    assert all(each["price_cents"] < first["price_cents"] for each in others)
    assert {each["kind"] for each in others} == {"tent"}


def test_small_talk_still_sees_what_there_is(steps: ModuleType, model: Any) -> None:
    assert len(products_for(steps, model, "hello")) == 4


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"question": 7},
        {"question": " "},
        {"question": "x" * 2001},
        {"question": "x", "messages": "y"},
        {"question": "x", "messages": [{"role": "user"}]},
        {"messages": [{"role": "assistant", "content": "x"}]},
    ],
)
def test_what_is_no_question_is_the_callers_fault(
    steps: ModuleType, request_: dict[str, Any]
) -> None:
    with pytest.raises(CallerError):
        steps.asked(request_)


def said(steps: ModuleType, *pieces: str) -> list[Any]:
    products = [{"id": f"p{at}", "title": f"Product {at}"} for at in (1, 2)]
    told = steps.say(products, iter([{"text": piece} for piece in pieces]))
    return [
        each["data"]["text"]
        if each["event"] == "text"
        else (each["data"]["id"], each["data"]["first"])
        for each in told
    ]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("the Alta [1] is",), ["the Alta", ("p1", True), " is"]),
        (("the Alta", " ", "[", "1", "]", " is"), ["the Alta", ("p1", True), " is"]),
        (("A [1], B [2], A [1]",), ["A", ("p1", True), ", B", ("p2", True), ", A", ("p1", False)]),
        (("gone [7].",), ["gone", "."]),
        (("an array [x] ", "stays"), ["an array [x]", " stays"]),
        (("open [", "end"), ["open", " [end"]),
        (("at the end [",), ["at the end", " ["]),
    ],
)
def test_markers_become_mentions_however_the_text_is_cut(
    steps: ModuleType, pieces: tuple[str, ...], expected: list[Any]
) -> None:
    assert said(steps, *pieces) == expected


def test_a_model_that_says_nothing_leaves_the_list(steps: ModuleType) -> None:
    assert said(steps) == [
        "Here is what the shop has:", " Product 1", ("p1", True), " Product 2", ("p2", True),
    ]  # fmt: skip


def test_only_first_mentions_are_looked_up(steps: ModuleType) -> None:
    mention = {"id": "p1", "title": "T", "number": 1}
    pieces = [
        {"event": "mention", "data": {**mention, "first": True}},
        {"event": "text", "data": {"text": "x"}},
        {"event": "mention", "data": {**mention, "first": False}},
    ]
    assert list(steps.named(iter(pieces))) == [{"id": "p1", "title": "T"}]
