"""The driver of transform jobs: what it does when things go wrong around it, and whose turn it is.

Real parts but for the instances (`transform_plane.py`); `tests/system` has those.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.transform_plane import TransformDriverSite
from tests.kit.crash_disk import FailingDisk
from tests.kit.metrics_page import shown
from tests.kit.polling import until

from penstock.core.deployment.endpoint_state import SlotFailure
from penstock.core.jobs.spec import Span, TransformCapture, TransformInput
from penstock.errors import CallerError, InternalError, NotNowError
from penstock.jobs.transform import transactions, work
from penstock.jobs.transform.records import COMPLETED, FAILED, IN_PROGRESS, STOPPED

GONE = NotNowError("instance-gone", "the instance ended by signal 11")


@contextlib.asynccontextmanager
async def site_of(folder: Path, **options: float) -> AsyncIterator[TransformDriverSite]:
    site = TransformDriverSite(folder, **options)
    await site.open()
    try:
        yield site
    finally:
        await site.close()


def once(error: Exception, times: int = 1) -> Callable[[str, Span], Exception | None]:
    """It befalls the first spans, and no other."""
    left = [error] * times
    return lambda job, span: left.pop() if left else None


async def test_a_job_leaves_outputs_totals_and_nothing_else(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "two")
        site.put("deep/b.txt", "three")
        await site.create("j")
        record = await site.ended("j")
        assert (record.status, record.failure_reason) == (COMPLETED, "")
        assert site.outputs("j") == {"a.txt.out": "ONE\nTWO\n", "deep/b.txt.out": "THREE\n"}
        totals = record.totals
        assert (totals.objects, totals.spans, totals.spans_done) == (2, 2, 2)
        assert (totals.records, totals.bytes_in, totals.bytes_total) == (3, 14, 14)
        assert 0 < totals.cost == pytest.approx(totals.instance_s * 0.01)
        assert site.plane.hosts == {}  # its capacity is given back
        assert list((tmp_path / "state" / "jobs").iterdir()) == []
        assert site.driver.progress(record)["Instances"] == 0


async def test_what_was_read_and_written_is_listed_by_the_hour_of_the_jobs_begin(
    tmp_path: Path,
) -> None:
    """Of objects that have an output; each list is a manifest that another job can read."""
    async with site_of(tmp_path) as site:
        site.put("a b.txt", "one")
        site.put("deep/b.txt", "three")
        site.put("refused.txt", "two?")
        place = tmp_path / "captured"
        await site.create("j", capture=TransformCapture(uri=place.as_uri()))
        record = await site.ended("j")
        assert (record.status, record.started is not None) == (FAILED, True)
        hour = datetime.fromtimestamp(record.started or 0.0, UTC).strftime("%Y/%m/%d/%H")
        spec = record.spec
        found = {one.relative_to(place).as_posix(): one for one in place.rglob("*.jsonl")}
        assert {name: json.loads(one.read_text()) for name, one in found.items()} == {
            f"input/{hour}/j.jsonl": [
                {"prefix": spec.input.uri.rstrip("/") + "/"}, "a b.txt", "deep/b.txt",
            ],
            f"output/{hour}/j.jsonl": [
                {"prefix": spec.output.uri.rstrip("/") + "/"}, "a b.txt.out", "deep/b.txt.out",
            ],
        }  # fmt: skip
        listed = TransformInput(
            uri=found[f"input/{hour}/j.jsonl"].as_uri(), data_type="ManifestFile", split="Line"
        )
        await site.create("again", input=listed)
        assert (await site.ended("again")).status == COMPLETED
        assert site.outputs("again") == {"a b.txt.out": "ONE\n", "deep/b.txt.out": "THREE\n"}


async def test_lists_wait_for_their_disk_and_a_place_that_can_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        (tmp_path / "file").write_text("no folder")
        bad = TransformCapture(uri=(tmp_path / "file" / "below").as_uri())
        with pytest.raises(CallerError, match="can't be written"):
            await site.create("bad", capture=bad)
        failures = [NotNowError("output-unreachable", "the store is away")] * 2
        put = work.put_manifests

        def put_manifests(*arguments: Any, **more: Any) -> None:
            if failures:
                raise failures.pop()
            put(*arguments, **more)

        monkeypatch.setattr(work, "put_manifests", put_manifests)
        await site.create("j", capture=TransformCapture(uri=(tmp_path / "captured").as_uri()))
        assert (await site.ended("j")).status == COMPLETED
        assert not failures
        assert len(list((tmp_path / "captured").rglob("*.jsonl"))) == 2


async def test_the_page_of_metrics_tells_of_jobs_that_go_and_how_they_ended(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        await site.create("good")
        await site.ended("good")
        site.put("b.txt", "two?")  # it is refused
        await site.create("bad")
        assert (await site.ended("bad")).status == FAILED
        name = "penstock_transform_jobs_ended"
        await until(lambda: shown(site.counts, name)["failed",] == 1.0)
        assert shown(site.counts, name) == {
            ("completed",): 1.0,
            ("failed",): 1.0,
            ("stopped",): 0.0,
        }
        states = shown(site.counts, "penstock_transform_jobs")
        assert set(states) == {("waiting",), ("running",), ("stopping",)}
        assert set(shown(site.counts, "penstock_transform_job_age_seconds")) == set(states)


async def test_what_a_record_was_refused_for_is_told_and_written(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "two?", "three?")
        site.put("b.txt", "four")
        await site.create("j")
        record = await site.ended("j")
        assert record.status == FAILED
        assert record.failure_reason == "a.txt: record 1 at byte 4: a question"
        outputs = site.outputs("j")
        assert sorted(outputs) == ["a.txt.errors", "b.txt.out"]
        assert outputs["a.txt.errors"].count("\n") == 2
        assert record.totals.refused == 2


async def test_a_database_that_can_not_be_written_for_a_while_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        failures = [NotNowError("state-not-writable", "the disk is full")] * 2
        written = transactions.add_spans

        def add_spans(*arguments: object) -> None:
            if failures:
                raise failures.pop()
            written(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(transactions, "add_spans", add_spans)
        await site.create("j")
        assert (await site.ended("j")).status == COMPLETED
        assert failures == []
        assert site.outputs("j") == {"a.txt.out": "ONE\n"}


async def test_an_instance_that_crashes_over_a_span_is_replaced_and_it_is_done_again(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.befalls = once(GONE, 2)
        await site.create("j")
        assert (await site.ended("j")).status == COMPLETED
        assert site.outputs("j") == {"a.txt.out": "ONE\n"}


async def test_a_span_that_crashes_every_instance_fails_its_object(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.put("b.txt", "two")
        site.plane.befalls = lambda job, span: GONE if span.object == 0 else None
        await site.create("j")
        record = await site.ended("j")
        assert record.status == FAILED
        assert record.failure_reason == (
            "a.txt: bytes 0 to 4: 6 instances ended while they had it:"
            " the instance ended by signal 11."
        )
        assert site.outputs("j") == {"b.txt.out": "TWO\n"}


async def test_records_that_end_their_instances_are_refused_and_the_others_written(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", *"ab!cdef!gh")
        site.put("b.txt", "ten")
        await site.create("j", refused_max=2)
        record = await site.ended("j")
        assert (record.status, record.totals.refused) == (COMPLETED, 2)
        outputs = site.outputs("j")
        assert outputs["a.txt.out"].split() == list("ABCDEFGH")
        assert outputs["b.txt.out"] == "TEN\n"
        refused = [json.loads(line) for line in outputs["a.txt.errors"].splitlines()]
        assert [one["record"] for one in refused] == [2, 7]
        # One that nothing was noted of, then four for each: noted, apart, by itself twice.
        assert site.plane.deaths == 1 + 4 + 4
        assert list((tmp_path / "state" / "jobs").iterdir()) == []


async def test_one_record_that_ends_its_instances_fails_its_object_where_none_may_be_refused(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "two!", "three")
        site.put("b.txt", "four")
        await site.create("j")
        record = await site.ended("j")
        assert record.status == FAILED
        assert record.failure_reason == (
            "a.txt: record 1 at byte 4: the instance ended by signal 8."
        )
        assert sorted(site.outputs("j")) == ["a.txt.errors", "b.txt.out"]


async def test_what_was_found_out_over_dead_instances_outlives_the_server(tmp_path: Path) -> None:
    """It is restarted after each death, and needs none more than if it had been left alone."""
    async with site_of(tmp_path) as site:
        site.plane.holds_at_deaths = True  # else the next one comes before the restart
        site.put("a.txt", "one", "two!", "three")
        await site.create("j", refused_max=1)
        for deaths in range(1, 6):

            async def died(count: int = deaths) -> bool:
                cases = await site.database.call(transactions.cases_of, "j")
                return any(case.tries + 5 * len(case.refused) >= count for case in cases.values())

            await until(died)
            await site.restart()
            site.plane.hold.set()
        assert (await site.ended("j")).status == COMPLETED
        assert site.outputs("j")["a.txt.out"] == "ONE\nTHREE\n"
        assert site.plane.deaths == 5
        assert await site.database.call(transactions.cases_of, "j") == {}


async def test_errors_that_may_pass_are_tried_again_and_ours_do_not_blame_the_data(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.befalls = once(InternalError("internal", "a bug"))
        await site.create("j")
        assert (await site.ended("j")).status == COMPLETED
        site.plane.befalls = once(CallerError("input-changed", "it was changed", hint="Go on."))
        await site.create("k")
        record = await site.ended("k")
        assert (record.status, record.failure_reason) == (FAILED, "a.txt: it was changed. Go on.")


async def test_an_input_that_goes_between_the_call_and_the_begin_fails_the_job(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path, cores=1.0) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        await site.create("first")  # takes the only core
        await site.create("second", now=2.0)
        shutil.rmtree(tmp_path / "in")
        site.plane.hold.set()
        await site.ended("first")
        record = await site.ended("second")
        assert record.status == FAILED
        assert record.started is None
        assert str(tmp_path / "in") in record.failure_reason


async def test_an_output_that_can_no_longer_be_written_fails_its_object(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        await site.create("j")
        await site.until("j", lambda record: record.started is not None)
        out = tmp_path / "out" / "j"
        shutil.rmtree(out)
        out.write_text("a file where the folder was")
        site.plane.hold.set()
        record = await site.ended("j")
        assert record.status == FAILED
        assert record.failure_reason.startswith("a.txt: ")
        assert str(out) in record.failure_reason


async def waits_for_storage(site: TransformDriverSite, job: str) -> str:
    """Until it says so, and why."""

    async def told() -> bool:
        progress = site.driver.progress(await site.record(job))
        assert (await site.record(job)).status == IN_PROGRESS
        return progress.get("Waiting") == "storage"

    await until(told)
    return str(site.driver.progress(await site.record(job))["WaitingMessage"])


@pytest.mark.parametrize("folder", ["state/jobs", "out/j"])
@pytest.mark.parametrize("name", ["ENOSPC", "EIO", "EROFS"])
async def test_a_job_waits_for_its_disk_and_says_so_and_goes_on_after_a_restart(
    tmp_path: Path, folder: str, name: str
) -> None:
    """The disk of the parts, and that of the outputs."""
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.put("b.txt", "two")
        site.plane.hold.clear()
        await site.create("j")
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        error = getattr(errno, name)
        with FailingDisk(tmp_path / folder, error=error) as disk:
            site.plane.hold.set()
            assert os.strerror(error) in await waits_for_storage(site, "j")
            await site.restart()
            assert os.strerror(error) in await waits_for_storage(site, "j")
            disk.failing = False
            assert (await site.ended("j")).status == COMPLETED
        assert site.outputs("j") == {"a.txt.out": "ONE\n", "b.txt.out": "TWO\n"}


async def test_errors_of_an_object_without_output_wait_for_the_disk_too(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "what?")
        site.plane.hold.clear()
        await site.create("j")
        with FailingDisk(tmp_path / "out" / "j", error=errno.ENOSPC) as disk:
            site.plane.hold.set()
            await waits_for_storage(site, "j")
            disk.failing = False
            assert (await site.ended("j")).status == FAILED
        [errors] = site.outputs("j").values()
        assert json.loads(errors)["record"] == 1


async def test_parts_that_can_not_be_read_are_waited_for_where_the_output_is_a_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reading them raises is the system's own error there."""
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        real = work.assemble
        fails = [OSError(errno.EIO, os.strerror(errno.EIO))]
        monkeypatch.setattr(
            work,
            "assemble",
            lambda *args, **more: _raise(fails.pop()) if fails else real(*args, **more),
        )
        await site.create("j")
        assert os.strerror(errno.EIO) in await waits_for_storage(site, "j")
        assert (await site.ended("j")).status == COMPLETED
        assert site.outputs("j") == {"a.txt.out": "ONE\n"}


