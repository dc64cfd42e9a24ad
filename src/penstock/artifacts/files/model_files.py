"""Model files below an artifact's root: finds the right one, and checks that it is whole.

A file that was cut short is refused here by its name, before a runtime aborts on it. No weights
are read: ONNX is skipped through by its lengths, and OpenVINO's IR states its weights' size.

An ONNX file is one protocol buffer. What precedes its weights is enough to choose a runtime (string
tensors), and to see whether the first dimension is declared as the batch; no onnx is imported.
Field numbers are those of onnx.proto3, where they can't change.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from penstock.artifacts.files.listing import CHUNK_BYTES
from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError

#: onnx.TensorProto.DataType -> dtype of the Open Inference Protocol
_DTYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES",
    9: "BOOL", 10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 5, 11, 12
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


#: Exporters write these beside the model; they are no models to be served.
_COMPANIONS = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
_USUAL_NAMES = (
    "model.xml", "openvino_model.xml", "model.onnx", "model_quantized.onnx",
    "xgboost-model", "model.ubj", "model.json", "model.txt", "model.cbm", "model.skops",
    "model.joblib", "model.pkl", "model.pickle",
)  # fmt: skip
#: Most rows that are joined for a graph with a declared batch dimension; no request waits for it.
_BATCHED_ROWS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a model file says about itself."""

    has_strings: bool = False  #: whether it has tensors of text
    #: most rows that may be joined; 0 = the file does not say which dimension is the batch
    rows_max: int = 0
    #: requirements of the libraries that made it, such as "xgboost==2.0.3"
    framework: tuple[str, ...] = ()


def is_graph(path: Path) -> bool:
    """Whether an .xml file is OpenVINO's, which its first bytes show."""
    if path.suffix != ".xml":
        return True
    with open(path, "rb") as file:
        return b"<net" in file.read(4096)


def find_model_file(
    root: Path,
    suffixes: Iterable[str | tuple[str, ...]],
    is_model: Callable[[Path], bool] = is_graph,
) -> str:
    """The model file at the top of `root`, of the first suffix that has any; "" if none has. A
    tuple's suffixes are equally good.

    Raises `CallerError` (`artifact-ambiguous`) if several could be meant.
    """
    files = sorted(path for path in root.iterdir() if path.is_file())
    for suffix in suffixes:
        names = [
            path.name
            for path in files
            if path.name.endswith(suffix) and path.name not in _COMPANIONS and is_model(path)
        ]
        if len(names) > 1:
            usual = [name for name in _USUAL_NAMES if name in names]
            if not usual:
                raise CallerError(
                    "artifact-ambiguous",
                    f"several model files: {', '.join(shown(name) for name in names[:10])}",
                    hint="Add a model.yaml that says `file: ...`, or pack one model per artifact.",
                )
            names = usual
        if names:
            return names[0]
    return ""


def inside(root: Path, name: str, *, key: str) -> Path:
    """The existing file `name` below `root`. `key` is the setting that names it, for errors.

    Raises `CallerError` (`artifact-incomplete`, `artifact-path-unsafe`).
    """
    path = root / safe_path(name, where=key)
    if not path.is_file():
        raise CallerError(
            "artifact-incomplete",
            f"{key} names {shown(name)}, which is not in the artifact",
            hint="Pack the file with the model, or correct the name.",
        )
    if not path.resolve().is_relative_to(root.resolve()):
        raise CallerError(
            "artifact-path-unsafe",
            f"{key} names {shown(name)}, which is a link out of the artifact",
            hint="Put the file itself into the artifact.",
        )
    return path


def check_whole(root: Path, name: str) -> OnnxHeader | None:
    """Checks a model file; returns what an ONNX file says about its tensors.

    Raises `CallerError` (`model-file-invalid`, `artifact-incomplete`).
    """
    if name.endswith(".onnx"):
        return read_header(root / name, shown=name)
    if name.endswith(".xml"):
        _check_ir(root, name)
    return None


def graph_facts(root: Path, name: str, trusted: bool) -> FileFacts:
    """Facts of an ONNX or IR file. Neither runs code, trusted or not. Raises as `check_whole`."""
    header = check_whole(root, name)
    if header is None:
        return FileFacts()
    # Rows are joined only where the file itself says which dimension they are.
    rows_max = _BATCHED_ROWS_MAX if header.is_batched() else 0
    return FileFacts(has_strings=header.has_strings(), rows_max=rows_max)


def _check_ir(root: Path, name: str) -> None:
    weights = root / f"{name[: -len('.xml')]}.bin"
    constants = _Constants()
    try:
        # expat reads no external entities and bounds the growth of internal ones.
        parser = ElementTree.XMLParser(target=constants)  # noqa: S314
        with open(root / name, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                parser.feed(chunk)
        parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise CallerError(
            "model-file-invalid",
            f"{name}: not a whole OpenVINO IR file: {error}",
            hint="Export the model again; a copy may have been cut short.",
        ) from error
    if not weights.is_file():
        raise CallerError(
            "artifact-incomplete",
            f"{name}: its weights {weights.name} are not beside it",
            hint="Pack the .xml and the .bin file of the IR together.",
        )
    size, needed = weights.stat().st_size, constants.needed
    if size < needed:
        raise CallerError(
            "model-file-invalid",
            f"{weights.name}: cut short: {name} refers to {needed} bytes, and it has {size}",
            hint="Copy the file again and compare its size with the original.",
        )


class _Constants:
    """Measures the weights that an IR's constants need. Each load does this, so it builds no
    tree."""

    def __init__(self) -> None:
        self.needed = 0  #: bytes that the file of weights must have

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "data" and "offset" in attributes and "size" in attributes:
            self.needed = max(self.needed, int(attributes["offset"]) + int(attributes["size"]))
