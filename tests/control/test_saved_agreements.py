"""What an agreement has compared, and why a rollout went as it did, outlive their server, on each
database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.kit.control_plane import ControlPlaneServer, deployment, gone
from tests.kit.polling import until

from penstock.control.reconcile import reconciler
from penstock.control.store.store import Store
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import CANARY, CAPACITY_PERCENT, RolloutPolicy, RolloutSize
from penstock.metrics import item_failures

pytestmark = pytest.mark.usefixtures("on_each_database")

EXACT = AgreementSpec(kind="exact")
POLICY = RolloutPolicy(
    kind=CANARY, size=RolloutSize(kind=CAPACITY_PERCENT, value=10), wait_s=3600.0, agreement=EXACT
)


@pytest.fixture
def saves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_STATUS_INTERVAL_S", 0.05)


@asynccontextmanager
async def serving(state_dir: Path, pairs: dict[str, int]) -> AsyncIterator[ControlPlaneServer]:
    """A life of a server whose requests had these pairs."""
    server = ControlPlaneServer(state_dir)
    server.plane._compared = lambda endpoint, rollout, component: pairs
    await server.plane.start()
    try:
        yield server
    finally:
        await server.plane.close()


async def baking(server: ControlPlaneServer) -> None:
    """A rollout whose pairs are counted."""
    await server.create()
    await server.reaches("InService")
    new = replace(deployment("ok"), rollout=POLICY)
    await server.plane.database.call(Store.begin_update, "shop", new, now=2.0)
    server.plane.notify("shop")

    async def looked() -> bool:
        return server.plane.last_agreement("shop") is not None

    await until(looked)


def found(server: ControlPlaneServer) -> AgreementCounts:
    agreement = server.plane.last_agreement("shop")
    assert agreement is not None
    assert agreement[0] == EXACT
    return agreement[1]


async def saved(server: ControlPlaneServer) -> list[dict[str, int]]:
    return [dict(one.counts) for one in await server.plane.database.call(Store.all_compared)]


async def test_the_next_server_goes_on_with_what_one_that_ended_had_compared(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "s", {"agree": 5}) as server:
        await baking(server)
        assert await saved(server) == [], "the next save is far away"
    async with serving(tmp_path / "s", {}) as server:
        assert found(server) == AgreementCounts(agree=5)
        told = [(one.what, one.reason) for one in server.plane.activities("shop")]
        of_state = [one for one in told if one[0].startswith(("status", "rollout"))]
        assert of_state[:2] == [
            ("status InService", "generation-ready"),
            ("rollout creating: 0% of the traffic", "rollout-begins"),
        ], "why it is as it is was written down"
        await server.delete()
        await gone(server)
        assert await saved(server) == []
    async with serving(tmp_path / "s", {}) as server:
        assert server.plane.last_agreement("shop") is None


@pytest.mark.usefixtures("saves_at_once")
async def test_pairs_are_saved_while_the_server_runs_and_a_database_that_fails_costs_none(
    tmp_path: Path,
) -> None:
    pairs: dict[str, int] = {}

    def rename(store: Store, old: str, new: str) -> None:
        with store.begin() as db:
            db.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

    async with serving(tmp_path / "s", pairs) as server:

        async def is_saved(counts: dict[str, int]) -> bool:
            return await saved(server) == [counts]

        await baking(server)
        await until(lambda: is_saved({}))
        await server.plane.database.call(rename, "compared_pairs", "away")
        before = item_failures.counts().get("agreements", 0)
        pairs["agree"] = 7

        async def failed_twice() -> bool:
            return item_failures.counts().get("agreements", 0) > before + 1

        await until(failed_twice)
        await server.plane.database.call(rename, "away", "compared_pairs")
        await until(lambda: is_saved({"agree": 7}))
        assert found(server) == AgreementCounts(agree=7)
