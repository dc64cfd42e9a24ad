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

An ensemble has tensors at both ends, as any tensor model. Its answer comes as events with some of
its tensors each, as the steps make them; it is written when all tensors are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import CallerError, PenstockError
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import (
    OIP_GRPC,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    check_arrays,
    media_type,
)
from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    Served,
    Writer,
    flag,
    parameters_of,
    parse_object,
    sse,
    unsupported,
)
from penstock.instance.codecs.generation.openai_fields import OpenAiWriter
from penstock.instance.codecs.select import decode_tensors, json_header_bytes
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.frames import RequestMeta

TEXT_KIND: Final = "text"
_KINDS: Final = {
    "chat": ("chatcmpl", ("chat.completion", "chat.completion.chunk")),
    "completions": ("cmpl", ("text_completion", "text_completion")),
}


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


class OpenAiPipelineWriter(OpenAiWriter):
    __slots__ = ("_chat",)

    def __init__(self, served: Served, operation: str, *, stream: bool) -> None:
        super().__init__(served, *_KINDS[operation], stream=stream, usage=False, logprobs=False)
        self._chat = operation == "chat"

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        lines = []
        if not self.begun:
            self.begun.add(0)
            if self._chat:
                lines.append(self._choice({"role": "assistant", "content": ""}, None))
        if "k" not in event:
            lines += [self._choice({}, "stop"), self.end(answer)]
            return b"".join(lines)
        text = text_of(event["k"], event["d"])
        if text is None:
            lines.append(sse(self._line([]) | {"pipeline_event": _as_json(event)}))
        else:
            lines.append(self._choice({"content": text}, None))
        return b"".join(lines)

    def _choice(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if self._chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return self.line(choice)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        text = _whole_text(answer)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "stop"}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        events = [_as_json(event) for event in answer.events]
        return orjson.dumps(self._head(self._object, [choice], None) | {"pipeline_events": events})


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
    metadata: InferMetadata | None = None


def decode(meta: RequestMeta, body: bytes, served: Served) -> PipelineCall:
    """Raises CallerError (`bad-json`, `invalid-parameter`) and ModelError (those of tensors)."""
    asked = parameters_of(meta)
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


def _model(served: Served) -> CodecModel:
    return CodecModel(
        name=served.name, version=served.version, inputs=INPUTS, outputs=OUTPUTS, batched=False
    )


def _object_of(decoded: Decoded) -> dict[str, Any]:
    (value,) = decoded.tensors["request"].reshape(-1).tolist()
    return parse_object(value if isinstance(value, bytes) else str(value).encode())


class _EventWriter(Writer):
    """Writes server-sent events, or all events as one JSON object."""

    __slots__ = ("_tells_errors",)

    def __init__(self, stream: bool, tells_errors: bool) -> None:
        super().__init__(stream=stream)
        self._tells_errors = tells_errors

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        if "k" not in event:
            return b""  # the event `done` was written already
        return b"event: %b\ndata: %b\n\n" % _pair(event)

    def broken(self, error: PenstockError) -> bytes:
        if not self._tells_errors:
            return b""
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        return b"event: error\ndata: %b\n\n" % orjson.dumps(told)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        events = [_as_json(event) for event in answer.events]
        return orjson.dumps({"text": _whole_text(answer), "events": events})


class _TensorWriter(Writer):
    __slots__ = ("_ident", "_served")

    def __init__(self, served: Served, ident: str, stream: bool) -> None:
        super().__init__(stream=stream)
        self.content_type = OIP_GRPC
        self._served = served
        self._ident = ident

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        given = "k" in event
        return self._message([event] if given else [], last=not given)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._message(answer.events, last=True)

    def _message(self, events: list[Event], *, last: bool) -> bytes:
        name, version = self._served.name, self._served.version
        columns = _columns(events) if events else {}
        return oip_grpc.stream_message(name, version, self._ident, columns, last=last)


class _JsonTensorWriter(Writer):
    __slots__ = ("_encode",)

    def __init__(self, encode: Encode) -> None:
        super().__init__(stream=False)
        self._encode = encode

    def whole(self, answer: GeneratedAnswer) -> bytes:
        columns = _columns(answer.events)
        return self._tensors(self._encode({name: objects(each) for name, each in columns.items()}))


def _as_json(event: Event) -> dict[str, Any]:
    return {"event": event["k"], "data": event["d"]}


def _whole_text(answer: GeneratedAnswer) -> str:
    """The joined text of the events of kind `text`."""
    return "".join(text_of(event["k"], event["d"]) or "" for event in answer.events)


def _columns(events: list[Event]) -> dict[str, list[bytes]]:
    pairs = [_pair(event) for event in events]
    return {"event": [kind for kind, _ in pairs], "data": [data for _, data in pairs]}


def _pair(event: Event) -> tuple[bytes, bytes]:
    return event["k"].encode(), orjson.dumps(event["d"])


@dataclass(slots=True)
class EnsembleCall:
    """One request, whichever front door or model it came from."""

    request: Tensors
    writer: TensorsWriter
    metadata: InferMetadata | None


class TensorsWriter(Writer):
    """Collects tensors, and writes them in the form that the request asks for."""

    __slots__ = ("_encode", "_made")

    def __init__(self, encode: Encode, made: Tensors) -> None:
        """`made`: outputs that exist already, because they are inputs, too."""
        super().__init__(stream=False)
        self._encode = encode
        self._made = made

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self._made.values())

    def gather(self, event: Event) -> None:
        if event.get("k") == "tensors":
            self._made.update(event["d"])

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._tensors(self._encode(self._made))


def decode_ensemble(model: CodecModel, meta: RequestMeta, body: bytes) -> EnsembleCall:
    """Raises ModelError with the status of the answer."""
    decoded = decode_tensors(model, meta, body)
    return _ensemble_call(model, decoded.tensors, decoded.encode, decoded.metadata)


def ensemble_call(
    model: CodecModel, tensors: Tensors, encode: Encode, metadata: InferMetadata | None
) -> EnsembleCall:
    """A call with arrays that another model of the artifact sends. Raises ModelError."""
    check_arrays(model, tensors)
    return _ensemble_call(model, tensors, encode, metadata)


def _ensemble_call(
    model: CodecModel, tensors: Tensors, encode: Encode, metadata: InferMetadata | None
) -> EnsembleCall:
    outputs = {spec.name for spec in model.outputs}
    passed_on = {name: array for name, array in tensors.items() if name in outputs}
    return EnsembleCall(tensors, TensorsWriter(encode, passed_on), metadata)
