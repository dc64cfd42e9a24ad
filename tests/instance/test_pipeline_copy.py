"""A pipeline behind each door: its events as server-sent events, as JSON and as tensors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit.pipeline_services import Lanes

from penstock.artifacts.description.description import Batching, ModelDescription
from penstock.clock import SystemClock
from penstock.errors import ModelError
from penstock.instance.copy import Copy
from penstock.instance.engines.pipeline import PipelineSteps
from penstock.instance.loading.described import slots_spec
from penstock.instance.request import ReplySink, Request
from penstock.runtimes.base import LoadContext
from penstock.runtimes.pipeline.runtime import PipelineRuntime
from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

DECLARED = """
schema: 1
requests_max: 2
steps:
  - name: answer
    value: {text: "You asked: ${request.question}"}
    emit: [{kind: text}]
  - name: cards
    value: [{id: a}, {id: b}]
    emit: [{kind: product, after: answer}]
  - name: late
    http: {url: "http://127.0.0.1:1/"}
    fallback: {say: Nobody is there.}
    needs: [cards]
"""
NOTICE = {"step": "late", "message": "Nobody is there.", "reason": "step-unavailable"}
DONE = {"events": 4, "steps": {"answer": "done", "cards": "done", "late": "step-unavailable"}}
EVENTS = [
    ("text", {"text": "You asked: Why?"}),
    ("product", {"id": "a"}),
    ("product", {"id": "b"}),
    ("notice", NOTICE),
    ("done", DONE),
]


class PipelineSink(ReplySink):
    """Gathers the frames of one connection."""

    def __init__(self) -> None:
        self.frames: list[frames.Frame] = []
        self._decoder = frames.FrameDecoder()
        self.over = asyncio.Event()

    def forget(self, ident: int) -> None:
        return

    def send(self, frame: bytes) -> None:
        self.frames += self._decoder.feed(frame)
        if self.frames[-1].kind != frames.CHUNK:
            self.over.set()

    @property
    def chunks(self) -> list[bytes]:
        found = [each for each in self.frames if each.kind == frames.CHUNK]
        return [each.payload[each.meta_bytes :] for each in found]

    @property
    def last(self) -> frames.Reply:
        return frames.decode_reply(self.frames[-1].payload, self.frames[-1].meta_bytes)


def asked(folder: Path, body: bytes, **meta: Any) -> PipelineSink:
    """One request through a copy."""

    async def scenario() -> PipelineSink:
        (folder / "pipeline.yaml").write_text(DECLARED)
        context = LoadContext(
            model_dir=folder,
            description=ModelDescription(runtime="python", task="payload", file="pipeline.yaml"),
            endpoint_name="assistant", variant_name="main", cores=1.0, memory_bytes_max=0,
        )  # fmt: skip
        runtime = await PipelineRuntime.start(context, Lanes())
        spec = slots_spec(Batching(), runtime.file.requests_max)
        clock = SystemClock()
        work = PipelineSteps(runtime, name="assistant", version="1")
        copy = Copy(1, work, spec, clock=clock, call_at=asyncio.get_running_loop().call_at)
        sink = PipelineSink()
        wire = frames.encode_request_meta(frames.RequestMeta(**meta))
        now = clock.monotonic()
        copy.accept(Request(sink, 7, wire, body, now, None, 0), now)
        copy.driver.turn(now)
        await asyncio.wait_for(sink.over.wait(), 20)
        assert copy.unanswered == 0
        copy.close()
        await runtime.close()
        return sink

    return asyncio.run(scenario())


def sse(kind: str, data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


@pytest.mark.parametrize(
    ("body", "meta"),
    [
        ({"question": "Why?", "stream": True}, {}),
        ({"question": "Why?"}, {"parameters": '{"stream": true}'}),
        ({"question": "Why?"}, {"door": "oip", "parameters": '{"operation": "generate_stream"}'}),
    ],
)
def test_a_stream_is_server_sent_events_with_their_types(
    tmp_path: Path, body: dict[str, Any], meta: dict[str, Any]
) -> None:
    sink = asked(tmp_path, json.dumps(body).encode(), **meta)
    assert sink.chunks == [sse(kind, data) for kind, data in EVENTS]
    assert sink.frames[-1].kind == frames.END
    first = sink.frames[0]
    assert frames.decode_reply_meta(first.payload[: first.meta_bytes]).content_type == (
        "text/event-stream"
    )


OPENAI_CHAT = {"door": "openai", "parameters": '{"operation": "chat"}'}


def test_at_openais_path_text_is_the_message_and_events_are_beside_it(tmp_path: Path) -> None:
    sink = asked(tmp_path, b'{"question": "Why?", "stream": true}', **OPENAI_CHAT)
    lines = b"".join(sink.chunks).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""}, {"content": "You asked: Why?"}, {},
    ]  # fmt: skip
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]
    beside = [chunk["pipeline_event"] for chunk in chunks if not chunk["choices"]]
    assert beside == [{"event": kind, "data": data} for kind, data in EVENTS[1:]]


def test_at_openais_path_a_whole_answer_has_all_events(tmp_path: Path) -> None:
    sink = asked(tmp_path, b'{"question": "Why?"}', **OPENAI_CHAT)
    answer = json.loads(sink.last.body)
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "You asked: Why?"
    assert answer["pipeline_events"] == [{"event": kind, "data": data} for kind, data in EVENTS]


def test_a_pipeline_has_no_embeddings(tmp_path: Path) -> None:
    meta = {"door": "openai", "parameters": '{"operation": "embeddings"}'}
    sink = asked(tmp_path, b'{"input": "Why?"}', **meta)
    assert sink.frames[-1].kind == frames.ERROR
    assert b"pipeline and has no embeddings" in sink.frames[-1].payload


def test_without_a_stream_all_events_come_at_once(tmp_path: Path) -> None:
    sink = asked(tmp_path, b'{"question": "Why?"}')
    assert [frame.kind for frame in sink.frames] == [frames.REPLY]
    assert json.loads(sink.last.body) == {
        "text": "You asked: Why?",
        "events": [{"event": kind, "data": data} for kind, data in EVENTS],
    }


def tensor_request() -> bytes:
    request = ModelInferRequest(model_name="assistant", id="r1")
    request.inputs.add(name="request", datatype="BYTES", shape=(1,)).contents.bytes_contents.append(
        b'{"question": "Why?"}'
    )
    return bytes(request.SerializeToString())


def column(answer: Any, name: str) -> list[bytes]:
    at = [each.name for each in answer.outputs].index(name)
    raw, values = answer.raw_output_contents[at], []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        values.append(raw[4 : 4 + size])
        raw = raw[4 + size :]
    return values


def test_a_grpc_stream_has_two_tensors_for_each_event(tmp_path: Path) -> None:
    sink = asked(
        tmp_path, tensor_request(), door="oip-grpc", parameters='{"operation": "stream_infer"}'
    )
    answers = [ModelInferResponse.FromString(chunk) for chunk in sink.chunks]
    finals = [answer.parameters["triton_final_response"].bool_param for answer in answers]
    assert finals == [False] * 5 + [True]
    assert [answer.id for answer in answers] == ["r1"] * 6
    said = [(column(each, "event")[0].decode(), column(each, "data")[0]) for each in answers[:-1]]
    assert [(kind, json.loads(data)) for kind, data in said] == EVENTS
    assert not answers[-1].outputs


def test_an_infer_call_has_all_events_in_two_tensors(tmp_path: Path) -> None:
    sink = asked(tmp_path, tensor_request(), door="oip-grpc")
    answer = ModelInferResponse.FromString(sink.last.body)
    assert [each.decode() for each in column(answer, "event")] == [kind for kind, _ in EVENTS]
    assert [json.loads(each) for each in column(answer, "data")] == [data for _, data in EVENTS]


def test_an_infer_call_in_json(tmp_path: Path) -> None:
    body = {
        "inputs": [
            {"name": "request", "datatype": "BYTES", "shape": [1], "data": ['{"question": "Why?"}']}
        ]
    }
    sink = asked(tmp_path, json.dumps(body).encode(), door="oip")
    outputs = {each["name"]: each["data"] for each in json.loads(sink.last.body)["outputs"]}
    assert outputs["event"] == [kind for kind, _ in EVENTS]
    assert [json.loads(each) for each in outputs["data"]] == [data for _, data in EVENTS]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no json", "bad-json"),
        (b"[1]", "bad-json"),
        (b'{"question": "\xff"}', "bad-json"),
        (b'{"question": "?", "stream": 1}', "invalid-parameter"),
        (b"{}", "input-missing"),
    ],
)
def test_a_request_that_cannot_be_read_is_the_callers(
    tmp_path: Path, body: bytes, code: str
) -> None:
    sink = asked(tmp_path, body, **OPENAI_CHAT)
    assert sink.frames[-1].kind == frames.ERROR
    error = json.loads(sink.last.body)
    assert (error["family"], error["code"]) == ("caller", code)


class StepsWithoutProcess:
    """A pipeline's runtime as the copy sees it, whose steps say what the test tells them to."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}

    def attach(self, on_events: Any, _busy: Any) -> None:
        self.say = on_events

    def add(self, ident: int, request: Any, deadline: float | None, asked: Any) -> None: ...


