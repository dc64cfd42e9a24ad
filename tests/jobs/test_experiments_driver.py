"""The driver of experiments over a real database and the real front door: a kill at any step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_experiments import OLD, ExperimentPlane, config
from tests.api.test_sagemaker_operations import in_service
from tests.jobs.schedule_site import Killed

from penstock.control.database import schema
from penstock.control.store.store import Store
from penstock.errors import CallerError
from penstock.jobs.experiments import book
from penstock.jobs.experiments.driver import LOOK_EVERY_S, MOVING_EVERY_S, ExperimentsDriver

HOUR = 3600.0


class KilledDriver:
    """Between the driver and what it calls: the process ends before or after one of the calls."""

    def __init__(self, plane: ExperimentPlane, kill_at: int) -> None:
        self._plane = plane
        self._kill_at = kill_at
        self.steps = 0
        self.driver = ExperimentsDriver(
            database=self, call=self._internal, notify=plane.doorbell.notify, clock=plane.clock,
        )  # fmt: skip

    async def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._step()
        answer = await self._plane.database.call(method, *args, **kwargs)
        self._step()
        return answer

    async def _internal(self, operation: str, members: Any, *, owner: str = "") -> Any:
        self._step()
        answer = await self._plane.internal(operation, members)
        self._step()
        return answer

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._kill_at:
            raise Killed


def made(state_dir: Path) -> ExperimentPlane:
    plane = ExperimentPlane(state_dir)
    for name in ("old", "new"):
        model = {"ModelDataUrl": f"file:///models/{name}"}
        assert plane.call("CreateModel", ModelName=name, PrimaryContainer=model)[0] == 200
    config(plane, "shop", OLD)
    assert plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="shop")[0] == 200
    in_service(plane)
    schedule = {"EndTime": plane.clock.wall() + HOUR}
    assert plane.create(Schedule=schedule)[0] == 200
    return plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ExperimentPlane]:
    one = made(tmp_path / "state")
    yield one
    one.close()


def live(plane: ExperimentPlane, driver: ExperimentsDriver) -> list[str]:
    """Its statuses, turn by turn, up to a long time after its end; updates take one turn."""
    seen = []
    for _ in range(6):
        plane.runner.run(driver.tick())
        record = plane.store(Store.describe_endpoint, "shop")
        if record.status == "Updating":
            in_service(plane)
        seen.append(plane.described()["Status"])
        if seen[-1] == "Running":
            plane.clock.advance(HOUR)
    return seen


def test_it_runs_and_its_endpoint_is_what_it_was(plane: ExperimentPlane) -> None:
    before = plane.store(Store.describe_endpoint, "shop").active
    assert live(plane, plane.driver) == ["Starting", "Running", "Stopping"] + ["Completed"] * 3
    after = plane.store(Store.describe_endpoint, "shop").active
    assert (after.variants, after.config_name) == (before.variants, "shop")


def test_a_kill_at_any_step_changes_nothing_in_the_end(tmp_path: Path) -> None:
    """And no update is asked for twice: each would start all copies again."""
    kill_at = 0
    while True:
        kill_at += 1
        plane = made(tmp_path / str(kill_at))
        killed = KilledDriver(plane, kill_at)
        try:
            live(plane, killed.driver)
        except Killed:
            plane.clock.advance(HOUR * (kill_at % 2) / 2)
            live(plane, plane.driver)
            live(plane, plane.driver)
        record = plane.store(Store.describe_endpoint, "shop")
        assert plane.described()["Status"] == "Completed", kill_at
        assert (record.config_name, record.active.generation) == ("shop", 3), kill_at
        assert plane.store(book.describe, "try").config_count == 1, kill_at
        plane.close()
        if killed.steps < kill_at:
            break
    assert kill_at > 30


def test_a_server_that_can_not_do_it_now_is_asked_again(plane: ExperimentPlane) -> None:
    """Not for ever: only until the experiment's own end."""

    async def away(operation: str, members: Any, *, owner: str = "") -> dict[str, Any]:
        raise CallerError("ServiceUnavailable", "the bucket is away")

    driver = ExperimentsDriver(
        database=plane.database, call=away, notify=plane.doorbell.notify, clock=plane.clock
    )
    assert plane.runner.run(driver.tick()) == MOVING_EVERY_S
    assert plane.described()["Status"] == "Starting"
    plane.clock.advance(HOUR)
    plane.runner.run(driver.tick())
    assert plane.described()["Status"] == "Cancelled"
    assert plane.store(Store.describe_endpoint, "shop").active.generation == 1


