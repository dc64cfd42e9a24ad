"""`input` and `output` of a Triton configuration: names, types, shapes, reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.triton.pbtxt import Fields
from penstock.artifacts.triton.refused_fields import REFUSED
from penstock.errors import CallerError

_DTYPES = {
    "TYPE_BOOL": "BOOL", "TYPE_UINT8": "UINT8", "TYPE_UINT16": "UINT16", "TYPE_UINT32": "UINT32",
    "TYPE_UINT64": "UINT64", "TYPE_INT8": "INT8", "TYPE_INT16": "INT16", "TYPE_INT32": "INT32",
    "TYPE_INT64": "INT64", "TYPE_FP16": "FP16", "TYPE_FP32": "FP32", "TYPE_FP64": "FP64",
    "TYPE_STRING": "BYTES", "TYPE_BF16": "BF16",
}  # fmt: skip
_FORMATS = ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTensor:
    """One entry of `input` or `output`."""

    spec: TensorSpec  #: as requests have it
    reshape: tuple[int, ...] | None = None  #: as the model has it; None: as `spec`, without rows
    optional: bool = False
    label_file: str = ""  #: path below the model's folder


def read_tensors(
    top: Fields, side: str, rows_max: int, where: str, *, ragged: bool = False
) -> tuple[ConfiguredTensor, ...]:
    """The entries of `side`, which is input or output. `ragged`: the model gets each request by
    itself, so shapes may differ whatever the configuration says. Raises CallerError."""
    read = tuple(_tensor(item, side, rows_max, ragged) for item in top.messages(side))
    refuse_duplicates(tuple(each.spec for each in read), where, side)
    return read


def refuse_duplicates(specs: tuple[TensorSpec, ...], where: str, side: str) -> None:
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise CallerError(
                "triton-config-invalid",
                f"{where}: the {side} {spec.name!r} is given twice",
                hint="Each tensor has one entry.",
            )
        names.add(spec.name)


def _tensor(item: Fields, side: str, rows_max: int, ragged: bool) -> ConfiguredTensor:
    name = item.text("name")
    if not name:
        raise item.invalid("name", name, "a tensor's name")
    dtype = read_dtype(item)
    dims = item.integers("dims", low=-1)
    if not dims:
        raise item.invalid("dims", "missing", "at least one dimension, -1 for any size")
    if 0 in dims:
        raise item.invalid("dims", "0", "sizes above 0, or -1 for any")
    refused = ("is_shape_tensor", "is_non_linear_format_io")
    for flag in (*refused, "allow_ragged_batch") if side == "input" else refused:
        if item.flag(flag) and not (ragged and flag == "allow_ragged_batch"):
            cause, hint = REFUSED[flag]
            raise item.unsupported(flag, cause, hint=hint)
    optional = False
    label_file = ""
    if side == "input":
        # it says how to read the dims, and changes nothing
        item.choice("format", _FORMATS, "FORMAT_NONE")
        optional = item.flag("optional")
    else:
        label_file = item.text("label_filename")
    reshape = _reshape(item, dims)
    item.done()
    return ConfiguredTensor(
        spec=TensorSpec(name=name, dtype=dtype, shape=(-1, *dims) if rows_max > 0 else dims),
        reshape=reshape,
        optional=optional,
        label_file=label_file,
    )


def read_dtype(tensor: Fields) -> str:
    named = tensor.choice("data_type", _DTYPES, "")
    if not named:
        raise tensor.invalid("data_type", "missing", f"one of {', '.join(_DTYPES)}")
    return _DTYPES[named]


def _reshape(item: Fields, dims: tuple[int, ...]) -> tuple[int, ...] | None:
    given = item.message("reshape")
    if given is None:
        return None
    shape = given.integers("shape", low=-1)
    given.done()
    if 0 in shape:
        raise item.invalid("reshape.shape", "0", "sizes above 0, or -1 for any")
    if _between_free(dims) != _between_free(shape):
        raise item.invalid(
            "reshape.shape",
            list(shape),
            f"of as many elements as the dims, {list(dims)}, between one -1 and the next",
        )
    return None if shape == dims else shape


def _between_free(shape: Sequence[int]) -> list[int]:
    """The number of elements before, between and behind the free sizes: what a reshape keeps."""
    parts = [1]
    for size in shape:
        if size == -1:
            parts.append(1)
        else:
            parts[-1] *= size
    return parts
