"""The Open Inference Protocol's tensors for text generation: `text_input` in, `text_output` out.

Settings are tensors of one element, under the names of Triton's vLLM and TensorRT-LLM backends, or
parameters of the request. In a gRPC stream each message has the new part of the text, and the last
one has the parameter `triton_final_response`.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import CallerError
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import OIP_GRPC, CodecModel, Decoded, Encode
from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GenerationCall,
    Served,
    Writer,
    parse_object,
    unsupported,
)
from penstock.instance.codecs.generation.triton_generate import sampling_of, settings_given
from penstock.instance.codecs.select import json_header_bytes
from penstock.instance.codecs.values import texts_of
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.frames import RequestMeta

#: Inputs in the model's metadata; all others are optional.
INPUTS: Final = (TensorSpec(name="text_input", dtype="BYTES", shape=(1,)),)
OUTPUTS: Final = (TensorSpec(name="text_output", dtype="BYTES", shape=(1,)),)

_INTEGERS: Final = ("INT64", "INT32", "UINT32", "UINT64")
_NUMBERS: Final = ("FP32", "FP64")
#: Input -> the data types that it may have.
_INPUTS: Final[dict[str, tuple[str, ...]]] = {
    "text_input": ("BYTES",),
    "stream": ("BOOL",),
    "sampling_parameters": ("BYTES",),
    "exclude_input_in_output": ("BOOL",),
    **dict.fromkeys(("max_tokens", "min_tokens", "min_length", "top_k"), _INTEGERS),
    **dict.fromkeys(("seed", "random_seed", "n", "beam_width"), _INTEGERS),
    **dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty"), _NUMBERS),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), _NUMBERS),
    "stop": ("BYTES",),
    "stop_words": ("BYTES",),
    "ignore_eos": ("BOOL",),
}


def decode_grpc(body: bytes, served: Served, *, stream: bool) -> GenerationCall:
    """`stream`: whether the method can return more than one answer."""
    request = oip_grpc.parse(body)
    seen = [(each.name, each.datatype, list(each.shape)) for each in request.inputs]
    decoded = oip_grpc.decode_parsed(_model(served, seen), request)
    parameters = {key: oip_grpc.parameter_of(value) for key, value in request.parameters.items()}
    given, text = _fields(decoded, parameters)
    sampling, asked = sampling_of(given)
    if asked and not stream:
        raise unsupported("stream in a call of ModelInfer", "call ModelStreamInfer")
    return GenerationCall(text, sampling, _GrpcWriter(served, request.id, asked))


def decode_json(body: bytes, meta: RequestMeta, served: Served) -> GenerationCall:
    """The infer operation: one answer."""
    size = json_header_bytes(meta)
    head = parse_object(body if size is None else body[:size])
    inputs = head.get("inputs")
    seen = [
        (each.get("name"), each.get("datatype"), each.get("shape"))
        for each in (inputs if isinstance(inputs, list) else [])
        if isinstance(each, dict)
    ]
    decoded = oip_json.decode(_model(served, seen), body, size, sagemaker=meta.door != "oip")
    parameters = head.get("parameters")
    given, text = _fields(decoded, parameters if isinstance(parameters, dict) else {})
    sampling, asked = sampling_of(given)
    if asked:
        raise unsupported("stream in a request to infer", "ask generate_stream")
    return GenerationCall(text, sampling, _JsonWriter(decoded.encode))


def _model(served: Served, seen: list[tuple[Any, Any, Any]]) -> CodecModel:
    """A codec view with the request's known inputs; others are refused by name."""
    inputs = []
    for name, dtype, shape in seen:
        allowed = _INPUTS.get(name) if isinstance(name, str) else None
        if allowed is not None:
            kind = dtype if dtype in allowed else allowed[0]
            spec_shape = (-1,) * len(shape) if isinstance(shape, list) else (-1,)
            inputs.append(TensorSpec(name=name, dtype=kind, shape=spec_shape))
    if not any(spec.name == "text_input" for spec in inputs):
        raise CallerError("invalid-parameter", "the input text_input (BYTES) is missing")
    return CodecModel(
        name=served.name, version=served.version, inputs=tuple(inputs), outputs=OUTPUTS,
        batched=False,
    )  # fmt: skip


def _fields(decoded: Decoded, parameters: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(settings by name, the text)."""
    given = dict(parameters)
    text = ""
    for name, array in decoded.tensors.items():
        bytes_came = array.dtype.kind == "O"
        values = texts_of(array, name) if bytes_came else array.reshape(-1).tolist()
        if name in ("stop", "stop_words"):
            given[name] = [each for each in values if each]
        elif len(values) != 1:
            raise CallerError("invalid-parameter", f"{name} has {len(values)} elements: send one")
        elif name == "text_input":
            text = values[0]
        else:
            given[name] = values[0]
    return settings_given(given), text


class _JsonWriter(Writer):
    __slots__ = ("_encode",)

    def __init__(self, encode: Encode) -> None:
        super().__init__(stream=False)
        self._encode = encode

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._tensors(self._encode({"text_output": objects([answer.text.encode()])}))


class _GrpcWriter(Writer):
    """Writes gRPC messages. If the client did not ask for a stream, one message has the whole
    text."""

    __slots__ = ("_begun", "_ident", "_served")

    def __init__(self, served: Served, ident: str, stream: bool) -> None:
        super().__init__(stream=stream)
        self.content_type = OIP_GRPC
        self._served = served
        self._ident = ident
        self._begun = False

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        text, last = event.get("x", ""), "f" in event
        if not self._begun:
            self._begun = True
            text = answer.prompt_text + text
        if not text and not last:
            return b""
        return self._message(text, last=last)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._message(answer.text, last=True)

    def _message(self, text: str, *, last: bool) -> bytes:
        name, version = self._served.name, self._served.version
        columns = {"text_output": [text.encode()]}
        return oip_grpc.stream_message(name, version, self._ident, columns, last=last)
