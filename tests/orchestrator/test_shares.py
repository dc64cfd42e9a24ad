"""Shares that move by themselves, and by hand: what is told of them, and what holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.polling import until
from tests.orchestrator.region_site import OrchestratorSite, ScriptedRegion, site


async def traffic(here: OrchestratorSite, endpoint: str = "echo") -> dict[str, Any]:
    told = await here.told(f"/penstock/v1/ratios?endpoint={endpoint}")
    one: dict[str, Any] = told["traffic"][0]
    return one


async def shares(here: OrchestratorSite) -> dict[str, float]:
    return {one["region"]: one["ratio"] for one in (await traffic(here))["regions"]}


async def test_shares_move_to_where_the_capacity_is_in_steps_with_reasons(tmp_path: Path) -> None:
    regions = [
        ScriptedRegion("eu", rooms={"echo": 10}, load={"in_flight": 20, "capacity_rps": 30.0}),
        ScriptedRegion("us", rooms={"echo": 70}, load={"in_flight": 20, "capacity_rps": 90.0}),
    ]
    async with site(tmp_path, regions=regions, settle_s=0.2, step_max=0.2) as here:

        async def moved() -> bool:
            return abs((await shares(here))["us"] - 0.75) < 0.03

        await until(moved, "us has three quarters")
        changes = (await traffic(here))["changes"]
        assert {one["reason"] for one in changes} == {"capacity"}
        assert all(abs(one["after"] - one["before"]) < 0.2001 for one in changes)
        body = json.dumps({"endpoint": "echo", "ratios": {"eu": 0.9, "us": 0.1}}).encode()
        set_ = await here.ask("/penstock/v1/ratios", body, method="PUT")
        assert set_.json["mode"] == "manual"
        assert await shares(here) == {"eu": 0.9, "us": 0.1}
        body = json.dumps({"endpoint": "echo", "mode": "automatic"}).encode()
        await here.ask("/penstock/v1/ratios", body, method="PUT")
        await until(moved, "they move again, once they are let go")


async def test_a_region_that_is_not_named_gets_nothing(tmp_path: Path) -> None:
    """Also where the file names a region anew: what was set by hand holds over the restart."""
    async with site(tmp_path, "eu", "us", "ap") as here:
        body = json.dumps({"ratios": {"us": 0.7, "ap": 0.3}}).encode()
        answer = await here.ask("/penstock/v1/ratios", body, method="PUT")
        told = {one["region"]: one["ratio"] for one in answer.json["regions"]}
        assert told == {"eu": 0.0, "us": 0.7, "ap": 0.3}
    async with site(tmp_path, "us", "ap", "sa") as here:
        assert await shares(here) == {"us": 0.7, "ap": 0.3, "sa": 0.0}


async def test_what_is_set_for_one_endpoint_leaves_the_others_alone(tmp_path: Path) -> None:
    rooms = {"echo": 8, "other": 8}
    regions = [ScriptedRegion(name, rooms=dict(rooms)) for name in ("eu", "us")]
    async with site(tmp_path, regions=regions, mode="manual") as here:
        body = json.dumps({"endpoint": "other", "ratios": {"eu": 1, "us": 0}}).encode()
        await here.ask("/penstock/v1/ratios", body, method="PUT")
        everything = json.dumps({"ratios": {"eu": 0.2, "us": 0.8}}).encode()
        await here.ask("/penstock/v1/ratios", everything, method="PUT")
        assert await shares(here) == {"eu": 0.2, "us": 0.8}
        other = (await traffic(here, "other"))["regions"]
        assert [one["ratio"] for one in other] == [1.0, 0.0]


async def test_a_change_that_cannot_be_kept_is_not_made(tmp_path: Path) -> None:
    """A full disk: the ratios would be others after the next start."""
    async with site(tmp_path, "eu", "us", mode="manual") as here:
        (tmp_path / "orchestrator" / ".traffic.json.new").mkdir()
        body = json.dumps({"ratios": {"eu": 1, "us": 0}}).encode()
        answer = await here.ask("/penstock/v1/ratios", body, method="PUT")
        assert (answer.status, answer.json["code"]) == (503, "state-not-writable")
        assert await shares(here) == {"eu": 0.5, "us": 0.5}


async def test_wrong_changes_say_what_is_wrong(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        for body, code in (
            (b"{", "traffic-invalid"),
            (b"[]", "traffic-invalid"),
            (b'{"ratio": 1}', "traffic-invalid"),
            (b'{"ratios": {"eu": -1}}', "traffic-invalid"),
            (b'{"ratios": {"eu": true}}', "traffic-invalid"),
            (b'{"endpoint": 1}', "traffic-invalid"),
            (b'{"mode": "fast"}', "invalid-traffic"),
            (b'{"ratios": {"eu": 0}}', "invalid-traffic"),
            (b'{"ratios": {"eu": 1.4}}', "invalid-traffic"),
        ):
            answer = await here.ask("/penstock/v1/ratios", body, method="PUT")
            assert (answer.status, answer.json["code"]) == (400, code), body
        unknown = await here.ask("/penstock/v1/ratios?endpoint=none", b"", method="GET")
        assert unknown.json["code"] == "endpoint-not-found"
        nothing = await here.ask("/penstock/v1/none", b"", method="GET")
        assert (nothing.status, nothing.json["code"]) == (404, "not-found")


async def test_metrics_tell_of_requests_by_region_and_of_those_sent_again(tmp_path: Path) -> None:
    from tests.orchestrator.region_site import reset

    more = {"us": {"ratio": 0.0001}}
    async with site(tmp_path, "eu", "us", mode="manual", more=more) as here:
        here.regions["eu"].script = reset
        await here.ask()
        page = (await here.ask("/metrics", b"", method="GET")).body.decode()
        lines = page.splitlines()
        ok = 'penstock_traffic_requests_total{endpoint="echo",outcome="ok",region="us"} 1.0'
        again = 'penstock_traffic_sent_again_total{reason="connection-lost"} 1.0'
        assert {ok, again} <= {_sorted(line) for line in lines}
        assert any(line.startswith("penstock_traffic_room{") for line in lines)
        assert any(line.startswith("penstock_region_way_seconds{") for line in lines)


def _sorted(line: str) -> str:
    """A row with its labels in alphabetical order."""
    name, brace, rest = line.partition("{")
    if not brace:
        return line
    labels, _, value = rest.partition("}")
    return f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}"
