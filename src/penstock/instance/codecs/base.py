"""Shared by all codecs: the model's codec view, the decoded request, media types, checks.

A codec turns a body into rows of named tensors, and the model's rows back into a body. It knows
content types and tensor specs; it must not know queues, batches or runtimes. Any error in a body is
a `ModelError` with the status that the model itself would answer (400, 406, 413, 415), because a
platform in front of the model cannot judge what a model reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import orjson

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.tensor_bytes import NUMPY, name_of
from penstock.wire.frames import RequestMeta

JSON: Final = "application/json"
#: Names that clients use for JSON Lines; the first is SageMaker's.
JSON_LINES: Final = ("application/jsonlines", "application/x-jsonlines", "application/jsonl")
CSV: Final = "text/csv"
NPY: Final = "application/x-npy"
NPZ: Final = "application/x-npz"
OIP_GRPC: Final = "application/x-oip-grpc"
TRITON_BINARY: Final = "application/vnd.sagemaker-triton.binary+json"

Tensors = dict[str, np.ndarray]
#: Rows of the answer -> (body, wire form of `frames.ReplyMeta`).
Encode = Callable[[Tensors], tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecModel:
    """The parts of a loaded model against which bodies are checked."""

    name: str  #: the model's name in the Open Inference Protocol: the endpoint's name
    version: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool  #: True: the first dimension of every tensor is the batch
    #: Outputs whose rows are objects in JSON: name -> names of the values in a row.
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: output -> the names of its classes, by index, for Triton's classification
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()  #: inputs that a request may leave out

    def named(self, name: str) -> Self:
        return self if name == self.name else replace(self, name=name)


class HasName(Protocol):
    """Part of a model whose name is in answers."""

    def named(self, name: str) -> Self:
        """The same with another name."""


Named = TypeVar("Named", bound=HasName)
_MODEL: Final = "model"
#: Longer ones are read each time: callers choose what is in them.
_KEPT_CHARS_MAX: Final = 256


def read_parameters(meta: RequestMeta) -> Mapping[str, Any]:
    """What the door says beside the body."""
    text = meta.parameters
    if text is None:
        return {}
    return _kept(text) if len(text) <= _KEPT_CHARS_MAX else orjson.loads(text)


@lru_cache(maxsize=256)
def _kept(text: str) -> Mapping[str, Any]:
    return MappingProxyType(orjson.loads(text))


def as_asked(model: Named, meta: RequestMeta) -> Named:
    """The model under the name that the request has for it: an endpoint may be served under more
    than one, and the door says which."""
    name = read_parameters(meta).get(_MODEL)
    return model.named(name) if isinstance(name, str) and name else model


def may_have_rows(model: CodecModel) -> bool:
    """Whether all its tensors declare the same first dimension, and may have it for one that is
    declared as 1: LightGBM's converter does so.

    A model's answer has one form however it was deployed: what a description says of batches
    decides which requests are joined, and nothing about the form. So such a model answers row by
    row, as if its description said that the dimension is the batch.
    """
    if model.batched:
        return True
    taken = {spec.shape[:1] for spec in model.inputs}
    answered = {spec.shape[:1] for spec in model.outputs}
    return () not in taken | answered and len(taken) == 1 and taken <= answered <= taken | {(1,)}


def in_rows(model: CodecModel, outputs: Tensors) -> bool:
    """Whether an answer is written row by row, rather than as whole tensors."""
    if model.batched:
        return True
    if not may_have_rows(model):
        return False
    ranks = {spec.name: len(spec.shape) for spec in model.outputs}
    if any(array.ndim != ranks.get(name) for name, array in outputs.items()):
        return False
    return len({array.shape[0] for array in outputs.values()}) == 1


class Decoded:
    """A request's rows, and the encoder of its answer."""

    __slots__ = ("cache_key", "encode", "metadata", "rows", "tensors")

    def __init__(
        self,
        tensors: Tensors,
        rows: int,
        encode: Encode,
        metadata: InferMetadata | None = None,
    ) -> None:
        self.tensors = tensors
        self.rows = rows
        self.encode = encode
        #: equal where requests are the same; empty: its model keeps no answers
        self.cache_key = b""
        self.metadata = metadata  #: None where the form of the body has none


def bad(message: str, *, code: str = "bad-input", status: int = 400, hint: str = "") -> ModelError:
    """The error for a body that the model cannot read."""
    return ModelError(code, message, hint=hint, original_status=status)