async def test_a_stop_does_not_wait_for_the_disk_of_the_errors(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "what?")
        site.plane.hold.clear()
        await site.create("j")
        with FailingDisk(tmp_path / "out" / "j", error=errno.ENOSPC):
            site.plane.hold.set()
            await waits_for_storage(site, "j")
            await site.database.call(transactions.begin_stop, "j", now=2.0)
            site.driver.notify("j")
            assert (await site.ended("j")).status in (FAILED, STOPPED)
        assert site.outputs("j") == {}


async def test_an_input_whose_disk_fails_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the objects are listed, and while they are read."""
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        site.plane.befalls = once(NotNowError("artifact-unreadable", "the disk fails"))
        await site.create("j")
        site.plane.hold.set()
        assert "the disk fails" in await waits_for_storage(site, "j")
        assert (await site.ended("j")).status == COMPLETED

        real = work.list_objects
        fails = [NotNowError("artifact-unreadable", "it is away")] * 2
        monkeypatch.setattr(
            work, "list_objects", lambda *args: _raise(fails.pop()) if fails else real(*args)
        )
        await site.create("k")
        assert "it is away" in await waits_for_storage(site, "k")
        assert (await site.ended("k")).status == COMPLETED


def _raise(error: Exception) -> Any:
    raise error


def failed(reason: str, *, permanent: bool = True) -> SlotFailure:
    return SlotFailure(
        variant="transform", generation=1, ordinal=0, count=1, at=0.0,
        message=f"told of {reason}", reason=reason, permanent=permanent,
    )  # fmt: skip


async def test_a_model_that_can_not_be_loaded_ends_the_job(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.failures = (failed("model-invalid"),)
        await site.create("j")
        record = await site.ended("j")
        assert (record.status, record.failure_reason) == (FAILED, "told of model-invalid")
        assert site.plane.hosts == {}


async def test_an_instance_that_was_held_still_until_its_end_is_no_records_fault(
    tmp_path: Path,
) -> None:
    """Whoever stops guests may do so as often as he likes: no record is looked for."""
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "two")
        site.plane.befalls = once(GONE, 20)
        site.plane.ends = (failed("instance-stood-still", permanent=False),)
        await site.create("j")
        record = await site.ended("j")
        assert (record.status, record.failure_reason) == (COMPLETED, "")
        assert site.plane.deaths == 20


async def test_a_job_whose_instances_do_not_see_the_servers_disk_is_refused(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.shared = False
        with pytest.raises(CallerError) as raised:
            await site.create("j")
        assert raised.value.code == "job-files-not-shared"


async def test_a_job_without_room_waits_and_says_so(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.plane.failures = (failed("memory-taken"),)
        await site.create("j")

        async def waits() -> bool:
            return site.driver.progress(await site.record("j")).get("Waiting") == "room"

        await until(waits)
        await site.create("next", now=2.0)
        site.plane.failures = ()
        site.plane.start_copy("transform-job/j")
        assert (await site.ended("j")).status == COMPLETED
        assert (await site.ended("next")).status == COMPLETED


async def test_jobs_take_turns_by_priority_and_owner_within_the_cores(tmp_path: Path) -> None:
    async with site_of(tmp_path, cores=1.0) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        await site.create("first", owner="a")
        await site.until("first", lambda record: record.started is not None)
        await site.create("a2", now=2.0, owner="a")
        await site.create("b1", now=3.0, owner="b")
        await site.create("urgent", now=4.0, owner="a", priority=5)
        waiting = await site.record("a2")
        assert site.driver.progress(waiting)["Waiting"] == "others-first"
        site.plane.hold.set()
        for job in ("first", "a2", "b1", "urgent"):
            assert (await site.ended(job)).status == COMPLETED
        assert site.plane.asked == [
            f"transform-job/{job}" for job in ("first", "urgent", "a2", "b1")
        ]
        assert site.plane.most == 1


async def test_no_job_has_more_instances_than_cores_or_spans(tmp_path: Path) -> None:
    async with site_of(tmp_path, cores=3.0) as site:
        for number in range(5):
            site.put(f"{number}.txt", "one")
        site.plane.hold.clear()
        await site.create("wide", instance_count=1000)
        await site.until("wide", lambda record: record.started is not None)
        await until(lambda: _there(site, "transform-job/wide"))
        (variant,) = site.plane.hosts["transform-job/wide"].variants
        assert variant.instance_count == 3
        assert variant.guest
        site.plane.hold.set()
        await site.ended("wide")
        shutil.rmtree(tmp_path / "in")
        site.put("one.txt", "one")
        site.plane.hold.clear()
        await site.create("narrow", instance_count=2)
        await until(lambda: _there(site, "transform-job/narrow"))
        assert site.plane.hosts["transform-job/narrow"].variants[0].instance_count == 1
        site.plane.hold.set()
        await site.ended("narrow")


async def _there(site: TransformDriverSite, name: str) -> bool:
    return name in site.plane.hosts


async def test_several_jobs_run_at_once_where_there_are_cores(tmp_path: Path) -> None:
    async with site_of(tmp_path, cores=3.0) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        for number in range(3):
            await site.create(f"j{number}")
        for number in range(3):
            await site.until(f"j{number}", lambda record: record.started is not None)
        site.plane.hold.set()
        for number in range(3):
            await site.ended(f"j{number}")
        assert site.plane.most == 3


async def test_a_restart_goes_on_where_the_record_ends(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one")
        site.put("b.txt", "two")
        site.plane.befalls = lambda job, span: GONE if span.object == 1 else None
        site.plane.hold.clear()
        await site.create("j", refused_max=None)
        await site.until("j", lambda record: record.started is not None)
        site.plane.befalls = lambda job, span: (
            NotNowError("not-yet", "later") if span.object == 1 else None
        )
        site.plane.hold.set()

        async def first_is_there() -> bool:
            return "a.txt.out" in site.outputs("j")

        await until(first_is_there)
        await site.restart()
        site.plane.befalls = lambda job, span: None
        assert (await site.ended("j")).status == COMPLETED
        assert site.plane.spans == [("j", 0, 0), ("j", 1, 0)]  # each once
        assert site.outputs("j") == {"a.txt.out": "ONE\n", "b.txt.out": "TWO\n"}


async def test_what_lay_on_the_disk_of_another_server_is_done_again_and_counted_once(
    tmp_path: Path,
) -> None:
    """A server that takes over has the record and the outputs, and not the other one's parts."""
    async with site_of(tmp_path) as site:
        site.put("a.txt", "one", "two?")
        site.put("b.txt", "three?", "x" * 300_000, "five")  # two spans
        site.plane.befalls = lambda job, span: (
            NotNowError("not-yet", "later") if (span.object, span.number) == (1, 1) else None
        )
        await site.create("j", refused_max=None)

        async def all_but_one() -> bool:
            _, _, assembled, done = await site.database.call(transactions.work_of, "j")
            return assembled == {0} and len(done) == 2

        await until(all_but_one)
        [parts] = (tmp_path / "state" / "jobs").iterdir()
        await site.restart(meanwhile=lambda: shutil.rmtree(parts))
        site.plane.befalls = lambda job, span: None
        record = await site.ended("j")
        assert (record.status, record.failure_reason) == (COMPLETED, "")
        assert sorted(site.plane.spans) == [("j", 0, 0), ("j", 1, 0), ("j", 1, 0), ("j", 1, 1)]
        outputs = site.outputs("j")
        assert sorted(outputs) == ["a.txt.errors", "a.txt.out", "b.txt.errors", "b.txt.out"]
        assert outputs["b.txt.out"] == "X" * 300_000 + "\nFIVE\n"
        totals = record.totals
        assert (totals.records, totals.refused, totals.spans_done) == (5, 2, 3)


