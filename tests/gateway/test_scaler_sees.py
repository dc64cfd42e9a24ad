"""What the metrics that scaling goes by count as in flight.

The ways in which other systems' scalers were blind, each by the complaint that it caused.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tests.kit.gateway import PREFIX, MemoryLink, Recording, reply, routes
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.config import LimitConfig
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.request_id import RequestIds
from penstock.metrics.counts.registry import MetricRegistry


class ScalerSite:
    """A dispatcher with real metrics, and a component `chat` on one copy."""

    def __init__(self, *copies: int) -> None:
        self.clock = ManualClock(monotonic_s=100.0)
        self.timers = ManualTimers(self.clock)
        self.registry = MetricRegistry()
        self.links: dict[str, MemoryLink] = {}
        self.dispatcher = Dispatcher(
            clock=self.clock,
            timers=self.timers,
            rng=random.Random(1),
            limits=LimitConfig(),
            recorders=self.registry,
            ids=RequestIds(PREFIX),
            link_factory=self._link,
        )
        for number in (1, 2):
            asyncio.run(self.dispatcher.connect(f"i{number}", "memory"))
        self.publish(*copies)

    def _link(self, instance_id: str, address: str, events: object) -> MemoryLink:
        link = self.links[instance_id] = MemoryLink(instance_id, address, events)
        return link

    def publish(self, *copies: int) -> None:
        part = replace(routes(*copies, outstanding_max=100).variants[0], component="chat")
        self.dispatcher.publish(
            EndpointRoutes(endpoint="echo", variants=(part,), takes_components=True)
        )

    def ask(self) -> Invocation:
        now = self.clock.monotonic()
        one = Invocation("echo", b"[]", b"", Recording(), received=now, deadline=None)
        one.affinity = Affinity(component="chat")
        self.dispatcher.invoke(one)
        return one

    @property
    def seen(self) -> int:
        """By the component's metric, and by its variant's, which are the same here."""
        of_component = self.registry.in_flight("echo", "AllTraffic", "chat")
        assert of_component == self.registry.in_flight("echo", "AllTraffic")
        return of_component


def test_a_queue_in_front_of_a_busy_copy_is_seen() -> None:
    """Ray Serve 22601, 32652: what waited behind a running request did not count."""
    site = ScalerSite(1)
    for _ in range(30):
        site.ask()  # one runs, and the instance's queue has the others
    assert site.seen == 30


def test_a_stream_is_in_flight_until_its_last_byte_and_not_until_its_first() -> None:
    """61551: load of streams fell while they were still being written, or never fell at all."""
    site = ScalerSite(1)
    one = site.ask()
    site.dispatcher.on_chunk(one, b"first", b"")
    site.timers.advance(30.0)
    assert site.seen == 1
    site.dispatcher.on_end(one, reply())
    assert site.seen == 1, "its last bytes are not out"
    site.dispatcher.written(one)
    assert site.seen == 0


def test_a_long_request_is_seen_all_the_time_that_it_runs() -> None:
    """18923: nothing was decided while a request ran, for what had ended was what counted."""
    site = ScalerSite(1)
    site.ask()
    for _ in range(5):
        site.timers.advance(10.0)
        assert site.seen == 1


def test_what_waits_at_zero_copies_is_seen_and_moves_with_the_first_copy() -> None:
    site = ScalerSite()
    waiting = [site.ask() for _ in range(3)]
    assert site.seen == 3
    site.publish(1)
    assert [item[0] for item in site.links["i1"].sent] == waiting
    assert site.seen == 3


def test_a_request_that_is_given_back_and_one_that_left_count_once() -> None:
    site = ScalerSite(1, 2)
    one, other = site.ask(), site.ask()
    link = next(link for link in site.links.values() if link.sent and link.sent[0][0] is one)
    link.give_back("draining")
    assert site.seen == 2
    site.dispatcher.cancel(other)
    assert site.seen == 1


def test_scale_in_cuts_no_queue_and_what_it_moves_is_seen_once() -> None:
    """18925: a copy was ended with its queue, whose requests came again as new load, so that
    another copy was started for them, and so on for ever."""
    site = ScalerSite(1, 2)
    asked = [site.ask() for _ in range(6)]
    leaving = [item[0] for item in site.links["i2"].sent]
    assert (site.seen, len(leaving)) == (6, 3)
    site.publish(1)
    assert site.seen == 6
    *queued, running = leaving
    for _ in queued:
        site.links["i2"].give_back("draining")
    assert site.seen == 6
    assert {item[0] for item in site.links["i1"].sent} == set(asked) - {running}
    site.dispatcher.on_reply(running, reply())
    site.dispatcher.written(running)
    assert site.seen == 5
    assert all(one.responder.told == [] for one in asked if one is not running)