def refuse_shared_memory(parameters: Mapping[str, object], what: str) -> None:
    """The gateway moves tensors in and out of shared memory; what has come so far, it did not."""
    if "shared_memory_region" in parameters:
        raise bad(
            f"{what} is in shared memory, which this server does not read here; the operator turns"
            " it on by listen.client_shared_memory = true, for requests that are no streams"
        )


def media_type(header: str | None) -> str:
    """The type without parameters, in lower case; empty if the header is missing."""
    return header.partition(";")[0].strip().lower() if header else ""


def negotiate(accept: str | None, offered: tuple[str, ...]) -> str:
    """The first acceptable of `offered` (its first is the default). Raises ModelError 406.

    Quality values are not weighed: the order of `offered` decides, as model servers do.
    """
    if not accept or accept == "*/*":
        return offered[0]
    wanted = [media_type(part) for part in accept.split(",")]
    for candidate in offered:
        for want in wanted:
            if want in ("", "*/*", candidate) or (
                want.endswith("/*") and candidate.startswith(want[:-1])
            ):
                return candidate
    raise bad(
        f"Accept is {accept[:200]!r}, this model answers {', '.join(offered)}",
        code="not-acceptable",
        status=406,
        hint="Leave Accept out, or ask for one of these types.",
    )


def input_spec(specs: Mapping[str, TensorSpec], name: str) -> TensorSpec:
    """The model's input of this name. Raises ModelError if it has none."""
    spec = specs.get(name)
    if spec is None:
        raise bad(f"input {name[:80]!r} is not one of the model's: {', '.join(sorted(specs))}")
    return spec


def check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Raises ModelError unless `shape` is one that `spec` allows and has at least one row."""
    allowed = spec.shape
    if shape == allowed:
        return
    if len(shape) == len(allowed):
        for want, have in zip(allowed, shape, strict=True):
            if want not in (-1, have):
                break
        else:
            return
    raise bad(
        f"input {spec.name!r} has shape {list(shape)}, the model takes {list(spec.shape)} "
        f"({spec.dtype}, -1 is any size)",
        code="bad-shape",
    )


def check_inputs(model: CodecModel, tensors: Tensors) -> int:
    """Checks names, shapes and that all inputs have the same rows; returns the rows."""
    rows = -1
    left_out = 0
    for spec in model.inputs:
        array = tensors.get(spec.name)
        if array is None and spec.name in model.optional:
            left_out += 1
            continue
        if array is None:
            raise bad(
                f"input {spec.name!r} is missing; the model takes "
                f"{', '.join(repr(each.name) for each in model.inputs)}"
            )
        if model.batched:
            check_shape(_any_rows(spec), array.shape)
            if rows not in (-1, array.shape[0]):
                raise bad(
                    f"input {spec.name!r} has {array.shape[0]} rows, another input has {rows}",
                    code="bad-shape",
                )
            rows = array.shape[0]
        else:
            check_shape(spec, array.shape)
    if len(tensors) > len(model.inputs) - left_out:
        known = {spec.name for spec in model.inputs}
        extra = next(name for name in tensors if name not in known)
        raise bad(f"input {extra!r} is not one of the model's: {', '.join(sorted(known))}")
    if rows == 0:
        raise bad("the request has no rows; send at least one", code="bad-shape")
    return max(rows, 1)


def check_arrays(model: CodecModel, tensors: Tensors) -> int:
    """Like `check_inputs`, for arrays that no codec has made: their dtypes are checked, too."""
    for spec in model.inputs:
        array = tensors.get(spec.name)
        if array is None:
            continue
        try:
            dtype = name_of(array)
        except ValueError as error:
            raise bad(f"input {spec.name!r}: {error}") from None
        if NUMPY[dtype] != NUMPY[spec.dtype]:
            raise bad(f"input {spec.name!r} is {dtype}, the model takes {spec.dtype}")
    return check_inputs(model, tensors)


_any_rows_cache: dict[TensorSpec, TensorSpec] = {}


def _any_rows(spec: TensorSpec) -> TensorSpec:
    """The spec with a batch dimension of any size: longer requests are split."""
    if not spec.shape or spec.shape[0] == -1:
        return spec
    free = _any_rows_cache.get(spec)
    if free is None:
        free = TensorSpec(name=spec.name, dtype=spec.dtype, shape=(-1, *spec.shape[1:]))
        if len(_any_rows_cache) > 1024:
            _any_rows_cache.clear()
        _any_rows_cache[spec] = free
    return free
