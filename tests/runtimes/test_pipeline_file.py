"""pipeline.yaml: what may stand there, and errors that name the file, the key and the remedy."""

from __future__ import annotations

import pytest

from penstock.core.pipeline.spec import PipelineEvent
from penstock.errors import CallerError
from penstock.runtimes.pipeline.file import read_pipeline

WHOLE = """
schema: 1
code: code/shop.py
threads: 2
requests_max: 9
deadline_s: 30
steps:
  - name: find
    python: {function: find}
    inputs: {question: $request.question}
    deadline_s: 1.5
    fallback: {say: The search is down., result: {products: []}}
  - name: answer
    endpoint: {name: writer, operation: chat, stream: true}
    inputs: {messages: $find.messages}
    first_s: 3
    emit: [{kind: text, data: {text: $piece.text}, count: sentences}]
  - name: cards
    grpc: {target: "${CATALOGUE}", method: /shop.Catalogue/Cards, descriptors: shop.binpb}
    follows: find
    each: true
    calls_max: 3
    needs: [stock]
    inputs: {id: $piece.id}
    emit: [{kind: product, data: $piece, after: {step: answer, position: $piece.at?}}]
    fallback: skip
  - name: stock
    http: {url: "http://${STOCK:-127.0.0.1:9000}/all", method: GET, headers: {x-shop: main}}
    fallback: {kind: text, data: {text: Sorry.}}
"""


def test_a_whole_pipeline_is_read() -> None:
    file = read_pipeline(WHOLE.encode(), {"CATALOGUE": "127.0.0.1:7000"})
    assert (file.code, file.threads, file.requests_max, file.deadline_s) == (
        "code/shop.py",
        2,
        9,
        30.0,
    )
    find, answer, cards, stock = file.steps.values()
    assert (find.way, find.target, find.result) == ("python", "find", {"products": []})
    assert find.spec.deadline_s == 1.5
    assert find.spec.fallback == (
        PipelineEvent("notice", {"step": "find", "message": "The search is down."}, advance=1),
    )
    assert find.result_wanted
    assert answer.spec.needs == ("find",), "from its inputs"
    assert (answer.target, answer.operation, answer.stream) == ("writer", "chat", True)
    assert answer.spec.fallback is None, "the step must do"
    assert not answer.result_wanted
    assert (cards.target, cards.operation) == ("127.0.0.1:7000", "shop.Catalogue/Cards")
    assert (cards.spec.follows, cards.spec.each, cards.spec.calls_max) == ("find", True, 3)
    assert cards.spec.needs == ("stock",)
    assert cards.spec.fallback == (PipelineEvent("notice", {"step": "cards"}, advance=1),)
    assert (stock.target, stock.operation) == ("http://127.0.0.1:9000/all", "GET")
    assert stock.headers == (("x-shop", "main"),)
    assert stock.spec.fallback == (PipelineEvent("text", {"text": "Sorry."}, advance=1),)


