"""The one command of the support desk, in its short form: models, a day, tables, the bill.

What it writes is read as a customer would read a bill: it must add up.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from tests.kit.servers import EXAMPLES, ROOT

pytestmark = [pytest.mark.system, pytest.mark.integration]


@dataclass(frozen=True)
class Ran:
    said: str
    last: dict[str, Any]  #: the last line
    result: dict[str, Any]
    usage: dict[str, Any]
    page: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("support") / "out"
    argv = [sys.executable, str(EXAMPLES / "support" / "run.py"), "--quick", "--out", str(out)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return Ran(
        done.stdout,
        json.loads(done.stdout.splitlines()[-1]),
        json.loads((out / "result.json").read_text()),
        json.loads((out / "usage.json").read_text()),
        (out / "cost.html").read_text(),
    )


def test_every_call_of_the_day_is_answered(ran: Ran) -> None:
    assert ran.last["failures"] == {}
    assert ran.last["calls"] > 100
    assert ran.last["models_called"] == 8
    assert ran.last["latency_ms_p50"] > 0
    assert "hour (UTC)  calls  models" in ran.said


def test_latency_is_told_by_kind_length_and_way(ran: Ran) -> None:
    found = ran.last["latency_ms"]
    assert {kind: list(rows) for kind, rows in found.items()} == {
        "embeddings": ["30", "250", "550"],
        "autocomplete": ["30", "250", "550"],
    }
    for rows in found.values():
        for times in rows.values():
            assert list(times) == ["cold", "loaded", "five at once"]
            assert all(value > 0 for value in times.values())


def test_the_bill_adds_up_to_what_the_instances_cost(ran: Ran) -> None:
    cost = ran.result["cost"]
    price = sum(one["price_per_hour"] * one["held_s"] / 3600 for one in ran.usage["instances"])
    assert price > 0
    parts = ("serving", "cold_start", "idle", "headroom")
    for lines in (cost["models"], cost["tenants"]):
        paid = sum(line["cost"][part] for line in lines for part in parts)
        assert math.isclose(paid + cost["unassigned"], price, rel_tol=1e-9)
        assert math.isclose(cost["dollars"], price, rel_tol=1e-9)
        assert all(line["cost"][part] >= 0 for line in lines for part in parts)
    assert sum(line["requests"] for line in cost["models"]) == ran.last["calls"]
    assert len(cost["models"]) == 8
    assert [line["name"] for line in cost["tenants"] if line["models"] == 2] != []
    assert {line["name"] for line in cost["tenants"]} == {f"customer-00{n}" for n in range(1, 7)}


def test_the_bill_compares_with_other_ways_to_serve_with_and_without_replicas(ran: Ran) -> None:
    found = ran.result["cost"]["alternatives"]
    ways = ["one endpoint each", "memory fractions", "shared, all resident", "shared, as called"]
    assert [(one["name"], one["replicas"]) for one in found] == [
        (way, replicas) for replicas in (1, 3) for way in ways
    ]
    single, *_, as_called = found[:4]
    assert single["instances"] == 8
    assert as_called["dollars_per_hour"] < single["dollars_per_hour"]
    assert len(ran.usage["offers"]) > 1


def test_the_page_names_every_customer(ran: Ran) -> None:
    assert all(f"customer-00{number}" in ran.page for number in range(1, 7))
    assert ran.page.startswith("<!doctype html>")
