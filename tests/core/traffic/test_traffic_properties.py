"""What holds for the router between regions whatever is asked, heard, answered and lost."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.routing.copies import NoRoute, Routed
from penstock.core.routing.prefixes import PrefixIndex
from penstock.core.routing.sessions import Sessions
from penstock.core.traffic import (
    AUTOMATIC,
    MODES,
    HealthSpec,
    HeldForRegion,
    RegionObserved,
    RegionSpec,
    TrafficRouter,
    TrafficSpec,
)

NAMES = ("a", "b", "c")
HOLD_MAX, HOLD_S_MAX = 5, 4.0
PROMPTS = (None, b"hi", b"x" * 300, b"x" * 300 + b"y" * 300, b"z" * 5000)


@st.composite
def specs(draw: st.DrawFn) -> TrafficSpec:
    ratios = [draw(st.sampled_from([0.0, 1.0, 3.0])) for _ in NAMES]
    pinned = draw(st.sampled_from([frozenset(), frozenset("a"), frozenset("bc")]))
    usable = pinned or frozenset(NAMES)
    if not any(ratio for name, ratio in zip(NAMES, ratios, strict=True) if name in usable):
        ratios = [1.0, 1.0, 1.0]
    return TrafficSpec(
        regions=tuple(
            RegionSpec(name=name, ratio=ratio, slots_max=draw(st.sampled_from([0, 2])))
            for name, ratio in zip(NAMES, ratios, strict=True)
        ),
        mode=draw(st.sampled_from(MODES)),
        pinned=pinned,
        home=draw(st.sampled_from(["", *NAMES])),
        hold_max=HOLD_MAX,
        hold_s_max=HOLD_S_MAX,
        health=HealthSpec(failures_max=2, probes_max=2, answers_min=4),
    )


class TrafficMachine(RuleBasedStateMachine):
    """Keeps its own books of tickets, slots and rooms."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sent: list[str] = []  #: regions of requests in flight
        self.held: dict[int, frozenset[str] | None] = {}  #: ticket -> where it may go
        self.room = dict.fromkeys(NAMES, 0)  #: by the last news and what happened since
        self.asked = self.ended = 0

    @initialize(spec=specs())
    def start(self, spec: TrafficSpec) -> None:
        self.router = TrafficRouter(
            spec,
            random.Random(0),
            sessions=Sessions(sessions_max=3),
            prefixes=PrefixIndex(4096, 40),
        )

    def went(self, answer: Routed, allowed: frozenset[str] | None) -> None:
        spec, region = self.router.spec, answer.variant
        assert not spec.pinned or region in spec.pinned, "a pin was broken"
        assert allowed is None or region in allowed, "it went where it may not"
        assert self.room[region] > 0, "sent to a region without room"
        told = next(one for one in spec.regions if one.name == region)
        assert not told.slots_max or self.sent.count(region) < told.slots_max
        if answer.reason not in ("session", "last-resort"):
            moved = spec.mode == AUTOMATIC  # to 0 by itself: used where no other one has room
            assert told.ratio > 0 or moved, "something new went to a region with ratio 0"
        assert (answer.reason != "last-resort") == self.router.serves(region, now=self.now)
        self.room[region] -= 1
        self.sent.append(region)

    @rule(
        session=st.sampled_from([None, None, "s", "t", "u", "v"]),
        prefix=st.sampled_from(PROMPTS),
        exclude=st.sampled_from([(), ("a",), ("b", "c"), NAMES]),
        allowed=st.sampled_from([None, frozenset("ab"), frozenset("c")]),
        time_s=st.sampled_from([None, 0.0, 1.5]),
    )
    def ask(
        self,
        session: str | None,
        prefix: bytes | None,
        exclude: tuple[str, ...],
        allowed: frozenset[str] | None,
        time_s: float | None,
    ) -> None:
        self.asked += 1
        answer = self.router.pick(
            session=session,
            prefix=prefix,
            exclude=exclude,
            allowed=allowed,
            deadline=None if time_s is None else self.now + time_s,
            now=self.now,
        )
        if isinstance(answer, Routed):
            self.went(answer, allowed)
        elif isinstance(answer, HeldForRegion):
            assert answer.ticket not in self.held
            self.held[answer.ticket] = allowed
        else:
            self.refused(answer)

    def refused(self, answer: NoRoute) -> None:
        assert (answer.retry_after_s is None) == (answer.reason == "no-region-allowed")
        assert answer.reason != "held-too-many" or len(self.held) >= HOLD_MAX
        self.ended += 1

    @rule(
        region=st.sampled_from([*NAMES, "x"]),
        room=st.integers(0, 4),
        waiting=st.integers(0, 1),
        age_s=st.sampled_from([0.0, 0.0, 1.0]),
    )
    def hear(self, region: str, room: int, waiting: int, age_s: float) -> None:
        """News that count all, or that are so old that what was sent since is not counted."""
        said_at = self.now - age_s
        self.router.heard(
            RegionObserved(name=region, room=room, waiting=waiting, said_at=said_at), now=self.now
        )
        if region in NAMES:
            told = next(r for r in self.router.snapshot(now=self.now)["regions"]
                        if r["region"] == region)  # fmt: skip
            assert told["room"] <= max(0, room) or age_s, "more than was said"
            self.room[region] = max(self.room[region], room) if age_s else room
        self.go_on()

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), ok=st.sampled_from([True, True, False, None]))
    def answer(self, data: st.DataObject, ok: bool | None) -> None:
        region = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
        self.router.release(region, ok=ok, first_byte_s=0.1, now=self.now)
        self.room[region] += 1
        self.ended += 1
        self.go_on()

    @rule(region=st.sampled_from(NAMES), ok=st.booleans())
    def probe(self, region: str, ok: bool) -> None:
        self.router.probed(region, ok, now=self.now)
        self.go_on()

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.go_on()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.held)))
        assert self.router.withdraw(ticket)
        assert not self.router.withdraw(ticket)
        del self.held[ticket]
        self.ended += 1

    @rule(spec=specs())
    def change(self, spec: TrafficSpec) -> None:
        self.router.replace(spec)
        self.go_on()

    def go_on(self) -> None:
        for ticket, answer in self.router.released(now=self.now):
            allowed = self.held.pop(ticket)
            if isinstance(answer, Routed):
                self.went(answer, allowed)
            else:
                assert answer.reason in ("held-too-long", "no-region-serves")
                self.ended += 1
        deadline = self.router.next_deadline()
        assert (deadline is None) == (not self.held), "a deadline of nobody, or none of somebody"
        assert deadline is None or self.now < deadline <= self.now + HOLD_S_MAX
        assert self.router.released(now=self.now) == [], "it could have gone at once"

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.asked == self.ended + len(self.sent) + len(self.held)
        told = self.router.snapshot(now=self.now)
        assert told["held"] == len(self.held)
        assert {one["region"]: one["in_flight"] for one in told["regions"]} == {
            name: self.sent.count(name) for name in NAMES
        }
        self.router.check_invariants()

    @invariant()
    def shares_sum_to_1(self) -> None:
        told = self.router.snapshot(now=self.now)["regions"]
        assert abs(sum(one["ratio"] for one in told) - 1.0) < 1e-3


TestTraffic = TrafficMachine.TestCase
TestTraffic.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
