"""One line for each target model, of what prefixes and hosts say."""

from __future__ import annotations

from typing import Any

from penstock.artifacts.model_prefix import ModelEntry
from penstock.control.target_models import Row, rows_of


def entry(name: str, size: int = 7) -> ModelEntry:
    return ModelEntry(name=name, stamp="s", size_bytes=size)


def told(model: str, state: str, **more: Any) -> dict[str, Any]:
    quiet = {
        "hits": 0, "misses": 0, "waiting": 0, "unanswered": 0, "taken": None, "error": None,
        "pinned": False, "called_ago_s": None, "last_event": None,
    }  # fmt: skip
    return {"model": model, "state": state} | quiet | more


def event(what: str, why: str, ago_s: float, **more: str) -> dict[str, Any]:
    return {"what": what, "why": why, "ago_s": ago_s} | more


def test_a_model_that_nobody_called_is_a_line_too_and_names_are_in_order() -> None:
    rows = rows_of([[entry("b"), entry("a", 3)]], {"i1": []})
    unknown = Row(
        model="a", state="unloaded", artifact_bytes=3, memory_bytes=0, instances=(), pinned=False,
        calls=0, last_call_s=None, why="", error=None,
    )  # fmt: skip
    assert rows[0] == unknown
    assert [row.model for row in rows] == ["a", "b"]


def test_hosts_are_added_up_and_the_best_state_is_the_models() -> None:
    taken = {"host_bytes": 100, "accelerator_bytes": 20}
    [row] = rows_of(
        [[entry("a")], [entry("a", 9)]],
        {
            "i2": [
                told("a", "loaded", taken=taken, hits=5, misses=1, called_ago_s=8.0, pinned=True)
            ],
            "i1": [
                told("a", "loaded", taken=taken, hits=1, called_ago_s=2.0),
                told("b", "unloaded"),
            ],
            "i3": [told("a", "loading", misses=2, error={"message": "before"})],
        },
    )[:1]
    assert row == Row(
        model="a", state="loaded", artifact_bytes=7, memory_bytes=240, instances=("i1", "i2"),
        pinned=True, calls=9, last_call_s=2.0, why="", error=None,
    )  # fmt: skip


def test_what_is_loaded_and_lies_nowhere_any_more_is_shown_without_a_size() -> None:
    [row] = rows_of([[]], {"i1": [told("gone", "loaded")]})
    assert (row.model, row.state, row.artifact_bytes) == ("gone", "loaded", None)


def test_a_model_that_failed_says_why_and_the_newest_event_of_all_hosts_is_told() -> None:
    evicted = event("unload", "least-recently-used", 5.0, made_room_for="b")
    [row] = rows_of(
        [],
        {
            "i1": [
                told("a", "failed", error={"message": "no!"}, last_event=event("failed", "x", 9))
            ],
            "i2": [told("a", "unloaded", last_event=evicted)],
        },
    )
    assert (row.state, row.error, row.why) == (
        "failed", {"message": "no!"}, "unload: least-recently-used (for b)",
    )  # fmt: skip


def test_a_state_of_another_version_is_taken_for_not_loaded() -> None:
    [row] = rows_of([], {"i1": [told("a", "of-tomorrow")]})
    assert row.state == "unloaded"
