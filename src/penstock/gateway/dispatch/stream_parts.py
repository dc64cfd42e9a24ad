"""The parts of a streamed answer, kept until it is complete: for what captures or compares it."""

from __future__ import annotations

from typing import Protocol


class PartsRoom(Protocol):
    """Room for parts of streams; all of them share it."""

    def reserve(self, size: int) -> bool:
        """Takes room for a part of a stream; False: there is none."""

    def release(self, size: int) -> None:
        """Gives such room back."""


class StreamParts:
    """The parts of one streamed answer that is under way, while there is room for them."""

    __slots__ = ("_bytes_max", "_keeps", "_parts", "_reserved", "_room")

    def __init__(self, room: PartsRoom, bytes_max: int, *, keeps: bool = True) -> None:
        """`bytes_max`: parts of a longer answer are let go. `keeps`: whether it takes any."""
        self._room = room
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._reserved = 0
        self._keeps = keeps

    @property
    def answer(self) -> tuple[bytes, ...] | None:
        """The parts; None: they are not wanted, or there was no room."""
        return tuple(self._parts) if self._keeps else None

    def add(self, part: bytes) -> None:
        """The next part of the answer."""
        if not self._keeps:
            return
        size = len(part)
        if self._reserved + size > self._bytes_max or not self._room.reserve(size):
            self._keeps = False
            self._parts.clear()
            self.release()
            return
        self._reserved += size
        self._parts.append(part)

    def release(self) -> None:
        """Gives the room back: the stream is over. Idempotent."""
        reserved, self._reserved = self._reserved, 0
        if reserved:
            self._room.release(reserved)
