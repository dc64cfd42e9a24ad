"""What an ONNX file says of itself, read without the library onnx and without its weights.

An ONNX file is one protocol buffer. What precedes its weights is enough to choose a runtime (string
tensors), and to see whether the first dimension is declared as the batch. Field numbers are those
of onnx.proto3, where they can't change.

Converters of scikit-learn, XGBoost and LightGBM end a classifier with the operator ZipMap, which
gives each probability the label of its class: an attribute of the operator, so it is known before
the model is run.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from penstock.errors import CallerError

#: onnx.TensorProto.DataType -> dtype of the Open Inference Protocol
_DTYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES",
    9: "BOOL", 10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGERS, _ATTRIBUTE_STRINGS = 1, 8, 9
_TENSOR_NAME = 8
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR = 1
_TENSOR_TYPE_ELEMENT, _TENSOR_TYPE_SHAPE = 1, 2
_SHAPE_DIM = 1
_DIM_VALUE, _DIM_NAME = 1, 2

_Span: TypeAlias = tuple[int, int]
_Field: TypeAlias = tuple[int, int | _Span]


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """One input or output. `dims` is None for an unknown rank; a text in it is a free dimension."""

    name: str
    dtype: str  #: "" for a type without a name in the Open Inference Protocol
    dims: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class OnnxHeader:
    """The inputs and outputs of a graph."""

    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]

    def has_strings(self) -> bool:
        return any(tensor.dtype == "BYTES" for tensor in (*self.inputs, *self.outputs))

    def is_batched(self) -> bool:
        """Whether every tensor declares the same free first dimension, called a batch.

        A free first dimension alone proves nothing: it may be the length of a sequence.
        """
        names = {
            tensor.dims[0] if tensor.dims else None for tensor in (*self.inputs, *self.outputs)
        }
        if len(names) != 1:
            return False
        name = names.pop()
        return isinstance(name, str) and ("batch" in name.lower() or name in ("N", "B", "bs"))


def read_header(path: Path, *, shown: str) -> OnnxHeader:
    """Reads inputs and outputs of the graph; `shown` is the file's name in messages.

    Raises `CallerError` (`model-file-invalid`) if the file is no ONNX file, or not a whole one.
    """
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _graph(data, _graph_span(data))
    except ValueError as error:  # also an empty file, which can't be mapped
        raise CallerError(
            "model-file-invalid",
            f"{shown}: not a whole ONNX file: {error}",
            hint="Export the model again, or compare the file's size with the original: a copy "
            "may have been cut short.",
        ) from error


def _graph_span(data: mmap.mmap) -> _Span:
    span = None
    for number, value in _fields(data, (0, len(data))):
        if number == _MODEL_GRAPH and isinstance(value, tuple):
            span = value
    if span is None:
        raise ValueError("it holds no graph")
    return span


def _graph(data: mmap.mmap, span: _Span) -> OnnxHeader:
    inputs: list[OnnxTensor] = []
    outputs: list[OnnxTensor] = []
    weights: set[str] = set()
    for number, value in _fields(data, span):
        if not isinstance(value, tuple):
            continue
        if number == _GRAPH_INITIALIZER:
            weights.update(
                _text(data, name)
                for field, name in _fields(data, value)
                if field == _TENSOR_NAME and isinstance(name, tuple)
            )
        elif number == _GRAPH_INPUT:
            inputs.append(_tensor(data, value))
        elif number == _GRAPH_OUTPUT:
            outputs.append(_tensor(data, value))
    if not outputs:
        raise ValueError("its graph has no outputs")
    # The first ONNX versions list the weights among the inputs.
    return OnnxHeader(
        tuple(tensor for tensor in inputs if tensor.name not in weights), tuple(outputs)
    )


def _tensor(data: mmap.mmap, span: _Span) -> OnnxTensor:
    name, dtype = "", ""
    dims: tuple[int | str, ...] | None = None
    for number, value in _fields(data, span):
        if number == _VALUE_NAME and isinstance(value, tuple):
            name = _text(data, value)
        elif number == _VALUE_TYPE and isinstance(value, tuple):
            for kind, inner in _fields(data, value):
                if kind == _TYPE_TENSOR and isinstance(inner, tuple):
                    dtype, dims = _tensor_type(data, inner)
    return OnnxTensor(name, dtype, dims)


def _tensor_type(data: mmap.mmap, span: _Span) -> tuple[str, tuple[int | str, ...] | None]:
    dtype = ""
    dims: tuple[int | str, ...] | None = None
    for number, value in _fields(data, span):
        if number == _TENSOR_TYPE_ELEMENT and isinstance(value, int):
            dtype = _DTYPES.get(value, "")
        elif number == _TENSOR_TYPE_SHAPE and isinstance(value, tuple):
            dims = tuple(
                _dim(data, dim)
                for field, dim in _fields(data, value)
                if field == _SHAPE_DIM and isinstance(dim, tuple)
            )
    return dtype, dims


def _dim(data: mmap.mmap, span: _Span) -> int | str:
    for number, value in _fields(data, span):
        if number == _DIM_VALUE and isinstance(value, int):
            return value
        if number == _DIM_NAME and isinstance(value, tuple):
            return _text(data, value)
    return ""


def _text(data: mmap.mmap, span: _Span) -> str:
    return data[span[0] : span[1]].decode()  # UnicodeDecodeError is a ValueError


#: A class of a classifier.
Label: TypeAlias = int | str


def class_labels(path: Path, outputs: Iterable[str]) -> dict[str, tuple[Label, ...]]:
    """The classes of those `outputs` that a ZipMap makes, in the order of their probabilities.

    Raises ValueError for what is no whole ONNX file.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        nodes: dict[str, _Node] = {}
        for number, value in _fields(data, _graph_span(data)):
            if number == _GRAPH_NODE and isinstance(value, tuple):
                made = _node(data, value)
                nodes |= dict.fromkeys(made.outputs, made)
        known = {output: nodes[output] for output in outputs if output in nodes}
        found = {
            output: _labels(data, node)
            for output, node in known.items()
            if node.operator == "ZipMap"
        }
        return {output: labels for output, labels in found.items() if labels}


