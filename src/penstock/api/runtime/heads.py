"""A model's words as header lines, and the bounded memory of what repeats."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CACHE_MAX = 4096
KEY_BYTES_MAX = 512  #: longer keys are not kept: strangers choose them


def kept(memory: dict[Key, Value], key: Key, value: Value, chosen: bytes) -> None:
    """Remembers a value under its key, of which `chosen` is the part that has no bound."""
    if len(chosen) <= KEY_BYTES_MAX:
        if len(memory) >= CACHE_MAX:
            memory.clear()
        memory[key] = value


def header_value(text: str) -> bytes:
    """A model's words as one header line: whatever could end the line is a space."""
    data = text.encode("utf-8") if not text.isascii() else text.encode("ascii")
    return bytes(byte if byte >= 32 and byte != 127 else 32 for byte in data).strip()
