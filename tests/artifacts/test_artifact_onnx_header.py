"""What is read of an ONNX file's edge, byte by byte; the bytes are those of onnx.proto3."""

from __future__ import annotations

from pathlib import Path

import pytest
from artifact_files import error_of

from penstock.artifacts.files.onnx_header import OnnxHeader, OnnxTensor, read_header
from penstock.errors import CallerError


def part(number: int, content: bytes) -> bytes:
    """A length-delimited field: a message or a text of under 128 bytes."""
    assert number < 16
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def number(at: int, value: int) -> bytes:
    """An integer under 128."""
    return bytes([at << 3, value])


def tensor(name: str, element: int, *dims: bytes | None) -> bytes:
    """A ValueInfoProto; a dimension of None: the tensor has no shape."""
    shape = b"" if None in dims else part(2, b"".join(part(1, dim) for dim in dims if dim))
    return part(1, name.encode()) + part(2, part(1, number(1, element) + shape))


N = part(2, b"N")  #: a free dimension
FOUR = number(1, 4)
X = part(11, tensor("x", 1, N, FOUR))
Y = part(12, tensor("y", 7, N))
MODEL = part(7, X + Y)


def header(tmp_path: Path, data: bytes) -> OnnxHeader:
    (tmp_path / "m.onnx").write_bytes(data)
    return read_header(tmp_path / "m.onnx", shown="shown.onnx")


def refused(tmp_path: Path, data: bytes) -> str:
    """Why; the file is named as the caller named it."""
    error = error_of(lambda: header(tmp_path, data))
    assert isinstance(error, CallerError)
    start = "shown.onnx: not a whole ONNX file: "
    assert (error.code, error.message[: len(start)]) == ("model-file-invalid", start)
    return error.message[len(start) :]


def test_a_file_byte_by_byte(tmp_path: Path) -> None:
    data = bytes.fromhex(
        "3a 2a"  # the graph, 42 bytes
        "5a 14  0a 01 78  12 0f 0a 0d  08 01 12 09  0a 03 12 01 4e  0a 02 08 04"
        "62 12  0a 03 6f 75 74  12 0b 0a 09  08 07 12 05  0a 03 12 01 4e"
    )
    assert header(tmp_path, data) == OnnxHeader(
        inputs=(OnnxTensor("x", "FP32", ("N", 4)),), outputs=(OnnxTensor("out", "INT64", ("N",)),)
    )


def test_what_lies_around_the_edge_is_skipped_by_its_length(tmp_path: Path) -> None:
    """Numbers of any length, both fixed widths, and messages that nobody looks into."""
    around = (
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # field 1: the largest number there is
        b"\x11\xff\xff\xff\xff\xff\xff\xff\xff"  # field 2: eight bytes
        b"\x1d\xff\xff\xff\xff"  # field 3: four bytes
        b"\x22\x03\xff\xff\xff"  # field 4: three bytes
        b"\x22\x00"
        b"\xfa\x01\x01\xff"  # field 31
    )
    whole = header(tmp_path, MODEL)
    assert header(tmp_path, around + MODEL + around) == whole
    assert header(tmp_path, part(7, around + X + around + Y)) == whole
    long = X + Y + part(6, bytes(100)) + part(6, bytes(100))
    assert header(tmp_path, bytes([0x3A, len(long) & 0x7F | 0x80, len(long) >> 7]) + long) == whole


def test_the_last_graph_of_a_file_counts(tmp_path: Path) -> None:
    """As protocol buffers have it for a field that stands twice."""
    assert header(tmp_path, part(7, Y) + MODEL).inputs != ()
    assert header(tmp_path, MODEL + part(7, Y)).inputs == ()
    assert header(tmp_path, MODEL + number(7, 1)).inputs != (), "a number is no graph"


