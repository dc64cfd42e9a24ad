"""What an instance asks of a worker that hosts several models, and what it answers.

Everything asked is two messages: FOR names the model and numbers what is asked, the next one says
what: LOAD, UNLOAD, or a BATCH as any Python worker gets it. It is done one after the other, in
order, and answered with one message each:

    FOR          model u32, number u32
    LOAD         JSON: what `runtime.init_message` says, its environment, where its output goes
    LOADED       JSON: growth_bytes, libraries_bytes, own_bytes; or NOT_LOADED, an error's bytes
    UNLOAD       nothing
    UNLOADED     JSON: own_bytes
    BATCH        answered by REPLIES (`batches`)

In memory that both share stands what the worker began last: its number, model and item.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from penstock.runtimes.workers.wire import message

FOR: Final = 10
LOAD: Final = 11
LOADED: Final = 12
NOT_LOADED: Final = 13
UNLOAD: Final = 14
UNLOADED: Final = 15

_FOR = struct.Struct("<II")
_BUSY = struct.Struct("<III")


def for_model(model: int, number: int) -> bytes:
    return message(FOR, _FOR.pack(model, number))


def read_for(payload: bytes) -> tuple[int, int]:
    """(model, number)."""
    model, number = _FOR.unpack(payload)
    return model, number


class Busy:
    """The shared memory, at either end."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("I")

    def begin(self, number: int, model: int) -> None:
        self._words[2] = 0
        self._words[1] = model
        self._words[0] = number

    def item(self, index: int) -> None:
        self._words[2] = index

    def read(self) -> tuple[int, int, int]:
        """(number, model, item)."""
        number, model, item = _BUSY.unpack(self._memory[: _BUSY.size])
        return number, model, item
