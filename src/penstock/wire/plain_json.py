"""JSON into plain values, as fast for a hostile text as for a plain one.

A text of six million brackets becomes two million lists, and every few thousand of them the garbage
collector walks all that are there already: seconds, for a tree that can hold no cycle.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import orjson


def loads(data: bytes | memoryview) -> Any:
    """As `orjson.loads`, without garbage collection meanwhile. Raises orjson.JSONDecodeError."""
    with without_collector():
        return orjson.loads(data)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """While values are made that can hold no cycle. For a thread that waits for nothing in it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
