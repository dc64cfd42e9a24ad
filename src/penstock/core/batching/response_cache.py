"""Answers that may be given again (Triton's `response_cache`), bounded by their size.

The answer that was used least recently goes first. Each belongs to an owner, a loaded model, and
goes with it. What makes two requests the same is in the key, which the caller makes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

#: What an entry takes beside its answer: the key, two rows of tables, the objects around arrays.
ENTRY_BYTES = 1024


class ResponseCache(Generic[Answer]):
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        #: (owner, key) -> (answer, its bytes), least recently used first
        self._entries: OrderedDict[tuple[Hashable, Hashable], tuple[Answer, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, owner: Hashable, key: Hashable) -> Answer | None:
        found = self._entries.get((owner, key))
        if found is None:
            return None
        self._entries.move_to_end((owner, key))
        return found[0]

    def keep(self, owner: Hashable, key: Hashable, answer: Answer, size: int) -> bool:
        """Keeps an answer of `size` bytes, in the place of others; False if it is too large."""
        taken = size + ENTRY_BYTES
        if taken > self.bytes_max:
            return False
        self._drop((owner, key))
        self._entries[owner, key] = answer, taken
        self.bytes_used += taken
        while self.bytes_used > self.bytes_max:
            self._drop(next(iter(self._entries)))
        return True

    def forget(self, owner: Hashable) -> None:
        """The model is gone, and its answers with it."""
        for entry in [entry for entry in self._entries if entry[0] == owner]:
            self._drop(entry)

    def _drop(self, entry: tuple[Hashable, Hashable]) -> None:
        found = self._entries.pop(entry, None)
        if found is not None:
            self.bytes_used -= found[1]
