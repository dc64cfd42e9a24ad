"""Sequences of stateful models in the table of sessions.

A sequence is like a session: one copy holds its state, and all its requests go there
(`sessions.py`). Its key is made of the model that it is for, as an endpoint may have several, and
of its correlation id, where the number 5 and the text "5" are two. No session of a client can have
such a key: those have no spaces.

It differs in four ways. It begins and ends with flags of requests. One that begins goes to the copy
with the fewest. A full table forgets the one that was unused for longest, since nobody closes what
a crashed client began. And a copy that leaves the routes keeps its sequences until they end.
"""

from __future__ import annotations

from typing import Final

from penstock.core.routing.copies import NoRoute

_MARK: Final = "sequence "

NOT_STARTED: Final = NoRoute("sequence-not-started", None)
LOST: Final = NoRoute("sequence-lost", None)


def sequence_key(component: str, sequence: int | str) -> str:
    kind = "number" if isinstance(sequence, int) else "text"
    return f"{_MARK}{component} {kind} {sequence}"


def is_sequence(session: str) -> bool:
    return session.startswith(_MARK)


def shown(session: str) -> str:
    """The correlation id in a key."""
    return session.split(" ", 3)[3]
