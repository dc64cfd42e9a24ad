"""JSON into plain values, equally fast for hostile and ordinary texts.

A text of six million brackets becomes two million lists. Every few thousand of them, the garbage
collector traverses all existing ones: seconds, for a tree that can't contain a cycle.
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
    """Pauses the collector while values without cycles are made. The thread must not wait in it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
