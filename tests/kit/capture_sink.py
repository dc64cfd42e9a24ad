"""Where captured calls go in tests of a gateway."""

from __future__ import annotations

from typing import Any

from penstock.gateway.dispatch.capture_records import CaptureRecord


class ScriptedSink:
    """Keeps what it gets."""

    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.records: list[CaptureRecord] = []
        self.reserved = 0
        self.bytes_max = bytes_max
        self.broken = False

    def put(self, record: CaptureRecord) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.records.append(record)

    def reserve(self, size: int) -> bool:
        if self.reserved + size > self.bytes_max:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        self.reserved -= size

    def bodies(self) -> list[tuple[bytes | None, tuple[bytes, ...] | None]]:
        return [(one.request, one.answer) for one in self.records]

    def snapshot(self) -> dict[str, Any]:
        return {}
