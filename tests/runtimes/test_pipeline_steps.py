"""Pipelines against real services on loopback: slow, broken and dead ones among them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.kit.pipeline_services import Catalogue, Writer, served

from penstock.core.request.trace_context import TraceContext
from penstock.errors import PenstockError
from penstock.runtimes.base import Asking
from penstock.wire.span_notes import SpanScope, read_told

ANSWER = """
  - name: answer
    endpoint: {name: writer, operation: chat, stream: true}
    inputs: {messages: [{role: user, content: $request.question}]}
    emit: [{kind: text, data: {text: $piece.text}, count: sentences}]
"""
CARD = """
  - name: card
    grpc: {target: "${CATALOGUE}", method: shop.Catalogue/Card, descriptors: shop.binpb}
    inputs: {id: $request.id}
    deadline_s: 10
    emit: [{kind: product, data: $piece, after: {step: answer, position: 1}}]
    fallback: {say: The catalogue is down.}
"""
ASSISTANT = "schema: 1\nsteps:" + ANSWER + CARD


def places(writer: Writer, catalogue: Catalogue | None = None) -> dict[str, str]:
    target = catalogue.target if catalogue else "127.0.0.1:1"
    return {"PENSTOCK_URL": writer.url, "CATALOGUE": target}


async def test_text_flows_as_it_is_written_and_the_card_comes_behind_its_sentence(
    tmp_path: Path,
) -> None:
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        catalogue.go.set()
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await writer.say("Take")
        await shown.until(lambda: shown.said() == [("text", {"text": "Take"})])
        await shown.until(lambda: shown.held("card") == 1)  # it waits for its sentence
        await writer.say(" this. It is")
        await writer.say(" good.")
        await writer.end()
        assert (await shown.over())["f"] == "done"
        assert shown.said()[:-1] == [
            ("text", {"text": "Take"}),
            ("text", {"text": " this. "}),
            ("product", {"id": "kettle", "title": "the kettle"}),
            ("text", {"text": "It is"}),
            ("text", {"text": " good."}),
        ]
        assert shown.said()[-1] == (
            "done",
            {"events": 5, "steps": {"answer": "done", "card": "done"}},
        )
        assert writer.paths == ["/endpoints/writer/openai/v1/chat/completions"]
        assert writer.bodies[0]["stream"] is True


async def test_a_service_that_dies_in_the_middle_is_said_and_the_text_goes_on(
    tmp_path: Path,
) -> None:
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await writer.say("Take ")
        await shown.until(lambda: catalogue.asked == ["kettle"])
        await catalogue.stop()
        await shown.until(lambda: "notice" in shown.kinds())
        await writer.say("this.")
        await writer.end()
        await shown.over()
        assert shown.kinds() == ["text", "notice", "text", "done"]
        assert shown.said()[1][1] == {
            "step": "card",
            "message": "The catalogue is down.",
            "reason": "step-unavailable",
        }


async def test_a_slow_service_is_given_up_and_told_so(tmp_path: Path) -> None:
    declared = ASSISTANT.replace("deadline_s: 10", "deadline_s: 0.05")
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, declared, environment=places(writer, catalogue)) as shown,
    ):
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await shown.until(lambda: "notice" in shown.kinds())
        await writer.say("Take this.")
        await writer.end()
        await shown.over()
        assert shown.said()[0][1]["reason"] == "deadline-passed"


async def test_a_client_that_goes_cancels_every_call(tmp_path: Path) -> None:
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await writer.say("Take ")
        await shown.until(lambda: bool(shown.said()) and bool(catalogue.asked))
        shown.runtime.cancel([1])
        await asyncio.wait_for(writer.gone.wait(), 20)
        await asyncio.wait_for(catalogue.cancelled.wait(), 20)
        assert shown.runtime.statistics.running == 0
        assert shown.kinds() == ["text"]


async def test_a_step_that_must_do_ends_the_pipeline_when_its_stream_breaks(tmp_path: Path) -> None:
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await writer.say("Take ")
        await shown.until(lambda: bool(shown.said()) and bool(catalogue.asked))
        writer.break_off()
        error = (await shown.over())["e"]
        assert (error["code"], error["family"]) == ("step-failed", "model")
        assert error["message"].startswith("step 'answer': answer: the connection broke")
        await asyncio.wait_for(catalogue.cancelled.wait(), 20)


@pytest.mark.parametrize(
    ("status", "family"), [(429, "not-now"), (400, "caller"), (500, "model"), (404, "model")]
)
async def test_whose_fault_a_refused_step_is(tmp_path: Path, status: int, family: str) -> None:
    async with (
        Writer() as writer,
        served(
            tmp_path, "schema: 1\nsteps:" + ANSWER, environment={"PENSTOCK_URL": writer.url}
        ) as shown,
    ):
        writer.status, writer.whole = status, {"error": {"message": "not like this"}}
        shown.runtime.add(1, {"question": "?"}, None)
        error = (await shown.over())["e"]
        assert error["family"] == family
        assert error["message"] == "step 'answer': answer: not like this"


async def test_an_answer_in_one_piece_reads_as_a_streamed_one(tmp_path: Path) -> None:
    async with (
        Writer() as writer,
        served(
            tmp_path, "schema: 1\nsteps:" + ANSWER, environment={"PENSTOCK_URL": writer.url}
        ) as shown,
    ):
        writer.whole = {"choices": [{"message": {"content": "Yes. No."}}]}
        shown.runtime.add(1, {"question": "?"}, None)
        await shown.over()
        assert [data["text"] for kind, data in shown.said() if kind == "text"] == [
            "Yes. ",
            "No.",
        ]


async def test_a_request_without_what_a_step_needs_is_the_callers_fault(tmp_path: Path) -> None:
    environment = {"PENSTOCK_URL": "http://127.0.0.1:1"}
    async with served(tmp_path, "schema: 1\nsteps:" + ANSWER, environment=environment) as shown:
        shown.runtime.add(1, {"text": "?"}, None)
        error = (await shown.over())["e"]
        assert (error["family"], error["code"]) == ("caller", "input-missing")
        assert "request.question" in error["message"]


PYTHON = """
schema: 1
steps:
  - name: find
    python: {function: find}
    inputs: {question: $request.question}
  - name: words
    python: {function: words}
    follows: find
    emit: [{kind: text, data: {text: $piece}}]
  - name: card
    grpc: {target: "${CATALOGUE}", method: shop.Catalogue/Cards, descriptors: shop.binpb}
    follows: find
    each: true
    inputs: {id: $piece.id}
    emit: [{kind: product, data: $piece.title, after: words}]
    fallback: skip
  - name: sources
    value: $card
    emit: [{kind: link, data: "${piece[1].id} of ${find[0].id}", after: card}]
