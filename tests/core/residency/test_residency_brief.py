"""A model in a line: what a list of thousands shows of it."""

from __future__ import annotations

from tests.kit.core_residency import Host


def test_a_line_tells_state_pin_last_call_and_last_event() -> None:
    host = Host()
    machine = host.machine
    assert machine.brief("a", now=1.0) == {
        "state": "unknown", "pinned": False, "called_ago_s": None, "last_event": None,
    }  # fmt: skip
    host.request("a", 1.0)
    host.prepared("a", 10, 2.0)
    host.loaded("a", 10, 3.0)
    host.called("a", 4.0)
    machine.pin("a", True, now=4.0)
    brief = machine.brief("a", now=6.0)
    whole = machine.explain("a", now=6.0)
    assert brief["state"] == "loaded"
    assert brief["pinned"] is True
    assert brief["called_ago_s"] == whole["called_ago_s"]
    assert brief["last_event"] == whole["story"][-1]
