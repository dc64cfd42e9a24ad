"""The control plane from end to end, with real child processes that speak the real protocol.

Instances are `tests/kit/fake_instance.py`; the gateway is a recorder of what it is told.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit import databases
from tests.kit.control_plane import SPEC, ControlPlaneServer, deployment, gone, running
from tests.kit.polling import until
from tests.kit.processes import alive

from penstock.control.access.keys import AccessKeys
from penstock.control.instances.entries import InstanceEntry
from penstock.control.store.store import Store
from penstock.core.deployment.endpoint_state import READY
from penstock.errors import CallerError

pytestmark = pytest.mark.usefixtures("on_each_database")


async def test_an_endpoint_comes_into_service_with_all_its_copies(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(count=2)
        await server.reaches("InService")
        assert server.gateway.copies() == [1, 2]
        routes = server.gateway.routes["shop"].variants[0]
        assert routes.copies[0].outstanding_max == 64
        assert routes.model["name"] == "shop"
        assert server.plane.current_counts("SHOP") == {"blue": 2}
        assert server.gateway.story == ["publish [1, 2]"]  # not one by one
        view = server.plane.instances("shop")[0]
        (copy,) = view.copies
        assert (copy.load_s, copy.model_memory_bytes, view.generation) == (0.25, 1000, 1)
        status = await server.plane.instance_status(view.instance_id)
        assert status["memory_bytes"] == 1200
        assert await server.plane.explain_copy(view.instance_id, 1) == {
            "ok": True, "copy": 1, "queue_rows": 0,
        }  # fmt: skip
        assert [path.name for path in server.plane.log_paths("Shop")] == [
            "blue-1-0.log", "blue-1-1.log",
        ]  # fmt: skip
        assert "loading fake://ok" in view.log_path.read_text()


async def test_the_history_tells_what_was_done_and_why(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        assert [(one.what, one.reason) for one in server.plane.activities("shop")] == [
            ("start ml.local.small for blue generation 1 slot 0", "new-generation"),
            ("load copy", "instance-running"),
            ("room for the model", "fits"),
            ("copy loaded", "load-done"),
            ("publish routes", "generation-ready"),
            ("status InService", "generation-ready"),
        ]
        assert server.plane.activities("unknown") == []


async def test_a_wrong_model_fails_the_endpoint_with_file_cause_and_remedy(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(how="bad", count=2)
        record = await server.reaches("Failed")
        assert record.failure_reason == (
            "Model intent of variant blue could not be loaded: model.onnx is cut short."
            " Upload it again."
        )

        async def stopped() -> bool:
            return server.plane.instances("shop") == []

        await until(stopped)
        await server.delete()
        await gone(server)
        await server.create()  # the name is free again
        await server.reaches("InService")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "die",
            (
                "Variant blue while it loaded its model: the instance ended: signal 9 (SIGKILL)",
                "MemoryError: no memory for weights",
            ),
        ),
        ("not-now", ("the store does not answer",)),
    ],
)
async def test_a_failure_that_may_pass_fails_the_creation_after_three_attempts(
    tmp_path: Path, how: str, words: tuple[str, ...]
) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(how=how)
        record = await server.reaches("Failed")
        assert [each for each in words if each not in record.failure_reason] == []
        starts = [a for a in server.plane.activities("shop") if a.what.startswith("start ml.")]
        assert len(starts) == 3


async def test_a_load_that_hangs_ends_in_a_startup_timeout(tmp_path: Path) -> None:
    server = ControlPlaneServer(tmp_path / "s")
    server.plane._spec = replace(SPEC, margin_s=0.2)
    await server.plane.start()
    try:
        spec = deployment("hang")
        variant = replace(spec.variants[0], download_timeout_s=0.1, startup_timeout_s=0.1)
        await server.plane.database.call(
            Store.create_endpoint, "shop", replace(spec, variants=(variant,)), arn="a", now=1.0
        )
        server.plane.notify("shop")
        record = await server.reaches("Failed")
        assert record.failure_reason.startswith("startup timeout: variant blue")
    finally:
        await server.plane.close()


async def test_an_update_serves_from_the_old_copies_until_the_new_ones_are_ready(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        gate = tmp_path / "gate"
        await server.update(how="slow", gate=gate)
        assert (await server.record()).status == "Updating"

        async def both() -> bool:
            return server.states() == ["ready", "loading"]

        await until(both)
        assert server.gateway.copies() == [1]
        server.gateway.busy.clear()  # the old copy has requests in flight
        gate.touch()
        record = await server.reaches("InService")
        assert record.config_name == "slow"
        assert server.gateway.copies() == [2]
        assert len(server.plane.instances("shop")) == 2  # drained before it is stopped
        server.gateway.busy.set()
        await server.settled(1)
        assert server.gateway.story == ["publish [1]", "publish [2]", "drain [1]"]
        assert list(server.gateway.connected) == [server.plane.instances("shop")[0].instance_id]


async def test_a_failed_update_changes_nothing_but_the_failure_reason(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        await server.update(how="bad")
        record = await server.reaches("InService")
        assert record.config_name == "ok"
        assert record.failure_reason.startswith(
            "the update to configuration bad failed, ok serves on: Model intent"
        )
        await server.settled(1)
        assert server.gateway.story == ["publish [1]"]
        await server.update(how="ok")  # and the next one succeeds
        assert (await server.reaches("InService")).failure_reason == ""
        assert server.gateway.copies() == [3]


async def test_counts_go_up_and_down_and_weights_are_published(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        await server.weights((None, 3))
        await server.reaches("InService")
        assert server.gateway.copies() == [1, 2, 3]
        await server.weights((4.0, 1))
        await server.reaches("InService")
        assert server.gateway.copies() == [1]
        assert server.gateway.routes["shop"].variants[0].weight == 4.0
        await server.settled(1)


async def test_memory_is_not_promised_twice(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(kind="ml.local.machine")
        await server.reaches("InService")
        await server.create("second", kind="ml.local.small")
        record = await server.reaches("Failed", "second")
        assert record.failure_reason.startswith(
            "CapacityError: an instance of type ml.local.small asks for 1.00 GiB of memory"
        )
        await server.update(kind="ml.local.small")  # no room beside the old generation
        record = await server.reaches("InService")
        assert record.failure_reason.startswith("CapacityError:")
        assert server.gateway.copies() == [1]
        await server.weights((None, 2))
        record = await server.reaches("InService")
        assert record.failure_reason.startswith("CapacityError:")
        assert record.active is not None
        assert record.active.variants[0].instance_count == 1
        # A deletion and a creation in a row: the second waits for the first one's room.
        await server.delete()
        await server.create("third", kind="ml.local.machine")
        await server.reaches("InService", "third")


async def test_an_unknown_instance_type_is_a_failure_reason(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(kind="huge")
        record = await server.reaches("Failed")
        assert record.failure_reason.startswith("'huge' is not an instance type. Use ml.local")


async def test_a_killed_instance_is_replaced_and_the_endpoint_stays_in_service(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(count=2)
        await server.reaches("InService")
        first, second = server.plane.instances("shop")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)

        async def without() -> bool:
            return server.gateway.copies() == [second.copies[0].copy]

        await until(without)
        await server.settled(2)
        assert server.gateway.copies() == [second.copies[0].copy, 3]
        assert (await server.record()).status == "InService"
        assert ("instance ended", "instance-exit") in [
            (one.what, one.reason) for one in server.plane.activities("shop")
        ]


async def test_a_stopped_instance_is_found_silent_and_replaced(tmp_path: Path) -> None:
    """SIGSTOP: the process lives and its connections stand, but nobody answers any more."""
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        reconciler = server.plane._reconciler
        assert reconciler is not None
        status = reconciler.work.status
        status.settings = replace(status.settings, status_s_max=0.05)
        pid = server.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        status.ask()  # once: who does not answer is asked again without waiting

        async def silent() -> bool:
            done = [one.what for one in server.plane.activities("shop")]
            return "instance silent" in done and not alive(pid)

        await until(silent, lambda: str(server.plane.activities("shop")))
        status.settings = replace(status.settings, status_s_max=10.0)
        await server.settled(1)


async def test_a_silent_shadow_is_not_taken_for_one_that_hangs(tmp_path: Path) -> None:
    """It may get no core for minutes, and nobody waits for its answers."""
    async with running(tmp_path / "s") as server:
        spec = deployment()
        dark = replace(spec.variants[0], name="dark")
        shadowed = replace(spec, shadows=(dark,))
        await server.plane.database.call(Store.create_endpoint, "shop", shadowed, arn="shop", now=1)
        server.plane.notify("shop")
        await server.reaches("InService")
        reconciler = server.plane._reconciler
        assert reconciler is not None

        def ready() -> list[InstanceEntry]:
            return [
                one
                for ledger, one in reconciler.work.status._under_way.instances()
                if one.variant == "dark"
                and [copy.phase for copy in ledger.copies_on(one.instance_id)] == [READY]
            ]

        await until(ready)
        (shadow,) = ready()
        assert shadow.pid is not None
        status = reconciler.work.status
        status.settings = replace(status.settings, status_s_max=0.05)
        os.kill(shadow.pid, signal.SIGSTOP)
        status.ask()
        await until(lambda: shadow.silent_count > 10)
        os.kill(shadow.pid, signal.SIGCONT)
        await until(lambda: shadow.silent_count == 0)
        assert ready() == [shadow]


async def test_models_that_hang_while_they_load_keep_no_other_waiting(tmp_path: Path) -> None:
    """As many as may load at once (one a core) hung, and no endpoint came up for ten minutes."""
    async with running(tmp_path / "s") as server:
        assert server.plane._reconciler is not None
        loads = server.plane._reconciler.work.copies
        loads.settings = replace(loads.settings, load_turn_s_max=0.2)
        await server.create("first", "hang")
        await server.create("second", "hang")
        await server.create("shop")
        await server.reaches("InService")
        assert (await server.record("first")).status == "Creating"


async def test_a_lost_worker_leaves_the_routes_until_the_instance_has_it_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        instance_id = server.plane.instances("shop")[0].instance_id
        reconciler = server.plane._reconciler
        assert reconciler is not None
        client = reconciler.work.client(instance_id)
        assert client is not None

        async def emit(event: str, expected: list[int], **more: object) -> None:
            fields = {"event": event, "copy": 1, **more}
            await client.call({"op": "emit", "event": fields}, timeout_s=10.0)

            async def there() -> bool:
                return server.gateway.copies() == expected

            await until(there)

        await emit("copy-lost", [])
        await emit("copy-ready", [1])
        await emit("copy-failed", [2], error={"message": "it ends as soon as it starts"})
        assert any("it ends as soon as it starts" in a.detail
                   for a in server.plane.activities("shop"))  # fmt: skip


async def test_a_deleted_endpoint_is_withdrawn_drained_stopped_and_forgotten(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        pids = server.pids()
        assert pids
        await server.delete()
        await gone(server)
        assert server.gateway.story == ["publish [1]", "withdraw", "drain [1]"]
        assert server.gateway.routes == {}
        assert not any(alive(pid) for pid in pids)


def processes_of(folder: Path) -> list[int]:
    """Those that log into the folder: its instances, known to a ledger or not."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/2"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if path.readlink().is_relative_to(folder):
                found.append(int(path.parts[2]))
    return sorted(found)


