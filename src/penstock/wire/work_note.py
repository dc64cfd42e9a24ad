"""What a host of target models leaves written of what its models do, for whoever finds it dead.

A file of slots of one size, mapped into the host's memory: a crash of the process loses nothing of
it. A slot has one byte that changes (free, idle, at work), the length of what follows as two bytes,
big-endian, and the model as JSON. Whoever died in the middle of writing a slot left a free one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

SLOT_BYTES: Final = 2048
FREE: Final = 0
IDLE: Final = 1
AT_WORK: Final = 2
_HEAD_BYTES: Final = 3


@dataclass(frozen=True, slots=True)
class NotedModel:
    name: str
    digest: str  #: of its artifact; "" = not known


def slot(model: NotedModel) -> bytes | None:
    """All but the first byte of a slot; None for a model whose name is too long for it."""
    text = orjson.dumps([model.name, model.digest])
    if len(text) > SLOT_BYTES - _HEAD_BYTES:
        return None
    return len(text).to_bytes(2, "big") + text


def at_work(note: bytes) -> list[NotedModel]:
    """Of a note, in the order of its slots. What is damaged is left out: nobody else wrote it, but
    a process that crashes may have written anywhere."""
    found = []
    for at in range(0, len(note) - SLOT_BYTES + 1, SLOT_BYTES):
        if note[at] != AT_WORK:
            continue
        begin = at + _HEAD_BYTES
        length = int.from_bytes(note[at + 1 : begin], "big")
        try:
            name, digest = orjson.loads(note[begin : min(begin + length, at + SLOT_BYTES)])
        except (ValueError, TypeError):
            continue
        if isinstance(name, str) and isinstance(digest, str):
            found.append(NotedModel(name, digest))
    return found
