"""What holds for the router whatever is picked, released, replaced and lost."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.deployment.deployment import (
    ROUTING_STRATEGIES,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.routing.sessions import Sessions

VARIANTS = ("blue", "green")
#: (name, incoming): those of the generation that serves, and of the one that takes over
POOLS = (("blue", False), ("green", False), ("blue", True), ("green", True))
SESSIONS = ("a", "b", "c", "d")
SESSIONS_MAX = 3
PROMPTS = (b"", b"hi", b"x" * 300, b"x" * 300 + b"y" * 100, b"z" * 2000)


@st.composite
def endpoint_routes(draw: st.DrawFn) -> EndpointRoutes:
    """Copies 0..5, each in one pool at most. Half of the endpoints have one generation."""
    pools = draw(st.sampled_from([POOLS[:2], POOLS]))
    home = {copy: draw(st.sampled_from([*pools, None])) for copy in range(6)}
    return EndpointRoutes(
        endpoint="e",
        variants=tuple(
            VariantRoutes(
                name=name,
                incoming=incoming,
                weight=draw(st.sampled_from([0.0, 1.0, 3.0])),
                strategy=draw(st.sampled_from(ROUTING_STRATEGIES)),
                prefix_length_max=1024,
                concurrency_threshold=draw(st.integers(1, 3)),
                copies=tuple(
                    CopyRoute(
                        copy=copy,
                        instance_id="i",
                        outstanding_max=draw(st.integers(1, 3)),
                        cache_tokens=draw(st.sampled_from([0, 0, 20, 100, 600])),
                    )
                    for copy, where in home.items()
                    if where == (name, incoming)
                ),
            )
            for name, incoming in pools
        ),
    )


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[CopyState] = []
        self.healthy: dict[int, bool] = {}
        self.paused: dict[int, bool] = {}
        self.now = 0.0
        self.sessions: dict[str, CopyState] = {}  #: those that must be kept
        self.lost: set[str] = set()  #: those whose copy has died or left; nobody closed them

    @initialize(routes=endpoint_routes())
    def start(self, routes: EndpointRoutes) -> None:
        self.routes = routes
        self.router = EndpointRouter(routes, random.Random(0), Sessions(sessions_max=SESSIONS_MAX))

    def limits(self) -> dict[int, int]:
        variants = self.routes.variants
        return {route.copy: route.outstanding_max for v in variants for route in v.copies}

    @rule(
        variant=st.sampled_from([None, *VARIANTS, "nobody"]),
        exclude=st.sampled_from([(), (0,), (1, 2)]),
        prompt=st.sampled_from([None, *PROMPTS]),
        prefix=st.sampled_from([None, b"app"]),
    )
    def pick(
        self,
        variant: str | None,
        exclude: tuple[int, ...],
        prompt: bytes | None,
        prefix: bytes | None,
    ) -> None:
        allowed = self.refusals(variant, exclude)
        answer = self.router.pick(variant=variant, exclude=exclude, prompt=prompt, prefix=prefix)
        if isinstance(answer, NoRoute):
            assert answer.reason in allowed, "refused, and there was room"
            return
        assert isinstance(answer, Routed)
        assert variant != "nobody"
        state = answer.state
        self.held.append(state)
        assert variant in (None, answer.variant, state.variant)
        if variant is not None:
            drawn = [one.group for one in self.generations(variant)]
            assert state.group in drawn, "another generation's share"
        assert state.copy in self.limits(), "a draining copy was picked"
        assert state.healthy, "a dead copy was picked"
        assert answer.reason != "paused-copy" or state.paused
        assert answer.outstanding == state.outstanding <= state.outstanding_max
        if state.copy in exclude:
            others = [
                route.copy
                for v in self.routes.variants
                for route in v.copies
                if v.group == state.group and route.copy not in exclude
            ]
            assert not any(self.healthy.get(copy, True) for copy in others)

    def healthy_copies(self, routes: VariantRoutes) -> list[int]:
        return [one.copy for one in routes.copies if self.healthy.get(one.copy, True)]

    def generations(self, variant: str) -> list[VariantRoutes]:
        """Which of a variant's generations may get a request that names it: those with a weight, or
        else the one that is not incoming. Dead ones take no part, unless all are dead."""
        every = [v for v in self.routes.variants if v.name == variant]
        healthy = [v for v in every if self.healthy_copies(v)] or every
        return [v for v in healthy if v.weight] or healthy[:1]

    def refusals(self, variant: str | None, exclude: tuple[int, ...]) -> set[str]:
        """Why a request may be refused now, by the books kept here; empty: it must not be."""
        if variant == "nobody":
            return {"unknown-variant"}
        if variant is None:
            asked = [v for v in self.routes.variants if v.weight]
        else:
            asked = [v for v in self.routes.variants if v.name == variant]
        if not any(map(self.healthy_copies, asked)):
            return {"no-healthy-copy" if any(v.copies for v in asked) else "no-copies"}
        drawn = asked if variant is None else self.generations(variant)
        healthy = map(self.healthy_copies, drawn)
        full = any(copies and self.all_full(copies, exclude) for copies in healthy)
        return {"all-copies-full"} if full else set()

    def all_full(self, copies: list[int], exclude: tuple[int, ...]) -> bool:
        """Of the healthy copies of a variant: those that may take the request have no room."""
        eager = [copy for copy in copies if not self.paused.get(copy, False)]
        may = [copy for copy in copies if copy not in exclude] or eager or copies
        held, limits = [state.copy for state in self.held], self.limits()
        return all(held.count(copy) >= limits[copy] for copy in may)

    @rule(session=st.sampled_from(SESSIONS), opens=st.booleans())
    def pick_in_session(self, session: str, opens: bool) -> None:
        self.now += 1.0
        known = self.sessions.get(session)
        refusals = self.refusals(None, ())
        answer = self.router.pick(session=session, opens=opens, now=self.now)
        if isinstance(answer, NoRoute):
            if known is not None:
                assert answer.reason == "all-copies-full", "a session that lives was refused"
                assert known.outstanding >= known.outstanding_max, "its copy had room"
            elif not opens:
                expected = "session-lost" if session in self.lost else "session-unknown"
                assert answer.reason == expected
            elif answer.reason == "sessions-full":
                assert len(self.sessions) + len(self.lost) == SESSIONS_MAX
                assert session not in self.lost, "it had its place"
            else:
                assert answer.reason in refusals, "refused, and there was room"
            return
        self.held.append(answer.state)
        if known is not None:
            assert (answer.state, answer.reason) == (known, "session"), "a session moved"
        else:
            assert opens, "a session began by itself"
            self.sessions[session] = answer.state
            self.lost.discard(session)
            assert len(self.sessions) + len(self.lost) <= SESSIONS_MAX

    @rule(session=st.sampled_from(SESSIONS))
    def close_session(self, session: str) -> None:
        answer = self.router.close_session(session, now=self.now)
        assert (answer is None) == (session in self.sessions or session in self.lost)
        self.sessions.pop(session, None)
        self.lost.discard(session)

    def lose(self, lost: set[int]) -> None:
        gone = {name for name, state in self.sessions.items() if state.copy in lost}
        self.lost |= gone
        for name in gone:
            del self.sessions[name]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        state = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.router.release(state)
        if state.copy not in self.limits() and state not in self.held:
            self.forget(state.copy)

    def forget(self, copy: int) -> None:
        """It has left and has nothing to do: if it comes again it is a new one."""
        self.healthy.pop(copy, None)
        self.paused.pop(copy, None)

    @rule(copy=st.integers(0, 5), healthy=st.booleans())
    def set_healthy(self, copy: int, healthy: bool) -> None:
        self.router.set_healthy(copy, healthy)
        if not healthy:
            self.lose({copy})
        if copy in self.limits() or any(state.copy == copy for state in self.held):
            self.healthy[copy] = healthy

    @rule(copy=st.integers(0, 5), paused=st.booleans())
    def set_paused(self, copy: int, paused: bool) -> None:
        """Neither health nor sessions nor counts change with it: see the other rules."""
        self.router.set_paused(copy, paused)
        if copy in self.limits() or any(state.copy == copy for state in self.held):
            self.paused[copy] = paused

    @rule(routes=endpoint_routes())
    def replace(self, routes: EndpointRoutes) -> None:
        before = set(self.limits())
        homes = {route.copy: v.name for v in self.routes.variants for route in v.copies}
        self.routes = routes
        gone = self.router.replace(routes)
        now_homes = {route.copy: v.name for v in routes.variants for route in v.copies}
        self.lose({copy for copy, home in homes.items() if now_homes.get(copy) != home})
        assert {state.copy for state in gone} == before - set(self.limits())
        assert all(state.draining for state in gone)
        for state in gone:
            if not state.outstanding:
                self.forget(state.copy)

    @invariant()
    def every_slot_is_counted_once(self) -> None:
        self.router.check_invariants()
        for name in VARIANTS:
            mine = sum(1 for state in self.held if state.variant == name)
            assert self.router.outstanding(name) == mine


TestRouter = RouterMachine.TestCase
TestRouter.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
