"""One line for each target model of an endpoint: what its prefix and its hosts say, put together.

Pure. A model that several hosts have is loaded if any of them has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.artifacts.model_prefix import ModelEntry

#: A model is in the first of these states that any of its hosts tells.
STATES = ("loaded", "loading", "unloading", "failed", "unloaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    model: str
    state: str  #: one of STATES
    #: where it lies: its bytes; None: it is loaded, and nothing lies there any more
    artifact_bytes: int | None
    memory_bytes: int  #: that it takes on all hosts, as measured when it was loaded
    instances: tuple[str, ...]  #: that have it loaded
    pinned: bool
    calls: int  #: since its hosts started
    last_call_s: float | None  #: ago
    why: str  #: the last thing that happened to it, and its reason
    error: Mapping[str, Any] | None  #: of the last attempt to load it


def rows_of(
    lists: Iterable[Iterable[ModelEntry]], told: Mapping[str, Iterable[Mapping[str, Any]]]
) -> list[Row]:
    """In the order of names.

    Args:
        lists: of each prefix.
        told: by instance, what its host knows.
    """
    sizes: dict[str, int] = {}
    for entries in lists:
        for entry in entries:
            sizes.setdefault(entry.name, entry.size_bytes)
    hosted: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for instance, answer in told.items():
        for one in answer:
            hosted.setdefault(str(one["model"]), []).append((instance, one))
    return [
        _row(name, sizes.get(name), hosted.get(name, []))
        for name in sorted(sizes.keys() | hosted.keys())
    ]


def _row(name: str, size: int | None, hosted: list[tuple[str, Mapping[str, Any]]]) -> Row:
    by_state = sorted((_rank(one), instance) for instance, one in hosted)
    state = STATES[by_state[0][0]] if by_state else "unloaded"
    ones = [one for _, one in hosted]
    loaded = [(instance, one) for instance, one in hosted if one.get("state") == "loaded"]
    ago = [one["called_ago_s"] for one in ones if one.get("called_ago_s") is not None]
    errors = [one["error"] for one in ones if one.get("error")]
    return Row(
        model=name,
        state=state,
        artifact_bytes=size,
        memory_bytes=sum(_taken(one) for _, one in loaded),
        instances=tuple(sorted(instance for instance, _ in loaded)),
        pinned=any(one.get("pinned") for one in ones),
        calls=sum(int(one.get("hits", 0)) + int(one.get("misses", 0)) for one in ones),
        last_call_s=min(ago, default=None),
        why=_why(ones),
        error=errors[0] if errors and state != "loaded" else None,
    )


def _rank(one: Mapping[str, Any]) -> int:
    state = one.get("state", "unloaded")
    return STATES.index(state) if state in STATES else len(STATES) - 1


def _taken(one: Mapping[str, Any]) -> int:
    taken = one.get("taken") or {}
    return int(taken.get("host_bytes", 0)) + int(taken.get("accelerator_bytes", 0))


def _why(ones: list[Mapping[str, Any]]) -> str:
    """The latest event that any host remembers."""
    events = [one["last_event"] for one in ones if one.get("last_event")]
    if not events:
        return ""
    latest = min(events, key=lambda event: float(event.get("ago_s", 0.0)))
    what, why = str(latest.get("what", "")), str(latest.get("why", ""))
    made_room_for = latest.get("made_room_for")
    words = f"{what}: {why}" if why else what
    return f"{words} (for {made_room_for})" if made_room_for else words
