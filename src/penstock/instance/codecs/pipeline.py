"""A pipeline's requests and its stream of typed events, in the form of each front door.

A request is a JSON object, `$request` in the steps; at the gRPC door it is the tensor `request`
(BYTES [1]) with such an object. Events are sent as server-sent events (`event: product`, `data:
{...}`), or as tensors `event` and `data` (BYTES [1], JSON) in one ModelStreamInfer answer each.
Without a stream, the answer has all events in order, with their text joined. Knows no step.

At OpenAI's paths the answer has OpenAI's form: the text is the message, and other events are beside
it. In a stream text is sent as deltas, so any OpenAI client shows it. Every other event is a chunk
without choices that has `pipeline_event`, {"event": kind, "data": ...}; clients skip a chunk
without choices (as they skip the one with the usage), and a client that knows pipelines reads it.
The body is `$request` as it came: `$request.messages`. A whole answer has all events in
`pipeline_events`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import CallerError, PenstockError
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import OIP_GRPC, CodecModel, Decoded, Encode, media_type
from penstock.instance.codecs.generation.calls import (
    JSON,
    SSE,
    Event,
    GeneratedAnswer,
    Served,
    WholeTensors,
    Writer,
    flag,
    parse_object,
    sse,
    unsupported,
)
from penstock.instance.codecs.select import json_header_bytes
from penstock.runtimes.tensor_bytes import encode_raw, objects
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferResponse

TEXT_KIND: Final = "text"
_KINDS: Final = {
    "chat": ("chatcmpl-", "chat.completion.chunk", "chat.completion"),
    "completions": ("cmpl-", "text_completion", "text_completion"),
}
_END: Final = b"data: [DONE]\n\n"


def writer_of(request: dict[str, Any], operation: str, served: Served) -> OpenAiPipelineWriter:
    """Raises CallerError (`invalid-parameter`, `parameter-unsupported`)."""
    if operation not in _KINDS:
        raise CallerError(
            "parameter-unsupported",
            f"{served.name} is a pipeline and has no {operation}",
            hint="Ask it at chat/completions, or at its endpoint's invocations.",
        )
    if request.get("n") not in (None, 1):
        raise unsupported("n", "a pipeline has one answer")
    return OpenAiPipelineWriter(served, operation, stream=flag(request, "stream"))


def text_of(kind: str, data: Any) -> str | None:
    """The text that an event adds; None for events without text."""
    if kind != TEXT_KIND or not isinstance(data, dict):
        return None
    return str(data.get("text", ""))


class OpenAiPipelineWriter:
    __slots__ = ("_begun", "_chat", "_head", "_said", "_whole_kind", "content_type", "stream")

    def __init__(self, served: Served, operation: str, *, stream: bool) -> None:
        prefix, kind, whole_kind = _KINDS[operation]
        self.stream = stream
        self.content_type = SSE if stream else JSON
        self._chat = operation == "chat"
        self._head = {
            "id": f"{prefix}{served.new_id()}",
            "object": kind,
            "created": served.now_s(),
            "model": served.name,
        }
        self._whole_kind = whole_kind
        self._begun = False
        self._said: list[dict[str, Any]] = []

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        lines = []
        if not self._begun:
            self._begun = True
            if self._chat:
                lines.append(self._line({"role": "assistant", "content": ""}, None))
        if "k" not in event:
            lines += [self._line({}, "stop"), _END]
            return b"".join(lines)
        text = text_of(event["k"], event["d"])
        if text is None:
            said = {"event": event["k"], "data": event["d"]}
            lines.append(sse({**self._head, "choices": [], "pipeline_event": said}))
        else:
            lines.append(self._line({"content": text}, None))
        return b"".join(lines)

    def _line(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if self._chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return sse({**self._head, "choices": [choice]})

    def broken(self, error: PenstockError) -> bytes:
        return b""  # OpenAI's own error event follows

    def gather(self, event: Event) -> None:
        if "k" in event:
            self._said.append({"event": event["k"], "data": event["d"]})

    def whole(self, answer: GeneratedAnswer) -> bytes:
        texts = [text_of(each["event"], each["data"]) or "" for each in self._said]
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "stop"}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": "".join(texts), "refusal": None}
        else:
            choice["text"] = "".join(texts)
        return orjson.dumps(
            {
                **self._head,
                "object": self._whole_kind,
                "choices": [choice],
                "usage": None,
                "pipeline_events": self._said,
            }
        )


INPUTS: Final = (TensorSpec(name="request", dtype="BYTES", shape=(1,)),)
OUTPUTS: Final = (
    TensorSpec(name="event", dtype="BYTES", shape=(-1,)),
    TensorSpec(name="data", dtype="BYTES", shape=(-1,)),
)


@dataclass(slots=True)
class PipelineCall:
    """One request, whichever front door it came through."""

    request: dict[str, Any]
    writer: Writer


def decode(meta: RequestMeta, body: bytes, served: Served) -> PipelineCall:
    """Raises CallerError (`bad-json`, `invalid-parameter`) and ModelError (those of tensors)."""
    asked = _parameters(meta)
    operation = asked.get("operation")
    if meta.door == "oip-grpc" or media_type(meta.content_type) == OIP_GRPC:
        parsed = oip_grpc.parse(body)
        given = oip_grpc.decode_parsed(_model(served), parsed)
        streamed = operation == "stream_infer"
        return PipelineCall(_object_of(given), _TensorWriter(served, parsed.id, streamed))
    if meta.door == "oip" and operation not in ("generate", "generate_stream"):
        size = json_header_bytes(meta)
        given = oip_json.decode(_model(served), body, size, sagemaker=False)
        return PipelineCall(_object_of(given), _JsonTensorWriter(given.encode))
    request = parse_object(body)
    if meta.door == "openai":
        return PipelineCall(request, writer_of(request, str(operation), served))
    wanted = request.get("stream", False)
    if not isinstance(wanted, bool):
        raise CallerError("invalid-parameter", "stream must be true or false")
    stream = wanted or operation == "generate_stream" or asked.get("stream") is True
    # Triton's door has its own error event; at the others the stream reports the error.
    tells_errors = meta.door != "oip"
    return PipelineCall(request, _EventWriter(stream and operation != "generate", tells_errors))


def _parameters(meta: RequestMeta) -> dict[str, Any]:
    value = orjson.loads(meta.parameters) if meta.parameters else None
    return value if isinstance(value, dict) else {}


def _model(served: Served) -> CodecModel:
    return CodecModel(
        name=served.name, version=served.version, inputs=INPUTS, outputs=OUTPUTS, batched=False
    )


def _object_of(decoded: Decoded) -> dict[str, Any]:
    (value,) = decoded.tensors["request"].reshape(-1).tolist()
    return parse_object(value if isinstance(value, bytes) else str(value).encode())


class _EventWriter:
    """Writes server-sent events, or all events as one JSON object."""

    __slots__ = ("_said", "_tells_errors", "content_type", "stream")

    def __init__(self, stream: bool, tells_errors: bool) -> None:
        self.stream = stream
        self._tells_errors = tells_errors
        self.content_type = SSE if stream else JSON
        self._said: list[dict[str, Any]] = []

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        if "k" not in event:
            return b""  # the event `done` was written already
        return b"event: %b\ndata: %b\n\n" % (event["k"].encode(), orjson.dumps(event["d"]))

    def broken(self, error: PenstockError) -> bytes:
        if not self._tells_errors:
            return b""
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        return b"event: error\ndata: %b\n\n" % orjson.dumps(told)

    def gather(self, event: Event) -> None:
        if "k" in event:
            self._said.append({"event": event["k"], "data": event["d"]})

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return orjson.dumps({"text": _text_of(self._said), "events": self._said})


def _text_of(said: list[dict[str, Any]]) -> str:
    """The joined text of the events of kind `text`."""
    return "".join(text_of(each["event"], each["data"]) or "" for each in said)


class _TensorWriter:
    __slots__ = ("_ident", "_said", "_served", "content_type", "stream")

    def __init__(self, served: Served, ident: str, stream: bool) -> None:
        self.stream = stream
        self.content_type = OIP_GRPC
        self._served = served
        self._ident = ident
        self._said: list[tuple[bytes, bytes]] = []

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        if "k" not in event:
            return self._message([], last=True)
        return self._message([_pair(event)], last=False)

    def broken(self, error: PenstockError) -> bytes:
        return b""  # error_message of ModelStreamInfer follows

    def gather(self, event: Event) -> None:
        if "k" in event:
            self._said.append(_pair(event))

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._message(self._said, last=True)

    def _message(self, pairs: list[tuple[bytes, bytes]], *, last: bool) -> bytes:
        made = ModelInferResponse(
            model_name=self._served.name, model_version=self._served.version, id=self._ident
        )
        made.parameters["triton_final_response"].bool_param = last
        if pairs:
            for at, name in enumerate(("event", "data")):
                made.outputs.add(name=name, datatype="BYTES", shape=(len(pairs),))
                column = objects([pair[at] for pair in pairs])
                made.raw_output_contents.append(encode_raw(column, "BYTES"))
        return bytes(made.SerializeToString())


class _JsonTensorWriter(WholeTensors):
    __slots__ = ("_encode", "_said", "stream")

    def __init__(self, encode: Encode) -> None:
        self.stream = False
        self.content_type = JSON
        self._encode = encode
        self._said: list[tuple[bytes, bytes]] = []

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        raise AssertionError("infer has one answer")

    def broken(self, error: PenstockError) -> bytes:
        return b""

    def gather(self, event: Event) -> None:
        if "k" in event:
            self._said.append(_pair(event))

    def whole(self, answer: GeneratedAnswer) -> bytes:
        kinds = objects([kind for kind, _ in self._said])
        data = objects([data for _, data in self._said])
        return self._tensors(self._encode({"event": kinds, "data": data}))


def _pair(event: Event) -> tuple[bytes, bytes]:
    return event["k"].encode(), orjson.dumps(event["d"])
