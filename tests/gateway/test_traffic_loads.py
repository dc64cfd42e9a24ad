"""What a process tells of its endpoints to whoever pushes work from another region."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.gateway import Bench, routes

from penstock.config import LimitConfig
from penstock.gateway.traffic_loads import TrafficLoads

MODEL: dict[str, object] = {"lanes": 2, "rows_max": 4}
UNSEEN = 2 * 2 * 4  #: slots of a copy before any run time is known: two batches a lane


def site(*copies: int, outstanding_max: int = 100) -> tuple[Bench, TrafficLoads]:
    bench = Bench()
    for copy in copies:
        bench.connect(f"i{copy}")
    bench.dispatcher.publish(routes(*copies, outstanding_max=outstanding_max, model=MODEL))
    return bench, TrafficLoads(bench.dispatcher, LimitConfig())


def test_room_is_told_by_endpoint_with_what_is_there_and_under_way() -> None:
    bench, loads = site(1, 2)
    for _ in range(3):
        bench.invoke()
    assert loads.all() == {
        "echo": {
            "room": 2 * UNSEEN - 3,
            "waiting": 0,
            "in_flight": 3,
            "copies": 2,
            "capacity_rps": 0.0,
            "cache_tokens": 0,
        }
    }
    assert loads.room("echo") == 2 * UNSEEN - 3
    assert loads.room("none") == 0


def test_a_copy_takes_no_more_than_it_may_hold() -> None:
    _, loads = site(1, outstanding_max=5)
    assert loads.room("echo") == 5


@pytest.mark.parametrize(
    ("model", "lane_us", "rate", "room"),
    [
        # each of two lanes runs four rows in 0.4 s
        (MODEL | {"task": "text-classification"}, 100_000, 2 * 4 / 0.4, 2 * 4 + 3),
        # requests have four rows each: two lanes answer five a second
        (MODEL, 400_000, 2 / 0.4, 2 * 4),
        # each of four slots had its answer in 0.4 s; none waits
        ({"task": "text-generation", "lanes": 4, "rows_max": 1}, 400_000, 4 / 0.4, 4),
        # texts join a decode batch of four rows one by one, and six are handed over
        ({"lanes": 6, "rows_max": 4, "lane_rows_max": 1}, 400_000, 6 / 0.4, 6 + 2),
    ],
)
def test_what_the_queue_works_off_on_the_way_is_room_as_well(
    model: dict[str, object], lane_us: int, rate: float, room: int
) -> None:
    bench = Bench()
    bench.connect("i1")
    bench.dispatcher.publish(routes(1, outstanding_max=100, model=model))
    loads = TrafficLoads(bench.dispatcher, LimitConfig())
    bench.dispatcher.table.endpoints["echo"].admission.observe(400_000, 4, lane_us, 1.0)
    assert loads.all()["echo"]["capacity_rps"] == pytest.approx(rate)
    assert loads.room("echo") == room


def test_what_is_beyond_the_slots_of_a_copy_waits_there() -> None:
    bench = Bench()
    bench.connect("i1")
    bench.dispatcher.publish(
        routes(1, outstanding_max=100, model=MODEL | {"task": "text-generation"})
    )
    loads = TrafficLoads(bench.dispatcher, LimitConfig())
    bench.dispatcher.table.endpoints["echo"].router.set_others(1, 9)
    told = loads.all()["echo"]
    assert (told["room"], told["waiting"], told["in_flight"]) == (0, 1, 9)


@pytest.mark.parametrize(("sizes", "told"), [((100, 50), 150), ((100, 0), 0), ((), 0)])
def test_a_region_tells_what_all_its_engines_keep_if_all_of_them_say(
    sizes: tuple[int, ...], told: int
) -> None:
    bench = Bench()
    for copy in range(1, len(sizes) + 1):
        bench.connect(f"i{copy}")
    plain = routes(*range(1, len(sizes) + 1), model=MODEL)
    (variant,) = plain.variants
    copies = tuple(
        replace(route, cache_tokens=size) for route, size in zip(variant.copies, sizes, strict=True)
    )
    bench.dispatcher.publish(replace(plain, variants=(replace(variant, copies=copies),)))
    loads = TrafficLoads(bench.dispatcher, LimitConfig())
    assert loads.all()["echo"]["cache_tokens"] == told


def test_a_copy_that_is_not_well_has_no_room() -> None:
    bench, loads = site(1, 2)
    bench.link(2).lose()
    assert loads.room("echo") == UNSEEN


@pytest.mark.parametrize(
    ("of_model", "of_server", "room"),
    [("", "hold", 1), ("", "refuse", 0), ("refuse", "hold", 0), ("hold", "refuse", 1)],
)
def test_an_endpoint_that_sleeps_takes_one_request_if_it_holds_what_comes(
    of_model: str, of_server: str, room: int
) -> None:
    bench = Bench()
    asleep = routes(model=MODEL)
    variants = tuple(replace(one, zero_capacity=of_model) for one in asleep.variants)
    bench.dispatcher.publish(replace(asleep, variants=variants))
    loads = TrafficLoads(bench.dispatcher, LimitConfig(zero_capacity=of_server))
    assert (loads.room("echo"), loads.all()["echo"]["copies"]) == (room, 0)


def test_an_endpoint_that_answers_later_takes_nothing_that_is_pushed() -> None:
    bench, loads = site(1)
    bench.dispatcher.publish(replace(routes(1, model=MODEL), asynchronous=True))
    assert loads.all() == {}


def test_a_server_that_drains_has_no_room() -> None:
    bench, loads = site(1)
    bench.dispatcher._stopping = True
    assert (loads.accepting, loads.room("echo")) == (False, 0)


def test_what_other_processes_have_there_is_counted_as_well() -> None:
    """A control process tells for all gateways: it sees no answers itself."""
    bench, _ = site(1)
    bench.dispatcher.table.endpoints["echo"].router.set_others(1, 5)
    waiting = {"echo": 0}
    loads = TrafficLoads(
        bench.dispatcher, LimitConfig(), waiting=lambda name: waiting[name], row_s=lambda _: 0.5
    )
    bench.invoke()
    told = loads.all()["echo"]
    assert (told["room"], told["in_flight"], told["capacity_rps"]) == (8 - 6, 6, 4.0)
    waiting["echo"] = 2
    told = loads.all()["echo"]
    assert (told["room"], told["waiting"], told["in_flight"]) == (0, 2, 8)