@pytest.mark.parametrize("moment", ["starting", "loading", "updating"])
async def test_a_deletion_is_possible_at_any_moment(tmp_path: Path, moment: str) -> None:
    async with running(tmp_path / "s") as server:
        if moment == "updating":
            await server.create()
            await server.reaches("InService")
            await server.update(how="hang")
        else:
            await server.create(how="hang")

        async def there() -> bool:
            return (moment if moment != "updating" else "loading") in server.states()

        await until(there)
        if moment != "starting":  # else its pid is not known yet
            assert processes_of(tmp_path) == sorted(server.pids())
        await server.delete()
        await gone(server)
        assert processes_of(tmp_path) == []


async def test_a_restarted_server_brings_everything_back_as_it_was_asked_for(
    tmp_path: Path,
) -> None:
    """Each endpoint is left at another point of its life; the record alone survives."""
    gate = tmp_path / "gate"
    async with running(tmp_path / "s") as first:
        for name in ("serving", "updating", "failing", "deleted", "weights"):
            await first.create(name)
            await first.reaches("InService", name)
        await first.create("creating", "slow", gate=gate)
        await first.update("updating", "slow", gate=gate)
        first.gateway.busy.clear()  # deletions can't finish
        await first.delete("deleted")
        await first.plane.database.call(
            Store.update_weights, "weights", {"blue": (7.0, 2)}, now=3.0
        )
        await first.plane.database.call(Store.begin_update, "failing", deployment("bad"), now=3.0)
    async with running(tmp_path / "s") as second:
        await second.reaches("InService", "serving")
        assert (await second.record("creating")).status == "Creating"
        assert (await second.record("updating")).status == "Updating"
        gate.touch()
        await second.reaches("InService", "creating")
        updated = await second.reaches("InService", "updating")
        assert updated.config_name == "slow"
        await gone(second, "deleted")
        fallen_back = await second.reaches("InService", "failing")
        assert fallen_back.config_name == "ok"
        assert fallen_back.failure_reason.startswith("the update to configuration bad failed")
        await second.reaches("InService", "weights")
        for name, count in (("serving", 1), ("creating", 1), ("updating", 1), ("failing", 1),
                            ("weights", 2)):  # fmt: skip
            await second.settled(count, name)
        assert second.gateway.routes["weights"].variants[0].weight == 7.0


