"""Time to ready as real instance processes take it, and over a restart of the server."""

from __future__ import annotations

from pathlib import Path

from tests.control.test_control_copies import running as one_instance
from tests.kit import model_files
from tests.kit.control_plane import gone, running

from penstock.control.reconcile.ready_times_file import ReadyTimesFile
from penstock.core.endpoint.ready_times import ReadyTimes, TimeToReady


async def test_the_first_copy_counts_its_instance_and_the_next_one_does_not(tmp_path: Path) -> None:
    async with one_instance(tmp_path) as server:
        first = server.load(1, "affine", model_files.affine(tmp_path / "affine"))
        await server.reach(first, "ready")
        second = server.load(2, "sums", model_files.row_sums(tmp_path / "sums"))
        await server.reach(second, "ready")
        assert first.took is not None
        assert second.took is not None
        assert min(first.took.start_s, first.took.connect_s) > 0.0
        assert min(first.took.fetch_s, first.took.load_s, first.took.waited_s) > 0.0
        assert first.took.warm_up_s == 0.0  # its artifact has no such requests
        assert (second.took.start_s, second.took.connect_s) == (0.0, 0.0)
        assert min(second.took.fetch_s, second.took.load_s) > 0.0


async def test_a_server_knows_after_its_restart_what_it_measured_before(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create()
        await server.reaches("InService")
        before = server.plane.ready_times.seen("shop")["blue"]
        assert before.count == 1
        assert before.last.load_s == 0.25  # what the instance said
        assert before.forecast_s == before.last.total_s > 0.25
    async with running(tmp_path / "s") as server:
        assert server.plane.ready_times.forecast_s("shop", "blue") == before.forecast_s
        await server.settled(1)
        assert server.plane.ready_times.seen("shop")["blue"].count == 2
        await server.delete()
        await gone(server)
        assert server.plane.ready_times.forecast_s("shop", "blue") is None


def test_a_file_that_cannot_be_read_costs_only_its_content(tmp_path: Path) -> None:
    path = tmp_path / "ready-times.json"
    path.write_bytes(b"{torn")
    times = ReadyTimes()
    file = ReadyTimesFile(path, times)
    file.read()
    assert times.rows() == []
    times.observe("shop", "blue", TimeToReady(load_s=1.0))
    file.write()
    again = ReadyTimes()
    ReadyTimesFile(path, again).read()
    assert again.rows() == times.rows()


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "ready-times.json"
    times = ReadyTimes()
    file = ReadyTimesFile(path, times)
    file.write()
    assert not path.exists()
    times.observe("shop", "blue", TimeToReady(load_s=1.0))
    file.write()
    path.unlink()
    file.write()
    assert not path.exists()
