"""JSON into plain values, equally fast for hostile and ordinary texts.

A text of six million brackets becomes two million lists. Every few thousand of them, the garbage
collector traverses all existing ones: seconds, for a tree that can't contain a cycle.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any, Final

import orjson

#: Smaller texts are parsed with the collector on: turning it off costs as much as parsing.
_SMALL_BYTES: Final = 64 * 1024


def loads(data: bytes | memoryview) -> Any:
    """As `orjson.loads`, without garbage collection meanwhile. Raises orjson.JSONDecodeError."""
    if len(data) <= _SMALL_BYTES:
        return orjson.loads(data)
    with without_collector():
        return orjson.loads(data)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Pauses the collector while values without cycles are made. The thread must not wait in it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