async def test_a_spec_is_found_although_nobody_told_of_it(tmp_path: Path) -> None:
    """A front door may be cut off between writing the record and saying so."""
    async with running(tmp_path / "s") as server:
        await server.plane.database.call(
            Store.create_endpoint, "shop", deployment(), arn="shop", now=1.0
        )
        await server.reaches("InService")


async def test_closing_ends_every_process_and_frees_the_state_directory(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create(count=2)
        await server.reaches("InService")
        await server.create("slow", "hang")
        pids = server.pids()
        if databases.term() is None:  # else whoever leads holds the lock
            with pytest.raises(CallerError) as raised:
                await ControlPlaneServer(tmp_path / "s").plane.start()
            assert raised.value.code == "state-dir-in-use"
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    await server.plane.close()  # once more: nothing to do
    async with running(tmp_path / "s"):
        pass


async def test_a_database_that_can_not_be_written_holds_nothing_up_for_ever(tmp_path: Path) -> None:
    """The status is recorded as soon as the disk has room again."""
    async with running(tmp_path / "s") as server:
        await server.create(how="slow", gate=tmp_path / "gate")

        def only_reads(store: Store, yes: bool) -> None:
            if databases.term() is not None:
                databases.set_epoch(tmp_path / "s", 2 if yes else 1)
                return
            with store.read() as db:
                db.exec_driver_sql(f"PRAGMA query_only={int(yes)}")

        await server.plane.database.call(only_reads, True)
        (tmp_path / "gate").touch()

        async def published() -> bool:
            return server.gateway.copies() == [1]

        await until(published)
        assert (await server.record()).status == "Creating"
        await server.plane.database.call(only_reads, False)
        await server.reaches("InService")


async def test_keys_made_by_another_process_are_seen_by_a_running_server(tmp_path: Path) -> None:
    async with running(tmp_path / "s", auth=True) as server:
        ring = server.plane.key_ring
        store = databases.opened(tmp_path / "s")
        made = AccessKeys(store, tmp_path / "s").create_bearer_key("ci", now=1.0)

        async def known() -> bool:
            return ring.bearer(made.secret) == made.key_id

        await until(known)
        store.close()
