"""Bytes as text that loses nothing, for libraries whose strings are Unicode.

UTF-8 becomes the text that it is. A byte that is no part of UTF-8 becomes one of the last 128 code
points of Unicode (private use, never assigned), and so does every byte of a text that has one of
those, so that no two byte strings become one text and the way back is exact. This is the idea of
PEP 383 with code points that UTF-8 can write: what only moves strings about (lookups of text,
gathering, concatenation) works on any bytes.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = 0x10FF80  #: stands for the byte 0x80; the next code points for 0x81 and so on
_BASE: Final = _FIRST - 0x80
#: The UTF-8 bytes of the 128 code points begin with one of these.
_MARKS: Final = (b"\xf4\x8f\xbe", b"\xf4\x8f\xbf")
_LONE: Final = 0xDC00  #: Python's own stand-ins for bytes ("surrogateescape"), which start here

_ESCAPED: Final[dict[int, int | str]] = {
    **{_LONE + byte: _BASE + byte for byte in range(0x80, 0x100)},
    **{
        point: "".join(chr(_BASE + byte) for byte in chr(point).encode())
        for point in range(_FIRST, 0x110000)
    },
}
_BYTES: Final = {_BASE + byte: _LONE + byte for byte in range(0x80, 0x100)}


def text_of(data: bytes) -> str:
    """The text that stands for `data`."""
    if not any(mark in data for mark in _MARKS):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return data.decode("utf-8", "surrogateescape").translate(_ESCAPED)


def bytes_of(text: str) -> bytes:
    """The bytes that `text` stands for. Raises UnicodeEncodeError for lone surrogates."""
    data = text.encode()
    if not any(mark in data for mark in _MARKS):
        return data
    return text.translate(_BYTES).encode("utf-8", "surrogateescape")
