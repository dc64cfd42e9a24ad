"""NPY and NPZ bodies for tensor models. Arrays that need pickle are always refused.

The header of an NPY body may claim any shape, so it is checked against the number of bytes before
numpy allocates memory. Members of an NPZ are checked against their unpacked sizes for the same
reason.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs import answers
from penstock.instance.codecs.base import CodecModel, Decoded, bad, check_inputs, input_spec
from penstock.instance.codecs.values import cast
from penstock.runtimes.tensor_bytes import objects

UNPACKED_BYTES_MAX = 1 << 28  #: bound for all members of one NPZ together
#: Unpacked sizes up to this are always allowed. Above, a small body must not become large, although
#: arrays of zeros compress to a thousandth.
UNPACKED_FREE_BYTES = 1 << 24
UNPACKED_RATIO_MAX = 100


def decode(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    encode = answers.chosen(model, accept, answers.AFTER_NPY)
    if len(model.inputs) != 1:
        raise bad(
            f"NPY holds one array, the model has {len(model.inputs)} inputs", hint="Send NPZ."
        )
    spec = model.inputs[0]
    tensors = {spec.name: _typed(read_array(body), spec.dtype, spec.name)}
    return Decoded(tensors, check_inputs(model, tensors), encode)


def decode_npz(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    encode = answers.chosen(model, accept, answers.AFTER_NPZ)
    specs = {spec.name: spec for spec in model.inputs}
    tensors = {}
    for name, data in _members(body):
        alone = len(specs) == 1 and name == "arr_0"
        spec = model.inputs[0] if alone else input_spec(specs, name)
        tensors[spec.name] = _typed(read_array(data), spec.dtype, spec.name)
    return Decoded(tensors, check_inputs(model, tensors), encode)


def _members(body: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            room = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * len(body))
            room = min(room, UNPACKED_BYTES_MAX)
            if total > room or len(entries) > 1000:
                raise bad(f"the NPZ unpacks to {total} bytes, {room} at most", status=413)
            return [(e.filename.removesuffix(".npy"), _read(archive, e)) for e in entries]
    except ModelError:
        raise
    except Exception as error:  # zipfile raises many kinds of errors for a broken archive
        raise bad(f"the NPZ cannot be read: {error}") from None


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Reads at most the size that the directory claims: the stream itself may be longer."""
    with archive.open(entry) as member:
        return member.read(entry.file_size)


def read_array(body: bytes) -> np.ndarray:
    """An array from NPY bytes; a view of them, not a copy. Raises ModelError."""
    stream = io.BytesIO(body)
    try:
        shape, fortran, dtype = _header(stream)
    except Exception as error:  # the header is a Python literal: numpy raises its parser's errors
        raise bad(f"the NPY header cannot be read: {str(error)[:200]}") from None
    if dtype.hasobject:
        raise bad("the NPY needs pickle, which is never loaded", hint="Save it with a plain dtype.")
    if any(size < 0 for size in shape):
        raise bad(f"the NPY claims the shape {shape}", code="bad-shape")
    data = memoryview(body)[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(data) or dtype.itemsize == 0:
        raise bad(
            f"the NPY claims shape {shape} of {dtype}, which does not take the {len(data)} bytes "
            "that came"
        )
    array = np.frombuffer(data, dtype=dtype)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)


def _header(stream: io.BytesIO) -> Any:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the format is not known")


def _typed(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    if dtype != "BYTES":
        return cast(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")), dtype, name)
    if array.dtype.kind not in "SU":
        raise bad(f"input {name!r} takes BYTES, the NPY holds {array.dtype}")
    items = array.reshape(-1).tolist()
    return objects([item.encode() if isinstance(item, str) else item for item in items]).reshape(
        array.shape
    )
