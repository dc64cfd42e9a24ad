"""A file in which a host of target models notes its models' work, to be read after a crash.

It has slots of one size, mapped into the host's memory: a crash of the process loses nothing of
it. A slot has one byte of state (free, idle, at work), the length of the rest as two bytes,
big-endian, and the model as JSON. A process that dies while it writes a slot leaves it free.
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
    digest: str  #: digest of its artifact; "" = unknown


def slot(model: NotedModel) -> bytes | None:
    """The slot without its first byte; None for a model whose name is too long."""
    text = orjson.dumps([model.name, model.digest])
    if len(text) > SLOT_BYTES - _HEAD_BYTES:
        return None
    return len(text).to_bytes(2, "big") + text


def at_work(note: bytes) -> list[NotedModel]:
    """The models at work, in the order of the slots. Damaged slots are left out: nobody else writes
    the file, but a process that crashes may have written anywhere."""
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