"""
CODE = """
def model_fn(model_dir):
    return {"a": "x", "b": "y"}

def find(question, model):
    for word in question.split():
        print("found", word)
        yield {"id": model[word]}

def words(pieces):
    for piece in pieces:
        yield piece["id"].upper()
"""


async def test_python_steps_stream_and_each_of_their_pieces_may_be_a_call(tmp_path: Path) -> None:
    async with Catalogue() as catalogue:
        catalogue.go.set()
        environment = {"CATALOGUE": catalogue.target}
        async with served(tmp_path, PYTHON, code=CODE, environment=environment) as shown:
            shown.runtime.add(1, {"question": "a b"}, None)
            await shown.over()
            assert shown.said()[:-1] == [
                ("text", {"text": "X"}),
                ("text", {"text": "Y"}),
                ("product", "first"),
                ("product", "the x"),
                ("product", "first"),
                ("product", "the y"),
                ("link", "x of x"),
                ("link", "y of x"),
            ]


BRANCH = """
schema: 1
steps:
  - name: text
    value: {text: Hello.}
    emit: [{kind: text}]
  - name: own
    python: {function: own}
    inputs: {how: $request.how}
    emit: events
    fallback: {kind: text, data: {text: Sorry.}, result: null}
"""
OWN = """
import os
import time

