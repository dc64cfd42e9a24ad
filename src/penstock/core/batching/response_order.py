"""Answers of one copy in the order of their requests (Triton's `preserve_ordering`).

An answer is held back until every request that came before has ended, with an answer or without
one. The order is that of arrival at this copy: other copies have their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar, cast

Answer = TypeVar("Answer")

_OPEN = object()


class ResponseOrder(Generic[Answer]):
    """Call `arrived` for each request, and `ended` once for each."""

    def __init__(self) -> None:
        #: request -> _OPEN, or what it ended with; oldest first
        self._requests: OrderedDict[Hashable, object] = OrderedDict()

    def arrived(self, request: Hashable) -> None:
        self._requests[request] = _OPEN

    def ended(self, request: Hashable, answer: Answer | None) -> list[Answer]:
        """The answers that may leave now, in order. `answer`: None = it gets none."""
        self._requests[request] = answer
        leaving: list[Answer] = []
        while self._requests:
            oldest, held = next(iter(self._requests.items()))
            if held is _OPEN:
                break
            del self._requests[oldest]
            if held is not None:
                leaving.append(cast(Answer, held))
        return leaving
