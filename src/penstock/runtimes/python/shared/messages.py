"""Messages between an instance and a shared worker.

Each job is two messages: FOR names the model and the job's number, the next one is the job itself:
LOAD, UNLOAD, or a BATCH as for any Python worker. Jobs are done one after the other, in order, and
answered with one message each:

    FOR          model u32, number u32
    LOAD         JSON: content of `runtime.init_message`, its environment, where its output goes
    LOADED       JSON: growth_bytes, libraries_bytes, own_bytes; or NOT_LOADED, an error's bytes
    UNLOAD       nothing
    UNLOADED     JSON: own_bytes
    BATCH        answered by REPLIES (`batches`)
"""

from __future__ import annotations

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


def for_model(model: int, number: int) -> bytes:
    return message(FOR, _FOR.pack(model, number))


def read_for(payload: bytes) -> tuple[int, int]:
    """(model, number)."""
    model, number = _FOR.unpack(payload)
    return model, number