def own(how):
    yield {"event": "image", "data": "1.png", "after": "text"}
    if how == "raise":
        raise KeyError("no such thing")
    if how == "die":
        os._exit(3)
    if how == "hang":
        time.sleep(600)
    if how == "object":
        yield object()
    if how == "no event":
        yield 7
    if how == "surrogate":
        raise ValueError("\\udc80")
    if how == "surrogate said":
        yield {"event": "image", "data": "\\udc80", "after": "text"}
    if how == "surrogate exit":
        raise SystemExit("\\ud800")
"""


@pytest.mark.parametrize(
    "how",
    [
        "raise", "die", "object", "no event", "surrogate", "surrogate said", "surrogate exit",
    ],
)  # fmt: skip
async def test_a_function_that_fails_has_its_fallback_and_harms_nobody(
    tmp_path: Path, how: str
) -> None:
    async with served(tmp_path, BRANCH, code=OWN) as shown:
        shown.runtime.add(1, {"how": how}, None)
        await shown.over()
        assert shown.kinds() == ["text", "image", "text", "done"]
        assert shown.said()[2] == ("text", {"text": "Sorry."})
        await shown.until(lambda: bool(shown.runtime.pids))  # started again where it died
        shown.runtime.add(2, {"how": "well"}, None)
        await shown.over(2)
        assert shown.kinds(2) == ["text", "image", "done"]


async def test_a_killed_worker_falls_back_and_is_back(tmp_path: Path) -> None:
    async with served(tmp_path, BRANCH, code=OWN) as shown:
        (pid,) = shown.runtime.pids
        shown.runtime.add(1, {"how": "hang"}, None)
        await shown.until(lambda: "image" in shown.kinds())
        os.kill(pid, signal.SIGKILL)
        await shown.over()
        assert shown.said()[-1][1]["steps"] == {"text": "done", "own": "worker-died"}
        await shown.until(lambda: shown.runtime.pids not in ([], [pid]))


async def test_a_function_that_hangs_is_ended_after_its_request_was(tmp_path: Path) -> None:
    async with served(tmp_path, BRANCH, code=OWN) as shown:
        assert shown.runtime._steps is not None
        shown.runtime._steps._hang_s = 0.01
        (pid,) = shown.runtime.pids
        shown.runtime.add(1, {"how": "hang"}, None)
        await shown.until(lambda: "image" in shown.kinds())
        shown.runtime.cancel([1])
        await shown.until(lambda: shown.runtime.pids not in ([], [pid]))


@pytest.mark.parametrize(
    ("declared", "code", "words"),
    [
        (BRANCH, "def other(): ...", "code/steps.py defines no own(), which step 'own' calls"),
        (BRANCH, "1 / 0", "code/steps.py: ZeroDivisionError: division by zero"),
        (
            ASSISTANT,
            "",
            "step 'answer' asks the endpoint 'writer', and PENSTOCK_URL is 'ftp://x'",
        ),
        (
            "schema: 1\nsteps:" + CARD.replace("shop.Catalogue/Card", "shop.Catalogue/Gone")
            .replace(", after: {step: answer, position: 1}", ""),
            "",
            "shop.binpb has no method 'shop.Catalogue/Gone'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_says_why(
    tmp_path: Path, declared: str, code: str, words: str
) -> None:
    async def scenario() -> None:
        environment = {"PENSTOCK_URL": "ftp://x", "CATALOGUE": "127.0.0.1:1"}
        async with served(tmp_path, declared, code=code, environment=environment):
            raise AssertionError("it was loaded")

    with pytest.raises(PenstockError) as caught:
        asyncio.run(scenario())
    assert words in caught.value.message


MANY = """
schema: 1
steps:
  - name: ids
    python: {function: ids}
  - name: card
    grpc: {target: "127.0.0.1:1", method: shop.Catalogue/Card, descriptors: shop.binpb}
    follows: ids
    each: true
    inputs: {id: $piece}
    fallback: {say: The catalogue is down.}
