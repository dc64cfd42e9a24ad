"""`penstock orchestrator` and `penstock traffic`, where a person has made a mistake, and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.client import Client

Penstock = Callable[..., tuple[int, str, str]]


def test_an_orchestrator_needs_its_file_and_credentials_where_strangers_come_in(
    penstock: Penstock, tmp_path: Path
) -> None:
    status, _, err = penstock("orchestrator", "--regions", str(tmp_path / "none.yaml"))
    assert (status, err.startswith("error[regions-invalid]: ")) == (1, True)
    file = tmp_path / "regions.yaml"
    file.write_text('regions: [{name: eu, url: "http://127.0.0.1:1"}]')
    words = ("--regions", str(file), "--host", "0.0.0.0", "--state-dir", str(tmp_path / "state"))
    status, _, err = penstock("orchestrator", *words)
    assert (status, err.startswith("error[credentials-required]: ")) == (1, True)


@pytest.mark.parametrize("words", ["eu", "eu=", "=1", "eu=half", "eu=-1", "eu=nan"])
def test_a_share_is_a_region_and_a_number(penstock: Penstock, words: str) -> None:
    status, _, err = penstock("traffic", "set", words)
    assert status == 1
    assert err.startswith(f"error[traffic-invalid]: '{words}' is no share of a region")


def test_a_region_is_named_once(penstock: Penstock) -> None:
    status, _, err = penstock("traffic", "set", "eu=0.5", "eu=0.5")
    assert (status, err.startswith("error[traffic-invalid]: eu is named twice")) == (1, True)


REGION = {"region": "eu", "ratio": 0.5, "room": 3, "in_flight": 1, "reason": "serving"}
TRAFFIC = {
    "endpoint": "echo", "mode": "automatic", "held": 2, "regions": [REGION | {"has_it": True}],
    "changes": [
        {"at": 0.0, "endpoint": "echo", "region": "eu", "before": 1.0, "after": 0.5,
         "mode": "automatic", "reason": "queue"},
    ],
}  # fmt: skip
SEEN = {
    "region": "eu", "url": "https://eu", "state": "certificate-untrusted", "health": "silent",
    "way_ms": 5.0, "detail": "it is not trusted",
}  # fmt: skip


def test_what_is_shown_tells_why_a_region_is_not_used_and_why_a_share_moved(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(_client: Client, method: str, path: str, *_: Any) -> tuple[int, Any, bytes]:
        import json

        told = {"regions": [SEEN]} if path.endswith("/regions") else {"traffic": [TRAFFIC]}
        return 200, {}, json.dumps(told).encode()

    monkeypatch.setattr(Client, "request", answered)
    _, out, _ = penstock("traffic", "show", "echo")
    assert "certificate-untrusted" in out
    assert "it is not trusted" in out
    assert "serving" in out
    _, out, _ = penstock("traffic", "show", "--changes")
    assert "1970-01-01T00:00:00.000+00:00" in out
    assert "queue" in out
