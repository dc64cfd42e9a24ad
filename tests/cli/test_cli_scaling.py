"""`penstock scaling explain`: times as they are given, and the timeline as a table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import options
from penstock.cli.endpoints import explain
from penstock.cli.main import app
from penstock.errors import CallerError

TARGET: dict[str, Any] = {
    "resource_id": "endpoint/chat/variant/all",
    "capacity": 3,
    "capacity_min": 1,
    "capacity_max": 4,
    "ready": 2,
    "in_flight": 12,
    "timeline": [
        {
            "at": 1_700_000_000.0,
            "trigger": "monitor alarm A in state ALARM triggered policy p",
            "was": 1,
            "to": 3,
            "reason": "target-tracking",
            "observed": {"ready": 1, "capacity": 1, "in_flight": 12},
            "wishes": [
                {"policy": "p", "capacity": 3, "reason": "target-tracking"},
                {"policy": "q", "capacity": None, "reason": "no-datapoints"},
            ],
            "activity": {"status": "Successful", "message": ""},
        },
        {
            "at": 1_700_000_060.0,
            "trigger": "monitor alarm A in state ALARM triggered policy p",
            "was": 3,
            "to": 3,
            "reason": "capacity-is-coming",
            "observed": {"ready": 2, "capacity": 3, "in_flight": 12},
            "wishes": [],
            "activity": None,
        },
        {
            "at": 1_700_000_120.0, "trigger": "scheduled action name s was triggered",
            "was": None, "to": None, "reason": "schedule-due", "observed": None, "wishes": [],
            "activity": None,
        },
    ],
}  # fmt: skip


class ScalingServer:
    """Answers what the admin API would, and notes what it was asked."""

    def __init__(self, targets: list[dict[str, Any]]) -> None:
        self.targets = targets
        self.asked = ""

    def __call__(self, *_args: Any, **_kwargs: Any) -> ScalingServer:
        return self

    def admin(self, path: str) -> dict[str, Any]:
        self.asked = path
        return {"endpoint": "chat", "targets": self.targets}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ScalingServer:
    made = ScalingServer([TARGET])
    monkeypatch.setattr(options, "Client", made)
    return made


def test_each_decision_is_a_row(server: ScalingServer) -> None:
    shown = CliRunner().invoke(app, ["scaling", "explain", "my chat"]).output
    assert server.asked == "/endpoints/my%20chat/scaling"
    title, _, _, first, second, third = shown.strip().splitlines()
    assert title.strip() == "endpoint/chat/variant/all: 3 (1 to 4), 2 ready, 12 in flight"
    assert [part.strip() for part in first.split("│")][1:] == [
        "1 of 1 ready, 12 in flight",
        "p 3, q no-datapoints",
        "1 -> 3",
        "target-tracking",
        "monitor alarm A in state ALARM triggered policy p",
        "Successful",
    ]
    assert "stays 3" in second
    assert "schedule-due" in third


def test_json_is_what_the_server_says(server: ScalingServer) -> None:
    shown = CliRunner().invoke(app, ["scaling", "explain", "chat", "--at", "5", "--json"]).output
    assert server.asked == "/endpoints/chat/scaling?at=5.0"
    assert json.loads(shown) == {"endpoint": "chat", "targets": [TARGET]}


def test_an_endpoint_without_a_target_says_so(server: ScalingServer) -> None:
    server.targets = []
    shown = CliRunner().invoke(app, ["scaling", "explain", "chat"]).output
    assert "chat has no scalable target: RegisterScalableTarget makes one" in shown


@pytest.mark.parametrize(
    ("text", "moment"),
    [("12.5", 12.5), ("1970-01-01T00:01:00+00:00", 60.0), ("1970-01-01T01:00:00+01:00", 0.0)],
)
def test_a_time_is_iso_8601_or_seconds(text: str, moment: float) -> None:
    assert explain.moment(text) == moment


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(CallerError) as caught:
        explain.moment("yesterday")
    assert caught.value.code == "at-invalid"
