"""Requests that share batches, compared with the same ones alone, through a real instance.

They are sent in one write; the answers tell how large their batches were.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.instances import FrameAnswer, FrameClient

relaxed = settings(max_examples=25, deadline=None)


def always(
    client: FrameClient,
    copy: int,
    requests: st.SearchStrategy[list[Any]],
    holds: Callable[[Any, Any, Any], None],
) -> None:
    """`holds(body, answer together, answer alone)` for all requests of every example; and some did
    share a batch, or nothing was shown."""
    shared = 0

    @relaxed
    @given(bodies=requests)
    def examples(bodies: list[Any]) -> None:
        nonlocal shared
        encoded = [json.dumps(body).encode() for body in bodies]
        first = client.next_id + 1
        client.next_id += len(bodies)
        client.socket.sendall(
            b"".join(client.frame(first + at, copy, body) for at, body in enumerate(encoded))
        )
        together = [FrameAnswer(client.answer(first + at)) for at in range(len(bodies))]
        for body, wire, mixed in zip(bodies, encoded, together, strict=True):
            alone = client.invoke(copy, wire)
            shared += mixed.reply.batch_rows > alone.reply.batch_rows
            holds(body, mixed.json, alone.json)

    examples()
    assert shared > 0, "no request had a mate"