def test_weights_that_stand_among_the_inputs_are_none(tmp_path: Path) -> None:
    weights = part(5, number(2, 1) + part(8, b"w") + part(9, b"raw"))
    unnamed = part(5, number(8, 1) + part(7, b"x"))
    data = part(7, part(11, tensor("w", 1, FOUR)) + weights + unnamed + X + Y)
    assert [each.name for each in header(tmp_path, data).inputs] == ["x"]


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (0, ""), (1, "FP32"), (2, "UINT8"), (3, "INT8"), (4, "UINT16"), (5, "INT16"),
        (6, "INT32"), (7, "INT64"), (8, "BYTES"), (9, "BOOL"), (10, "FP16"), (11, "FP64"),
        (12, "UINT32"), (13, "UINT64"), (14, ""), (15, ""), (16, "BF16"), (17, ""),
    ],
)  # fmt: skip
def test_types_have_the_names_of_the_open_inference_protocol(
    tmp_path: Path, element: int, dtype: str
) -> None:
    data = part(7, part(12, tensor("y", element, N)))
    assert header(tmp_path, data).outputs == (OnnxTensor("y", dtype, ("N",)),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (tensor("y", 1, None), OnnxTensor("y", "FP32", None)),
        (tensor("y", 1), OnnxTensor("y", "FP32", ())),
        (tensor("y", 1, number(1, 0)), OnnxTensor("y", "FP32", (0,))),
        (tensor("y", 1, part(2, b"")), OnnxTensor("y", "FP32", ("",))),
        (tensor("y", 1, part(3, b"?")), OnnxTensor("y", "FP32", ("",))),
        (tensor("y", 1, part(1, b"?") + number(2, 9)), OnnxTensor("y", "FP32", ("",))),
        (tensor("y", 1, number(1, 5) + part(2, b"n")), OnnxTensor("y", "FP32", (5,))),
        (part(1, b"y"), OnnxTensor("y", "", None)),
        (part(2, b""), OnnxTensor("", "", None)),
        (number(1, 5) + number(2, 5), OnnxTensor("", "", None)),
        (part(1, b"y") + part(2, number(1, 5)), OnnxTensor("y", "", None)),
        (part(2, part(4, number(1, 1))), OnnxTensor("", "", None)),  # a sequence, not a tensor
        (part(2, part(1, part(1, b"?") + number(2, 1))), OnnxTensor("", "", None)),
        (part(2, part(1, part(2, number(1, 4)))), OnnxTensor("", "", ())),
        (part(2, part(1, part(2, part(3, N)))), OnnxTensor("", "", ())),
    ],
)
def test_a_tensor_says_what_it_says(tmp_path: Path, content: bytes, expected: OnnxTensor) -> None:
    assert header(tmp_path, part(7, part(12, content))).outputs == (expected,)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot mmap an empty file"),
        (part(4, b"ir"), "it holds no graph"),
        (number(7, 1), "it holds no graph"),
        (part(7, X), "its graph has no outputs"),
        (part(7, b""), "its graph has no outputs"),
        (part(7, number(12, 1)), "its graph has no outputs"),
        (MODEL[:-1], f"{len(MODEL) - 2} bytes should follow at byte 2, and {len(MODEL) - 3} do"),
        (MODEL + b"\x3a", f"it ends inside a number at byte {len(MODEL) + 1}"),
        (MODEL + b"\x08\x80", f"it ends inside a number at byte {len(MODEL) + 2}"),
        (MODEL + b"\x08" + b"\x80" * 20, f"it ends inside a number at byte {len(MODEL) + 11}"),
        (MODEL + b"\x09" + b"x" * 7, f"it ends inside a field at byte {len(MODEL) + 8}"),
        (MODEL + b"\x0d" + b"x" * 3, f"it ends inside a field at byte {len(MODEL) + 4}"),
        (MODEL + b"\x0b", f"byte {len(MODEL)} is not a field"),
        (MODEL + b"\x0f", f"byte {len(MODEL)} is not a field"),
        (
            part(7, X + Y + b"\x32\x01") + part(4, b""),
            f"1 bytes should follow at byte {len(MODEL) + 2}, and 0 do",
        ),
        (part(7, part(12, part(1, b"\xff"))), "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_what_is_not_whole_is_told_with_the_place(tmp_path: Path, data: bytes, why: str) -> None:
    assert refused(tmp_path, data).startswith(why)


def made(*firsts: tuple[int | str, ...] | None) -> OnnxHeader:
    """Inputs and, last, an output with these dimensions."""
    tensors = [OnnxTensor("t", "FP32", dims) for dims in firsts]
    return OnnxHeader(tuple(tensors[:-1]), tuple(tensors[-1:]))


@pytest.mark.parametrize(
    ("tensors", "batched"),
    [
        ([("batch",)], True),
        ([("N", 4), ("N",)], True),
        ([("B",)], True),
        ([("bs",)], True),
        ([("Batch_Size", 3), ("Batch_Size",)], True),
        ([("unk__batch", 3)], True),
        ([("n",)], False),
        ([("sequence",)], False),
        ([("",)], False),
        ([(4, "batch")], False),
        ([("batch",), ("N",)], False),
        ([("batch",), (1,)], False),
        ([("batch",), None], False),
        ([None], False),
        ([()], False),
        ([(), ("batch",)], False),
    ],
)
def test_only_a_first_dimension_of_all_that_is_called_a_batch_is_one(
    tensors: list[tuple[int | str, ...] | None], batched: bool
) -> None:
    assert made(*tensors).is_batched() is batched


def test_texts_may_go_in_or_out() -> None:
    text, plain = OnnxTensor("t", "BYTES", None), OnnxTensor("p", "FP32", None)
    assert OnnxHeader((plain, text), (plain,)).has_strings()
    assert OnnxHeader((plain,), (plain, text)).has_strings()
    assert not OnnxHeader((plain,), (plain,)).has_strings()