def step(more: str) -> str:
    return "schema: 1\nsteps:\n  - {name: a, value: 1}\n  - {" + more + "}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: 2\nsteps: []", "schema is 2"),
        ("schema: 1", "steps is None"),
        ("schema: 1\nsteps: []", "steps is 0"),
        ("schema: 1\nspeed: 9\nsteps: [{name: a, value: 1}]", "unknown key speed"),
        (step("name: A, value: 1"), "steps[1].name is 'A'"),
        (step("name: request, value: 1"), "steps[1].name is 'request'"),
        (step("name: a, value: 1"), "two steps are called 'a'"),
        (step("name: b"), "steps[1].name is None"),
        (step("name: b, value: 1, http: {url: x}"), "['http', 'value']"),
        (step("name: b, value: 1, colour: red"), "unknown key steps[1].colour"),
        (step("name: b, value: $c.x"), "step 'b' takes what 'c' makes"),
        (step("name: b, value: $b.x"), "steps[1].inputs is '$b'"),
        (step("name: b, value: $a..x"), "steps[1].value is '$a..x'"),
        (step("name: b, value: $piece"), "steps[1].inputs is '$piece'"),
        (step("name: b, value: 1, each: true"), "steps[1].each is True"),
        (step("name: b, value: 1, follows: x"), "takes what 'x' makes"),
        (step("name: b, value: 1, deadline_s: 0"), "steps[1].deadline_s is 0"),
        (step("name: b, value: 1, emit: all"), "steps[1].emit is 'all'"),
        (step("name: b, value: 1, emit: [{kind: done}]"), "steps[1].emit[0].kind is 'done'"),
        (step("name: b, value: 1, emit: [{data: 1}]"), "steps[1].emit[0].kind is None"),
        (
            step("name: b, value: 1, emit: [{kind: x, count: words}]"),
            "steps[1].emit[0].count is 'words'",
        ),
        (step("name: b, value: 1, emit: [{kind: x, after: c}]"), "steps[1].emit[0].after is 'c'"),
        (step("name: b, value: 1, emit: [{kind: x, after: b}]"), "steps[1].emit[0].after is 'b'"),
        (step("name: b, value: 1, fallback: {data: 1}"), "steps[1].fallback.data is 1"),
        (step("name: b, value: 1, fallback: none"), "steps[1].fallback is 'none'"),
        (step("name: b, http: {url: 'https://x'}"), "steps[1].http.url is 'https://x'"),
        (step("name: b, http: {url: '${GONE}'}"), "steps[1].http.url is '${GONE}'"),
        (step("name: b, endpoint: {name: x, operation: sing}"), "endpoint.operation is 'sing'"),
        (
            step("name: b, grpc: {target: x, method: Cards, descriptors: x}"),
            "steps[1].grpc.method is 'Cards'",
        ),
        (
            step("name: b, grpc: {target: x, method: a/b}"),
            "steps[1].grpc.descriptors is None",
        ),
        (step("name: b, python: {}"), "steps[1].python.function is None"),
        (
            step("name: b, value: $c}\n  - {name: c, value: $b"),
            "the steps b, c wait for one another",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(text: str, words: str) -> None:
    with pytest.raises(CallerError) as caught:
        read_pipeline(text.encode(), {})
    assert caught.value.message.startswith("pipeline.yaml: ")
    assert words in caught.value.message
    assert caught.value.hint


def one_step(more: str) -> bytes:
    return f"schema: 1\nsteps:\n  - {{name: a, model: {{folder: models/a}}, {more}}}".encode()


def test_a_step_of_a_model_has_a_condition_that_its_request_must_meet() -> None:
    file = read_pipeline(one_step("when: {value: $request.kind, is: [1, small, null]}"), {})
    step = file.steps["a"]
    assert (step.way, step.target) == ("model", "models/a")
    assert step.when is not None
    for kind, holds in ((1, True), ("small", True), (None, True), ("1", False), (True, False)):
        assert step.when.holds({"request": {"kind": kind}}) is holds


def test_a_condition_on_another_step_waits_for_it() -> None:
    declared = one_step("when: {value: $b.kind, is: x}") + b"\n  - {name: b, value: {kind: x}}"
    file = read_pipeline(declared, {})
    assert file.steps["a"].spec.needs == ("b",)
    assert file.steps["b"].result_wanted


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("when: {value: $request.kind}", "steps[0].when.is"),
        ("when: {value: small, is: small}", "steps[0].when.value"),
        ("when: {value: $piece.kind, is: small}", "steps[0].when.value"),
        ("when: {value: $request.kind, is: a, not: b}", "steps[0].when.not"),
        ("when: always", "steps[0].when"),
    ],
)
def test_a_wrong_condition_names_its_key(more: str, words: str) -> None:
    with pytest.raises(CallerError) as raised:
        read_pipeline(one_step(more), {})
    assert raised.value.message.startswith("pipeline.yaml: ")
    assert words in raised.value.message
