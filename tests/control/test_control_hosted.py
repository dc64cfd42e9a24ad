"""Deployments that are no endpoints: kept up like them, and known to nobody else.

Instances are real child processes (`tests/kit/fake_instance.py`).
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.control_plane import ControlPlaneServer, deployment, running
from tests.kit.polling import until

from penstock.control.reconcile.hosted import HostedObserved
from penstock.control.store.store import Store
from penstock.errors import NotNowError
from penstock.fleet import child

NAME = "transform-job/nightly"


class HostedJob:
    """Hosts a deployment, and hears of it."""

    def __init__(self, server: ControlPlaneServer) -> None:
        self.server = server
        self.changes = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, **options: Any) -> None:
        wanted = replace(deployment(**options), endpoint=NAME, generation=1)
        self.server.plane.host(wanted, self._changed, self.events.append)

    def _changed(self) -> None:
        self.changes += 1

    async def seen(self, copies: int) -> HostedObserved:
        async def there() -> bool:
            found = self.server.plane.hosted(NAME)
            return found is not None and len(found.copies) == copies

        await until(there, lambda: str(self.server.plane.activities(NAME)))
        found = self.server.plane.hosted(NAME)
        assert found is not None
        return found

    async def gone(self) -> None:
        async def nothing_left() -> bool:
            return self.server.plane.hosted(NAME) is None

        await until(nothing_left, lambda: str(self.server.plane.activities(NAME)))


async def test_its_copies_answer_and_no_gateway_is_told_of_them(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        host = HostedJob(server)
        assert server.plane.hosted(NAME) is None
        host.ask(count=2)
        seen = await host.seen(2)
        assert (seen.instances, seen.coming, seen.failures) == (2, 0, ())
        assert seen.price_per_hour == pytest.approx(0.04)
        assert host.changes > 0
        assert server.gateway.routes == {}
        assert server.gateway.story == []
        assert await server.plane.database.call(Store.all_endpoints) == []
        one = seen.copies[0]
        assert server.plane.instance_phase(one.instance_id) == "running"
        reply = await server.plane.call_instance(one.instance_id, {"op": "status"}, timeout_s=10.0)
        assert reply["ok"]
        assert [path.name for path in server.plane.log_paths(NAME)] == [
            "blue-1-0.log", "blue-1-1.log",
        ]  # fmt: skip
        server.plane.unhost(NAME)
        await host.gone()
        assert server.gateway.routes == {}
        assert server.gateway.connected == {}


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGKILL, "instance-exit"), (signal.SIGSTOP, "instance-stood-still")],
)
async def test_an_instance_that_dies_is_replaced_and_its_calls_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    monkeypatch.setattr(child, "GUEST_LOOKS_MAX", 2)
    async with running(tmp_path / "s") as server:
        host = HostedJob(server)
        host.ask()
        (before,) = (await host.seen(1)).copies
        (view,) = server.plane.instances(NAME)
        assert view.pid is not None
        os.kill(view.pid, number)

        async def another() -> bool:
            found = server.plane.hosted(NAME)
            return found is not None and [one.copy for one in found.copies] not in (
                [], [before.copy],
            )  # fmt: skip

        await until(another)
        assert not server.plane.answers(before.instance_id)
        assert server.plane.instance_phase(before.instance_id) == ""
        with pytest.raises(NotNowError) as told:
            await server.plane.call_instance(before.instance_id, {"op": "status"}, timeout_s=10.0)
        assert told.value.code == "instance-gone"
        seen = server.plane.hosted(NAME)
        assert seen is not None
        assert [one.reason for one in seen.failures] == [reason]


async def test_a_model_that_can_not_be_loaded_is_told_of_and_tried_on(tmp_path: Path) -> None:
    """Whoever hosts it decides when that is in vain."""
    async with running(tmp_path / "s") as server:
        host = HostedJob(server)
        host.ask(how="bad")

        async def failed_again() -> bool:
            seen = server.plane.hosted(NAME)
            return seen is not None and bool(seen.failures) and seen.failures[0].count >= 2

        await until(failed_again)
        seen = server.plane.hosted(NAME)
        assert seen is not None
        assert seen.failures[0].permanent
        assert "model.onnx is cut short" in seen.failures[0].message
        server.plane.unhost(NAME)
        await host.gone()


async def test_one_that_is_taken_back_before_it_was_seen_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        host = HostedJob(server)
        host.ask()
        server.plane.unhost(NAME)
        await host.gone()
        server.plane.unhost(NAME)  # idempotent
        host.ask()  # and again from the beginning
        await host.seen(1)
