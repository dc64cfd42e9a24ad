"""Heads of answers: a model's words as header lines, and a bounded memory of those that repeat."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Head = TypeVar("Head")

CACHE_MAX = 4096
KEY_BYTES_MAX = 512  #: longer keys are not kept: strangers choose them


def kept(heads: dict[Key, Head], key: Key, head: Head, chosen: bytes) -> None:
    """Remembers a head under its key, of which `chosen` is the part that has no bound."""
    if len(chosen) <= KEY_BYTES_MAX:
        if len(heads) >= CACHE_MAX:
            heads.clear()
        heads[key] = head


def header_value(text: str) -> bytes:
    """A model's words as one header line: whatever could end the line is a space."""
    data = text.encode("utf-8") if not text.isascii() else text.encode("ascii")
    return bytes(byte if byte >= 32 and byte != 127 else 32 for byte in data).strip()
