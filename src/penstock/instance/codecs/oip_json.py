"""Open Inference Protocol version 2 over HTTP: JSON tensors and the binary tensor extension.

A request is JSON, or JSON of a stated length followed by raw tensors; the answer has the same two
forms. Tensors' `parameters` that the protocol defines (`binary_data`, `binary_data_size`,
`classification`) have effect; the request's own are in the decoded request (`request_parameters`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs.base import (
    JSON,
    TRITON_BINARY,
    CodecModel,
    Decoded,
    Encode,
    Tensors,
    bad,
    check_inputs,
    input_spec,
    refuse_shared_memory,
)
from penstock.instance.codecs.json_numbers import data_of, parse_body, tensor_of
from penstock.instance.codecs.request_parameters import metadata_of
from penstock.instance.codecs.values import cast, dump_json
from penstock.runtimes.infer_metadata import InferAnswer, parameters_of
from penstock.runtimes.tensor_bytes import ELEMENT_BYTES, decode_raw, encode_raw, name_of, objects
from penstock.wire.frames import ReplyMeta, encode_reply_meta


class OutputSpec(NamedTuple):
    name: str
    binary: bool
    classes: int  #: classification extension: the n best as "score:index"; 0 = the tensor itself


def pick(wanted: list[OutputSpec], outputs: Tensors) -> Iterator[tuple[OutputSpec, np.ndarray]]:
    """The requested outputs in order; if none are requested, all."""
    if not wanted:
        for name, array in outputs.items():
            yield OutputSpec(name, False, 0), array
        return
    for want in wanted:
        if want.name not in outputs:
            if isinstance(outputs, InferAnswer):  # as in Triton, code may answer with fewer
                continue
            raise ModelError(
                "output-missing",
                f"the model did not answer output {want.name!r}; it gave {', '.join(outputs)}",
            )
        yield want, outputs[want.name]


def dtype_of(array: np.ndarray, promised: str | None, name: str) -> str:
    """The dtype of the answer: the metadata's, where the array can be converted. Raises ModelError
    for bytes in the place of numbers and the reverse."""
    given = name_of(array)
    if promised is None or promised == given:
        return given
    if "BYTES" in (promised, given):
        raise ModelError(
            "output-dtype",
            f"the model answered output {name!r} as {given}, its configuration says {promised}",
            hint="Make the model's code and its configuration agree.",
        )
    return promised


def classified(
    array: np.ndarray, classes: int, batched: bool, labels: Sequence[str] = ()
) -> np.ndarray:
    """The best classes of each row as BYTES `score:index`, or `score:index:label`, best first."""
    flat = array.reshape(len(array) if batched else 1, -1)
    count = min(classes, flat.shape[1])
    order = np.argsort(-flat.astype(np.float64), axis=1, kind="stable")[:, :count]
    names = {at: f":{label}" for at, label in enumerate(labels) if label}
    items = [
        f"{flat[row, at]:f}:{at}{names.get(at, '')}".encode()
        for row in range(len(flat))
        for at in order[row].tolist()
    ]
    shaped = objects(items).reshape(len(flat), count)
    return shaped if batched else shaped[0]


def answered(model: CodecModel, want: OutputSpec, array: np.ndarray) -> np.ndarray:
    """What an answer says of an output: its values, or its best classes."""
    if not want.classes:
        return array
    return classified(array, want.classes, model.batched, model.labels.get(want.name, ()))


_JSON_META = encode_reply_meta(ReplyMeta(content_type=JSON))


def is_oip(parsed: Any) -> bool:
    """Whether a body is a v2 request and not `{"inputs": rows}`: v2 inputs are objects with a
    shape."""
    if not isinstance(parsed, dict):
        return False
    inputs = parsed.get("inputs")
    return (
        isinstance(inputs, list)
        and bool(inputs)
        and isinstance(inputs[0], dict)
        and {"name", "shape", "datatype"} <= inputs[0].keys()
    )


def decode(
    model: CodecModel, body: bytes, json_header_bytes: int | None, *, sagemaker: bool = False
) -> Decoded:
    """`json_header_bytes` None: the body is JSON alone. `sagemaker`: a binary answer gets Triton's
    media type with the header length, because InvokeEndpoint has no header for it."""
    if json_header_bytes is None:
        return decode_parsed(model, parse_body(body), memoryview(b""), sagemaker=sagemaker)
    if json_header_bytes == 0 and not sagemaker:
        return _decode_bare(model, body)
    if not 0 < json_header_bytes <= len(body):
        raise bad(
            f"the JSON header is said to have {json_header_bytes} bytes, the body has {len(body)}"
        )
    parsed = parse_body(body[:json_header_bytes])
    return decode_parsed(model, parsed, memoryview(body)[json_header_bytes:], sagemaker=sagemaker)


def decode_parsed(
    model: CodecModel, parsed: Any, binary: memoryview, *, sagemaker: bool = False
) -> Decoded:
    if not isinstance(parsed, dict) or not isinstance(parsed.get("inputs"), list):
        raise bad('a request needs "inputs", a list of tensors')
    specs = {spec.name: spec for spec in model.inputs}
    tensors: Tensors = {}
    at = 0
    for entry in parsed["inputs"]:
        name, dtype, shape, parameters = _described(entry)
        spec = input_spec(specs, name)
        if name in tensors:
            raise bad(f"input {name!r} came twice")
        if dtype != spec.dtype:
            raise bad(f"input {name!r} takes {spec.dtype}, {dtype[:20]} came", code="bad-dtype")
        size = parameters.get("binary_data_size")
        if size is None:
            tensors[name] = _json_tensor(entry, spec.dtype, shape, name)
            continue
        if type(size) is not int or not 0 <= size <= len(binary) - at:
            raise bad(
                f"input {name!r} claims {size} bytes of binary data, {len(binary) - at} are left"
            )
        tensors[name] = raw_tensor(binary[at : at + size], dtype, shape, name)
        at += size
    if at != len(binary):
        raise bad(f"{len(binary) - at} bytes of binary data belong to no input")
    wanted = _wanted(model, parsed)
    ident = parsed.get("id")
    ident = "" if ident is None else ident
    if not isinstance(ident, str):
        raise bad("id is not a string")
    names = tuple(each.name for each in wanted)
    metadata = metadata_of(ident, _parameters(parsed, ""), names)
    encode = _encoder(model, wanted, ident, sagemaker)
    return Decoded(tensors, check_inputs(model, tensors), encode, metadata)


def _decode_bare(model: CodecModel, body: bytes) -> Decoded:
    """A body that is the bytes of the one input, without any JSON: its shape follows from their
    number, and the outputs are answered in bytes (Triton's "raw binary request")."""
    if len(model.inputs) != 1:
        raise bad(f"a body without a JSON header is one tensor; the model has {len(model.inputs)}"
                  " inputs")  # fmt: skip
    spec = model.inputs[0]
    name, dtype = spec.name, spec.dtype
    shape = [1, *spec.shape[1:]] if model.batched else list(spec.shape)
    if shape.count(-1) > 1:
        raise bad(f"input {name!r} has more than one free dimension: send a JSON header with its"
                  " shape", code="bad-shape")  # fmt: skip
    if dtype == "BYTES":
        if set(shape) != {1}:
            raise bad(f"input {name!r} takes bytes only with the shape [1]: send a JSON header",
                      code="bad-shape")  # fmt: skip
        array = objects([body]).reshape(shape)
    else:
        row_bytes = ELEMENT_BYTES[dtype] * math.prod(size for size in shape if size != -1)
        shape = [len(body) // row_bytes if size == -1 else size for size in shape]
        array = raw_tensor(body, dtype, shape, name)
    tensors: Tensors = {name: array}
    wanted = [OutputSpec(each.name, True, 0) for each in model.outputs]
    metadata = metadata_of("", {}, tuple(each.name for each in wanted))
    encode = _encoder(model, wanted, "", False)
    return Decoded(tensors, check_inputs(model, tensors), encode, metadata)


def _described(entry: Any) -> tuple[str, str, list[int], Mapping[str, Any]]:
    if not isinstance(entry, dict):
        raise bad("each of inputs is an object with name, datatype, shape and data")
    name, dtype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if not isinstance(name, str) or not isinstance(dtype, str) or not isinstance(shape, list):
        raise bad("each of inputs needs name and datatype (strings) and shape (a list)")
    if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 32:
        raise bad(f"input {name[:80]!r} has the shape {str(shape)[:200]}", code="bad-shape")
    parameters = _parameters(entry, f"input {name[:80]!r}")
    refuse_shared_memory(parameters, f"input {name[:80]!r}")
    return name, dtype, shape, parameters


def _json_tensor(entry: Mapping[str, Any], dtype: str, shape: list[int], name: str) -> np.ndarray:
    """`data` may be flat or nested; only its number of elements is checked."""
    if not isinstance(entry.get("data"), list):
        raise bad(f"input {name!r} has no data")
    return reshaped(tensor_of(entry["data"], dtype, name), shape, name)


def raw_tensor(data: bytes | memoryview, dtype: str, shape: list[int], name: str) -> np.ndarray:
    """Raises ModelError where the number of bytes does not match dtype and shape."""
    try:
        return decode_raw(data, dtype, shape)
    except ValueError as error:
        raise bad(f"input {name!r}: {error}", code="bad-shape") from None


def reshaped(array: np.ndarray, shape: list[int], name: str) -> np.ndarray:
    try:
        return array.reshape(shape)
    except ValueError:
        raise bad(
            f"input {name!r}: shape {shape} does not hold the {array.size} elements that came",
            code="bad-shape",
        ) from None


def _wanted(model: CodecModel, parsed: Mapping[str, Any]) -> list[OutputSpec]:
    parameters = _parameters(parsed, "")
    binary_default = _flag(parameters, "binary_data_output", False, "the request")
    requested = parsed.get("outputs")
    if requested is not None and not isinstance(requested, list):
        raise bad("outputs is not a list")
    if not requested:
        return [OutputSpec(spec.name, binary_default, 0) for spec in model.outputs]
    wanted = []
    for entry in requested:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise bad("each of outputs is an object with a name")
        own = _parameters(entry, f"output {entry['name'][:80]!r}")
        classes = own.get("classification", 0)
        if type(classes) is not int or classes < 0:
            raise no_classes(entry["name"])
        of = f"output {entry['name'][:80]!r}"
        refuse_shared_memory(own, of)
        binary = _flag(own, "binary_data", binary_default, of)
        wanted.append(OutputSpec(entry["name"], binary, classes))
    return known_outputs(model, wanted)


def _parameters(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Of a tensor, or of the request where `name` is empty; left out and null are none."""
    given = of.get("parameters")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise bad(
            f"the parameters of {name} are not an object" if name else "parameters is not an object"
        )
    return given


def _flag(parameters: Mapping[str, Any], name: str, default: bool, of: str) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise bad(f"parameter {name} of {of} is true or false, {str(value)[:80]!r} came")
    return value


def no_classes(output: str) -> ModelError:
    return bad(f"classification of output {output[:80]!r} is not a number of classes")


def known_outputs(model: CodecModel, wanted: list[OutputSpec]) -> list[OutputSpec]:
    """`wanted`, if the model has them all; of an output that is named again the first counts.
    Raises ModelError."""
    known = [spec.name for spec in model.outputs]
    first: dict[str, OutputSpec] = {}
    for each in wanted:
        if known and each.name not in known:
            raise bad(f"output {each.name[:80]!r} is not one of the model's: {', '.join(known)}")
        first.setdefault(each.name, each)
    return list(first.values())


def _encoder(model: CodecModel, wanted: list[OutputSpec], ident: str, sagemaker: bool) -> Encode:
    dtypes = {spec.name: spec.dtype for spec in model.outputs}

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        head: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
        if ident:
            head["id"] = ident
        if parameters := parameters_of(outputs):
            head["parameters"] = dict(parameters)
        entries, parts = [], []
        for want, array in pick(wanted, outputs):
            values = answered(model, want, array)
            promised = None if want.classes else dtypes.get(want.name)
            dtype = dtype_of(values, promised, want.name)
            entry: dict[str, Any] = {
                "name": want.name,
                "datatype": dtype,
                "shape": list(values.shape),
            }
            if want.binary:
                raw = encode_raw(_as(values, dtype), dtype)
                entry["parameters"] = {"binary_data_size": len(raw)}
                parts.append(raw)
            else:
                entry["data"] = data_of(_as(values, dtype).reshape(-1), want.name)
            entries.append(entry)
        head["outputs"] = entries
        written = dump_json(head)
        if not parts:
            return written, _JSON_META
        return b"".join((written, *parts)), _binary_meta(len(written), sagemaker)

    return encode


def _as(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in the dtype of the metadata; raises where values would change."""
    if dtype in ELEMENT_BYTES and array.dtype.kind in "fiub":
        return array if dtype == "BF16" or name_of(array) == dtype else cast(array, dtype, "output")
    return array


def _binary_meta(json_bytes: int, sagemaker: bool) -> bytes:
    kind = (
        f"{TRITON_BINARY};json-header-size={json_bytes}"
        if sagemaker
        else "application/octet-stream"
    )
    return encode_reply_meta(ReplyMeta(content_type=kind, json_header_bytes=json_bytes))