def operators_of(path: Path) -> tuple[str, ...]:
    """The operators of the graph, without those of graphs inside it: the names of the standard's,
    domain.name of others.

    Raises ValueError for what is no whole ONNX file.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        nodes = [
            _node(data, value)
            for number, value in _fields(data, _graph_span(data))
            if number == _GRAPH_NODE and isinstance(value, tuple)
        ]
    standard = ("", "ai.onnx")
    return tuple(
        dict.fromkeys(
            node.operator if node.domain in standard else f"{node.domain}.{node.operator}"
            for node in nodes
        )
    )


@dataclass(frozen=True, slots=True)
class _Node:
    domain: str
    operator: str
    outputs: tuple[str, ...]
    attributes: tuple[_Span, ...]


def _node(data: mmap.mmap, span: _Span) -> _Node:
    domain = operator = ""
    outputs: list[str] = []
    attributes: list[_Span] = []
    for number, value in _fields(data, span):
        if not isinstance(value, tuple):
            continue
        if number == _NODE_OPERATOR:
            operator = _text(data, value)
        elif number == _NODE_DOMAIN:
            domain = _text(data, value)
        elif number == _NODE_OUTPUT:
            outputs.append(_text(data, value))
        elif number == _NODE_ATTRIBUTE:
            attributes.append(value)
    return _Node(domain, operator, tuple(outputs), tuple(attributes))


def _labels(data: mmap.mmap, node: _Node) -> tuple[Label, ...]:
    for span in node.attributes:
        name, labels = "", list[Label]()
        for number, value in _fields(data, span):
            if number == _ATTRIBUTE_NAME and isinstance(value, tuple):
                name = _text(data, value)
            elif number == _ATTRIBUTE_STRINGS and isinstance(value, tuple):
                labels.append(_text(data, value))
            elif number == _ATTRIBUTE_INTEGERS:
                labels += map(_signed, [value] if isinstance(value, int) else _packed(data, value))
        if name in ("classlabels_int64s", "classlabels_strings"):
            return tuple(labels)
    return ()


def _packed(data: mmap.mmap, span: _Span) -> Iterator[int]:
    at, end = span
    while at < end:
        value, at = _varint(data, at, end)
        yield value


def _signed(value: int) -> int:
    """A negative integer is written as its two's complement of 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _fields(data: mmap.mmap, span: _Span) -> Iterator[_Field]:
    """(number, value) of each field; a length-delimited value is its span, unread."""
    at, end = span
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            integer, at = _varint(data, at, end)
            yield number, integer
        elif wire == 2:
            length, at = _varint(data, at, end)
            if length > end - at:
                raise ValueError(f"{length} bytes should follow at byte {at}, and {end - at} do")
            yield number, (at, at + length)
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {at - 1} is not a field")
    if at != end:
        raise ValueError(f"it ends inside a field at byte {end}")


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"it ends inside a number at byte {at}")
