"""Open Inference Protocol over gRPC: `ModelInferRequest` bytes in, `ModelInferResponse` bytes out.

The gateway passes the message on unread. Tensors come as raw bytes or as typed contents; the answer
is always raw, which clients read fastest and the protocol allows for any request.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from penstock.instance.codecs.base import (
    OIP_GRPC,
    CodecModel,
    Decoded,
    Tensors,
    bad,
    check_inputs,
    input_spec,
    refuse_shared_memory,
)
from penstock.instance.codecs.oip_json import (
    OutputSpec,
    answered,
    dtype_of,
    known_outputs,
    no_classes,
    pick,
    raw_tensor,
    reshaped,
)
from penstock.instance.codecs.request_parameters import metadata_of
from penstock.instance.codecs.values import cast
from penstock.runtimes.infer_metadata import parameters_of
from penstock.runtimes.tensor_bytes import encode_raw, objects, raw_buffer
from penstock.wire.frames import ReplyMeta, encode_reply_meta
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse
from penstock.wire.protobuf_fields import NotProtobufError, apart, bytes_head

_META: Final = encode_reply_meta(ReplyMeta(content_type=OIP_GRPC))

#: Numbers of the fields of raw contents
_RAW_INPUTS: Final = 7
_RAW_OUTPUTS: Final = 6
#: From here on, looking for the raw contents costs less than copying them.
_LARGE_BYTES: Final = 16 << 10

#: Dtype -> the field of InferTensorContents for it; FP16 and BF16 have only the raw form.
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}

#: Type of a parameter -> its field of InferParameter.
_PARAMETER_FIELDS: Final = {
    bool: "bool_param",
    int: "int64_param",
    float: "double_param",
    str: "string_param",
}


def parse(body: bytes) -> Any:
    try:
        return ModelInferRequest.FromString(body)
    except (DecodeError, struct.error, ValueError) as error:
        raise bad(f"the body is not a ModelInferRequest: {error}", code="bad-protobuf") from None


def decode(model: CodecModel, body: bytes) -> Decoded:
    if len(body) < _LARGE_BYTES:
        return decode_parsed(model, parse(body))
    try:
        rest, raw = apart(body, _RAW_INPUTS)
    except NotProtobufError:
        return decode_parsed(model, parse(body))  # which says what is wrong
    return decode_parsed(model, parse(rest), raw)


def decode_parsed(
    model: CodecModel, request: Any, raw: Sequence[bytes | memoryview] = ()
) -> Decoded:
    """`raw`: the raw contents, where they were left out of what was parsed."""
    specs = {spec.name: spec for spec in model.inputs}
    raw = raw or request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise bad(f"{len(request.inputs)} inputs have {len(raw)} raw contents: send one for each")
    tensors: Tensors = {}
    for at, entry in enumerate(request.inputs):
        name, shape = entry.name, list(entry.shape)
        spec = input_spec(specs, name)
        if name in tensors:
            raise bad(f"input {name!r} came twice")
        if entry.datatype != spec.dtype:
            raise bad(
                f"input {name!r} takes {spec.dtype}, {entry.datatype[:20]} came", code="bad-dtype"
            )
        if min(shape, default=0) < 0 or len(shape) > 32:
            raise bad(f"input {name!r} has the shape {shape[:40]}", code="bad-shape")
        refuse_shared_memory(entry.parameters, f"input {name!r}")
        if raw:
            _check_no_contents(entry)
            tensors[name] = raw_tensor(raw[at], spec.dtype, shape, name)
        else:
            tensors[name] = _contents(entry, spec.dtype, shape, name)
    rows = check_inputs(model, tensors)
    wanted = _wanted(model, request)
    ident = request.id
    given = {name: parameter_of(value) for name, value in request.parameters.items()}
    metadata = metadata_of(ident, given, tuple(each.name for each in wanted))
    return Decoded(
        tensors, rows, lambda outputs: (_encode(model, outputs, wanted, ident), _META), metadata
    )


def parameter_of(value: Any) -> Any:
    """The value of an `InferParameter`; None where none is set."""
    kind = value.WhichOneof("parameter_choice")
    return getattr(value, kind) if kind else None


def _check_no_contents(entry: Any) -> None:
    """A tensor that came in both forms may have two values, so neither is taken."""
    if entry.HasField("contents"):
        raise bad(
            f"input {entry.name!r} has contents, and the request has raw_input_contents:"
            " send one of the two"
        )


def _contents(entry: Any, dtype: str, shape: list[int], name: str) -> np.ndarray:
    field = _CONTENTS.get(dtype)
    if field is None:
        raise bad(f"input {name!r} is {dtype}, which is sent in raw_input_contents only")
    others = [each.name for each, _ in entry.contents.ListFields() if each.name != field]
    if others:  # the tensor may have two values, so neither is taken
        raise bad(f"input {name!r} is {dtype} and has {others[0]}: send {field} alone")
    values = getattr(entry.contents, field)
    if dtype == "BYTES":
        return reshaped(objects(list(values)), shape, name)
    array = np.array(values, dtype=np.bool_ if dtype == "BOOL" else None)
    return reshaped(cast(array, dtype, name), shape, name)


def _wanted(model: CodecModel, request: Any) -> list[OutputSpec]:
    if not request.outputs:
        return [OutputSpec(spec.name, True, 0) for spec in model.outputs]
    wanted = []
    for entry in request.outputs:
        refuse_shared_memory(entry.parameters, f"output {entry.name!r}")
        classes = 0
        if "classification" in entry.parameters:
            given = parameter_of(entry.parameters["classification"])
            if type(given) is not int or given < 1:
                raise no_classes(entry.name)
            classes = given
        wanted.append(OutputSpec(entry.name, True, classes))
    return known_outputs(model, wanted)


def _final_mark() -> bytes:
    made = ModelInferResponse()
    made.parameters["triton_final_response"].bool_param = True
    return bytes(made.SerializeToString())


def _encode(model: CodecModel, outputs: Tensors, wanted: list[OutputSpec], ident: str) -> bytes:
    response = ModelInferResponse(model_name=model.name, model_version=model.version, id=ident)
    for name, value in parameters_of(outputs).items():
        setattr(response.parameters[name], _PARAMETER_FIELDS[type(value)], value)
    dtypes = {spec.name: spec.dtype for spec in model.outputs}
    contents: list[bytes | memoryview] = []
    for want, array in pick(wanted, outputs):
        values = answered(model, want, array)
        dtype = dtype_of(values, None if want.classes else dtypes.get(want.name), want.name)
        response.outputs.add(name=want.name, datatype=dtype, shape=values.shape)
        raw = raw_buffer(values, dtype)
        # Written by us, since the message would copy it, and its bytes again.
        contents += (bytes_head(_RAW_OUTPUTS, len(raw)), raw)
    return b"".join((response.SerializeToString(), *contents))


#: What marks a response as the last one, behind any other message: fields of messages add up.
FINAL_MARK: Final = _final_mark()


def stream_message(
    model: str, version: str, ident: str, columns: Mapping[str, list[bytes]], *, last: bool
) -> bytes:
    """One message of an answer that may have several: BYTES [n] tensors, and whether it is the
    last. Triton's clients look for that in `triton_final_response`."""
    made = ModelInferResponse(model_name=model, model_version=version, id=ident)
    made.parameters["triton_final_response"].bool_param = last
    for name, items in columns.items():
        made.outputs.add(name=name, datatype="BYTES", shape=(len(items),))
        made.raw_output_contents.append(encode_raw(objects(items), "BYTES"))
    return bytes(made.SerializeToString())
