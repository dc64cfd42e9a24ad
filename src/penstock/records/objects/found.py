"""An object that a prefix or a manifest means."""

from __future__ import annotations

from typing import NamedTuple


class FoundObject(NamedTuple):
    key: str  #: safe relative path
    uri: str  #: to open it again
    size: int
    stamp: str