def test_one_that_can_not_be_read_is_listed_and_deleted_and_stops_no_other(
    plane: ExperimentPlane,
) -> None:
    config(plane, "other", OLD)
    plane.call("CreateEndpoint", EndpointName="other", EndpointConfigName="other")
    in_service(plane, "other")
    assert plane.create(Name="second", EndpointName="other")[0] == 200

    def damage(store: Store) -> None:
        table = schema.inference_experiments
        with store.begin() as db:
            db.execute(table.update().where(table.c.key == "try").values(request="{"))

    plane.store(damage)
    assert plane.runner.run(plane.driver.tick()) == MOVING_EVERY_S
    listed = plane.call("ListInferenceExperiments")[1]["InferenceExperiments"]
    assert {one["Name"]: one["Status"] for one in listed} == {
        "try": "Creating",
        "second": "Starting",
    }
    assert "can't be read" in plane.call("DescribeInferenceExperiment", Name="try")[1]["message"]
    assert plane.call("DeleteInferenceExperiment", Name="try")[0] == 200


def test_an_endpoint_that_can_not_be_read_stops_no_other(plane: ExperimentPlane) -> None:
    config(plane, "other", OLD)
    plane.call("CreateEndpoint", EndpointName="other", EndpointConfigName="other")
    in_service(plane, "other")
    assert plane.create(Name="second", EndpointName="other")[0] == 200

    def damage(store: Store) -> None:
        table = schema.deployments
        with store.begin() as db:
            db.execute(table.update().where(table.c.endpoint_key == "shop").values(spec="{"))

    plane.store(damage)
    plane.runner.run(plane.driver.tick())
    assert plane.store(book.describe, "second").status == "Starting"


def test_an_update_that_was_asked_for_before_a_kill_and_is_undone_is_not_asked_for_again(
    plane: ExperimentPlane,
) -> None:
    """A server that can't start the new copies would try for ever."""
    killed = KilledDriver(plane, 0)

    async def call(method: Any, /, *args: Any, **kwargs: Any) -> Any:
        if method is book.note_begun:
            raise Killed
        return await plane.database.call(method, *args, **kwargs)

    killed.call = call  # type: ignore[method-assign]
    with pytest.raises(Killed):
        plane.runner.run(killed.driver.tick())
    assert not plane.store(book.describe, "try").begun
    plane.runner.run(plane.driver.tick())
    plane.store(
        Store.set_status, "shop", "InService", now=plane.clock.wall(), failure_reason="no room",
        active_generation=1,
    )  # fmt: skip
    plane.runner.run(plane.driver.tick())
    seen = plane.described()
    assert (seen["Status"], seen["StatusReason"]) == ("Cancelled", "no room")


def test_it_looks_when_something_may_have_changed(plane: ExperimentPlane) -> None:
    assert plane.runner.run(plane.driver.tick()) == MOVING_EVERY_S
    in_service(plane)
    assert plane.runner.run(plane.driver.tick()) == LOOK_EVERY_S
    ends = plane.described()["Schedule"]["EndTime"]
    plane.clock.advance(ends - plane.clock.wall() - 2)
    assert plane.runner.run(plane.driver.tick()) == pytest.approx(2.0)