@pytest.mark.parametrize(
    ("code", "streamed", "kind", "words"),
    [
        ("worker-down", False, frames.RETURNED, b"steps-restart"),
        ("worker-died", False, frames.RETURNED, b"worker-died"),
        ("worker-died", True, frames.ERROR, b"worker-died"),
        ("step-failed", False, frames.ERROR, b"step-failed"),
    ],
)
def test_a_request_that_only_missed_the_process_of_the_steps_is_given_back_unless_it_streamed(
    code: str, streamed: bool, kind: int, words: bytes
) -> None:
    """Another copy's process is well; failing it would make this copy seem the quickest of all."""

    async def scenario() -> PipelineSink:
        runtime, sink, clock = StepsWithoutProcess(), PipelineSink(), SystemClock()
        work = PipelineSteps(runtime, name="assistant", version="1")
        copy = Copy(
            1, work, slots_spec(Batching(), 2), clock=clock,
            call_at=asyncio.get_running_loop().call_at,
        )  # fmt: skip
        now = clock.monotonic()
        meta = frames.encode_request_meta(frames.RequestMeta())
        copy.accept(Request(sink, 7, meta, b'{"stream": true}', now, None, 0), now)
        copy.driver.turn(now)
        [sequence] = work._running.values()
        sequence.streamed = streamed
        runtime.say([{"i": sequence.ident, "e": ModelError(code, "gone").to_dict()}])
        assert (copy.unanswered, work._running) == (0, {})
        return sink

    last = asyncio.run(scenario()).frames[-1]
    assert last.kind == kind
    assert words in last.payload


def test_binary_tensors_come_with_the_length_of_the_json_before_them(tmp_path: Path) -> None:
    """Triton's clients ask for them unless they are told not to, and can't read them without."""
    asking = {
        "inputs": [
            {"name": "request", "datatype": "BYTES", "shape": [1], "data": ['{"question": "Why?"}']}
        ],
        "parameters": {"binary_data_output": True},
    }
    sink = asked(tmp_path, json.dumps(asking).encode(), door="oip")
    told = frames.decode_reply_meta(sink.last.meta)
    assert told.content_type == "application/octet-stream"
    size = told.json_header_bytes
    assert size is not None
    head = json.loads(sink.last.body[:size])
    assert [each["name"] for each in head["outputs"]] == ["event", "data"]
    sizes = [each["parameters"]["binary_data_size"] for each in head["outputs"]]
    assert size + sum(sizes) == len(sink.last.body)
