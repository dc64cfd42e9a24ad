"""Triton's generate extension on any model of tensors: `{"x": [1, 2], "parameters": {...}}`.

Keys that are the model's inputs give their values, flat; all others are the request's parameters,
and so is what stands in `parameters`. The answer has a key for each output: its one value, or its
values in a list. `generate_stream` sends each answer as a server-sent event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import orjson

from penstock.artifacts.description.description import TensorSpec
from penstock.instance.codecs.base import (
    JSON,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    bad,
    check_inputs,
)
from penstock.instance.codecs.json_numbers import data_of, parse_body, tensor_of
from penstock.instance.codecs.request_parameters import metadata_of
from penstock.instance.codecs.values import dump_json
from penstock.runtimes.infer_metadata import parameters_of
from penstock.wire.frames import ReplyMeta, encode_reply_meta

GENERATE: Final = "generate"
GENERATE_STREAM: Final = "generate_stream"

_WHOLE: Final = encode_reply_meta(ReplyMeta(content_type=JSON))
EVENTS_META: Final = encode_reply_meta(ReplyMeta(content_type="text/event-stream; charset=utf-8"))


def decode(model: CodecModel, body: bytes, *, stream: bool) -> Decoded:
    """Raises ModelError with the status of the answer."""
    parsed = parse_body(body)
    if not isinstance(parsed, dict):
        raise bad("a request to generate is a JSON object: inputs and parameters by name")
    ident = parsed.pop("id", "")
    if not isinstance(ident, str):
        raise bad("id is not a string")
    nested = parsed.pop("parameters", {})
    if not isinstance(nested, dict):
        raise bad("parameters is not an object")
    given: Mapping[str, Any] = {**nested, **parsed}
    specs = {spec.name: spec for spec in model.inputs}
    tensors = {name: _tensor(specs[name], given[name]) for name in specs if name in given}
    others = {name: value for name, value in given.items() if name not in specs}
    metadata = metadata_of(ident, others, tuple(spec.name for spec in model.outputs))
    return Decoded(tensors, check_inputs(model, tensors), _encoder(model, ident, stream), metadata)


def _tensor(spec: TensorSpec, value: Any) -> np.ndarray:
    """The innermost free dimension takes all elements that the fixed ones leave; other free ones
    are 1, as in Triton."""
    array = tensor_of(value if isinstance(value, list) else [value], spec.dtype, spec.name)
    left, shape = array.size, list(spec.shape)
    fixed = math.prod(size for size in shape if size > 0)
    if left % fixed:
        raise _unfit(spec, array.size)
    left //= fixed
    for at in range(len(shape) - 1, -1, -1):
        if shape[at] == -1:
            shape[at], left = left, 1
    if left != 1 and array.size:
        raise _unfit(spec, array.size)
    return array.reshape(shape)


def _unfit(spec: TensorSpec, count: int) -> Exception:
    return bad(
        f"input {spec.name!r} has {count} elements, which do not fill the shape {list(spec.shape)}",
        code="bad-shape",
    )


def _encoder(model: CodecModel, ident: str, stream: bool) -> Encode:
    head = {"model_name": model.name, "model_version": model.version}
    if ident:
        head = {"id": ident, **head}

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        told: dict[str, Any] = {**head, **parameters_of(outputs)}
        for name, array in outputs.items():
            listed = dump_json(data_of(array.reshape(-1), name))
            told[name] = orjson.Fragment(listed[1:-1] if array.size == 1 else listed)
        written = dump_json(told)
        return (b"data: %b\n\n" % written, EVENTS_META) if stream else (written, _WHOLE)

    return encode