"""


async def test_a_step_with_many_calls_says_once_that_it_is_missing(tmp_path: Path) -> None:
    code = "def ids():\n    yield from ('a', 'b', 'c')\n"
    async with served(tmp_path, MANY, code=code) as shown:
        shown.runtime.add(1, {}, None)
        assert (await shown.over())["f"] == "done"
        notice = {
            "step": "card", "message": "The catalogue is down.", "reason": "step-unavailable",
        }  # fmt: skip
        assert [event for event in shown.said() if event[0] == "notice"] == [("notice", notice)]


async def test_services_are_told_of_their_steps_span_and_the_request_of_all_of_them(
    tmp_path: Path,
) -> None:
    context = TraceContext(0xABC, 0xDEF, sampled=True, state="a=1")
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        catalogue.go.set()
        spans = SpanScope(context, received=shown.runtime.clock.monotonic())
        request = {"question": "A kettle?", "id": "kettle"}
        shown.runtime.add(1, request, None, Asking(spans=spans))
        await writer.say("Take this.")
        await writer.end()
        await shown.over()
        told = spans.told()
        assert told is not None
        found = {one.name: one for one in read_told(told)}
        assert set(found) == {"answer", "card"}
        assert {one.parent_id for one in found.values()} == {0xDEF}
        parents = {name: f"00-{0xABC:032x}-{one.span_id:016x}-01" for name, one in found.items()}
        (head,) = writer.heads
        assert f"traceparent: {parents['answer']}\r\n" in head
        assert "tracestate: a=1\r\n" in head
        (metadata,) = catalogue.metadata
        assert (metadata["traceparent"], metadata["tracestate"]) == (parents["card"], "a=1")


async def test_without_a_trace_services_are_told_of_none(tmp_path: Path) -> None:
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(tmp_path, ASSISTANT, environment=places(writer, catalogue)) as shown,
    ):
        catalogue.go.set()
        shown.runtime.add(1, {"question": "A kettle?", "id": "kettle"}, None)
        await writer.say("Take this.")
        await writer.end()
        await shown.over()
        assert "traceparent" not in writer.heads[0]
        assert "traceparent" not in catalogue.metadata[0]


@pytest.mark.parametrize("way", ["http", "grpc", "python"])
async def test_a_step_whose_reader_is_behind_waits_and_then_goes_on(
    tmp_path: Path, way: str
) -> None:
    """What another request hears of the same step, later, shows that this one waits."""
    declared = {
        "http": ANSWER,
        "grpc": """
  - name: answer
    grpc: {target: "${CATALOGUE}", method: shop.Catalogue/Cards, descriptors: shop.binpb}
    inputs: {id: kettle}
    emit: [{kind: text, data: {text: $piece.title}}]
""",
        "python": """
  - name: answer
    python: {function: answer}
    inputs: {go: $request.go}
    emit: [{kind: text, data: {text: $piece}}]
""",
    }[way]
    code = """
import os
import time

def answer(go):
    yield "first"
    while not os.path.exists(go):
        time.sleep(0.01)
    yield "the kettle"
"""
    go = tmp_path / "go"
    async with (
        Writer() as writer,
        Catalogue() as catalogue,
        served(
            tmp_path, "schema: 1\nsteps:" + declared, code=code,
            environment=places(writer, catalogue),
        ) as shown,
    ):  # fmt: skip
        for ident in (1, 2):
            shown.runtime.add(ident, {"question": "A kettle?", "go": str(go)}, None)
            if way == "http":
                await shown.until(lambda asked=ident: len(writer.streams) == asked)
                await writer.say("first")
            await shown.until(lambda ident=ident: shown.kinds(ident) == ["text"])
        shown.runtime.hold(1, True)
        if way == "python":  # a call behind what was said: the worker has read that
            shown.runtime.add(3, {"go": str(tmp_path)}, None)
            await shown.over(3)
        catalogue.go.set()
        go.touch()
        if way == "http":
            for to in range(2):
                await writer.say("the kettle", to=to)
                await writer.end(to=to)
        await shown.over(2)
        said = [("text", {"text": "first"}), ("text", {"text": "the kettle"})]
        assert shown.said(2)[:-1] == said
        assert shown.said(1) == said[:1]
        shown.runtime.hold(1, False)
        await shown.over(1)
        assert shown.said(1)[:-1] == said
