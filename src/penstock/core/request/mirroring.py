"""Which requests are copied to the shadow variant of their endpoint, and how many at once.

A shadow variant answers nobody. So a copy is made only where it costs callers nothing: within a
bound on the copies that are under way and on the bytes of their bodies, and where a copy of the
shadow's model has room now. Everything else is dropped and counted; a copy never waits.

A request that belongs to a session or a sequence is not copied: its meaning depends on requests
before it, and the shadow has only some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

MIRRORED: Final = "mirrored"
# Reasons why no copy is sent.
NOT_SAMPLED: Final = "not-sampled"
IN_SESSION: Final = "in-session"
TOO_MANY: Final = "too-many-in-flight"
TOO_MANY_BYTES: Final = "too-many-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """Bounds for the copies of one endpoint's requests, in one gateway process."""

    count_max: int
    bytes_max: int  #: of their bodies


class MirrorGate:
    """The copies of one endpoint's requests that are under way. Call `release` once for each that
    `admit` has admitted."""

    def __init__(self, spec: MirrorSpec) -> None:
        self._spec = spec
        self._count = 0
        self._bytes = 0

    def admit(self, share: float, draw: float, body_bytes: int, *, in_session: bool) -> str:
        """Whether to copy a request: MIRRORED, or why not.

        Args:
            share: of the requests that are copied, 0 to 1.
            draw: a random number from 0 to below 1.
            body_bytes: size of its body.
            in_session: it belongs to a session or a sequence.
        """
        if draw >= share:
            return NOT_SAMPLED
        if in_session:
            return IN_SESSION
        if self._count >= self._spec.count_max:
            return TOO_MANY
        if self._bytes + body_bytes > self._spec.bytes_max:
            return TOO_MANY_BYTES
        self._count += 1
        self._bytes += body_bytes
        return MIRRORED

    def release(self, body_bytes: int) -> None:
        """A copy is over, or was not sent after all."""
        self._count -= 1
        self._bytes -= body_bytes

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: what is under way."""
        return {"in_flight": self._count, "bytes": self._bytes}

    def check_invariants(self) -> None:
        """Raises AssertionError where the books are wrong."""
        assert 0 <= self._count <= self._spec.count_max
        assert 0 <= self._bytes <= self._spec.bytes_max
        assert self._count or not self._bytes