async def test_a_stop_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async with site_of(tmp_path, cores=1.0) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        await site.create("runs")
        await site.until("runs", lambda record: record.started is not None)
        await site.create("waits", now=2.0)
        for job in ("waits", "runs"):
            await site.database.call(transactions.begin_stop, job, now=3.0)
            site.driver.notify(job)
            record = await site.ended(job)
            assert (record.status, record.failure_reason) == (STOPPED, "")
        assert site.outputs("runs") == {}
        assert site.plane.hosts == {}


async def test_parts_of_jobs_that_are_no_more_are_swept_away_at_the_start(tmp_path: Path) -> None:
    left = tmp_path / "state" / "jobs" / "gone" / "000000-000000.part"
    left.parent.mkdir(parents=True)
    left.write_text("of a job whose end was recorded before its parts were all removed")

    async with site_of(tmp_path):
        assert not left.parent.exists()


async def test_a_job_that_waits_is_in_progress_and_has_not_started(tmp_path: Path) -> None:
    async with site_of(tmp_path, cores=1.0) as site:
        site.put("a.txt", "one")
        site.plane.hold.clear()
        await site.create("first")
        await site.until("first", lambda record: record.started is not None)
        await site.create("second", now=2.0)
        record = await site.record("second")
        assert (record.status, record.started) == (IN_PROGRESS, None)
        site.plane.hold.set()
        await site.ended("second")
