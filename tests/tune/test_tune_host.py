"""What requests cost beside the model, charged to the twin's run times: figures made by hand."""

from __future__ import annotations

import pytest

from penstock.sim.workload import ServiceSpec
from penstock.tune.host import HostCost

#: 30 us in one loop, 10 in the other, 20 in making the load: 60 us a request.
HOST = HostCost(loops_s=(30e-6, 10e-6), load_s=20e-6)


def charged(rows: int, run_s: float, *, lanes: int, threads: int, cores: int) -> float:
    service = ServiceSpec(measured=((rows, 16, run_s),), noise=(1.0,))
    spec = HOST.charged(service, lanes=lanes, threads=threads, cores=cores)
    assert spec.noise == (1.0,)
    ((_, _, found_s),) = spec.measured
    return found_s


def test_lanes_that_use_all_cores_give_up_what_the_loops_need() -> None:
    """Ten requests of 60 us beside 1 ms on both of two cores: 2.6 ms of work, 1.3 ms of time."""
    assert charged(10, 1e-3, lanes=1, threads=2, cores=2) == pytest.approx(1.3e-3)


def test_lanes_that_leave_a_core_free_lose_nothing() -> None:
    assert charged(10, 1e-3, lanes=1, threads=1, cores=2) == 1e-3


def test_several_lanes_share_the_cores_with_the_requests_of_all() -> None:
    """Two lanes of 1 ms and 600 us of requests each: 3.2 ms of work on two cores."""
    assert charged(10, 1e-3, lanes=2, threads=1, cores=2) == pytest.approx(1.6e-3)


def test_requests_never_pass_faster_than_through_the_narrowest_loop() -> None:
    """A hundred at 30 us each in one loop, however many cores stand idle."""
    assert charged(100, 1e-3, lanes=1, threads=1, cores=64) == pytest.approx(3e-3)


def test_a_load_that_is_made_more_slowly_than_it_is_served_is_the_narrowest() -> None:
    host = HostCost(loops_s=(5e-6,), load_s=40e-6)
    assert host.narrowest_s == 40e-6
    assert host.request_s == pytest.approx(45e-6)
    assert host.told() == "5 us in the server's loops, 40 us in the load"
