"""A step whose answer is its input: it combines other steps' results, to output or pass on.

A list is passed on item by item, so that another step can make a call for each.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.runtimes.pipeline.calls import Hear, StepCall, Whole

_NOTHING_TO_STOP: Final = Whole()


class ValueWay:
    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> StepCall:
        for piece in inputs if isinstance(inputs, list) else [inputs]:
            hear.piece(piece)
        hear.done(inputs)
        return _NOTHING_TO_STOP

    async def close(self) -> None:
        return
