"""A budget for what a peer may do without use to anybody: a token bucket without a clock."""

from __future__ import annotations


class FloodAllowance:
    """Starts full. Useful work and time refill it, up to `burst`."""

    __slots__ = ("_burst", "_per_s", "_refilled_at", "left")

    def __init__(self, burst: int, per_s: float, *, now: float) -> None:
        """`now`: monotonic s."""
        self._burst = burst
        self._per_s = per_s
        self._refilled_at = now
        self.left: float = burst

    def spend(self, *, now: float) -> bool:
        """One less; False where none was left. What time has earned is added when it is needed."""
        if self.left < 1:
            earned = (now - self._refilled_at) * self._per_s
            self._refilled_at = now
            self.left = min(self._burst, self.left + earned)
            if self.left < 1:
                return False
        self.left -= 1
        return True

    def earn(self, count: int) -> None:
        left = self.left + count
        self.left = left if left < self._burst else self._burst
