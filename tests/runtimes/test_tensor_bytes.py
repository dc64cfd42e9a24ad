"""The raw form of tensors, and packs of them on their way to a worker and back."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.runtimes.python.triton_wire import pack_answer, unpack_answer
from penstock.runtimes.tensor_bytes import decode_raw, encode_raw, objects, pack, unpack

ANY_BYTES = [bytes(range(256)), b"", b"\0", b"a\0\0", b"\xff" * 1000, b"\xed\xa0\x80"]


def test_every_byte_value_survives_a_pack() -> None:
    sent = {"x": objects(ANY_BYTES).reshape(2, 3), "n": np.arange(3, dtype=np.int16)}
    back = unpack(pack(sent))
    assert back["x"].tolist() == [ANY_BYTES[:3], ANY_BYTES[3:]]
    assert (back["n"].dtype, back["n"].tolist()) == (np.int16, [0, 1, 2])


@pytest.mark.parametrize("name", ["x", "xy", "xyz", "a_name_of_sixteen", "\u00e9"])
def test_tensors_of_a_pack_begin_where_numpy_computes_fast(name: str) -> None:
    """Whatever stands before them, also behind an answer's parameters."""
    sent = {
        name: np.arange(5, dtype=np.int8),
        "f": np.arange(3, dtype=np.float64),
        "said": objects([b"abc"]),
        "b": np.array([True]),
        "g": np.arange(7, dtype=np.float32).reshape(7, 1),
    }
    packed = pack(sent)
    answer = pack_answer(sent, b'{"a":1}')
    for back, body in ((unpack(packed), packed), (unpack_answer(answer), answer)):
        start = np.frombuffer(body, dtype=np.uint8).ctypes.data
        for key, array in sent.items():
            assert back[key].tolist() == array.tolist()
            if array.dtype != object:
                assert (back[key].ctypes.data - start) % 16 == 0
    assert unpack_answer(pack_answer(sent, b"")).parameters == {}


def test_an_element_is_written_behind_its_length() -> None:
    assert encode_raw(objects([b"\0\xff", b""]), "BYTES") == b"\x02\0\0\0\0\xff\0\0\0\0"
    assert decode_raw(b"\x02\0\0\0\0\xff\0\0\0\0", "BYTES", [2]).tolist() == [b"\0\xff", b""]


@pytest.mark.parametrize(
    ("item", "written"),
    [("h\u00e9", b"h\xc3\xa9"), (bytearray(b"\xff"), b"\xff"), (3, b"3"), (1.5, b"1.5"),
     (None, b"None"), (np.bytes_(b"\x80"), b"\x80")],
)  # fmt: skip
def test_what_is_no_bytes_is_written_as_its_text(item: object, written: bytes) -> None:
    """As Triton does. `bytes(3)` would be three zero bytes, and `bytes(10**12)` all memory."""
    assert encode_raw(objects([item]), "BYTES")[4:] == written
