"""What holds for the router whatever is picked, released, replaced and lost."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.deployment import (
    ROUTING_STRATEGIES,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed

VARIANTS = ("blue", "green")


@st.composite
def endpoint_routes(draw: st.DrawFn) -> EndpointRoutes:
    """Copies 0..5, each in one variant at most."""
    home = {copy: draw(st.sampled_from([*VARIANTS, None])) for copy in range(6)}
    return EndpointRoutes(
        endpoint="e",
        variants=tuple(
            VariantRoutes(
                name=name,
                weight=draw(st.sampled_from([0.0, 1.0, 3.0])),
                strategy=draw(st.sampled_from(ROUTING_STRATEGIES)),
                copies=tuple(
                    CopyRoute(copy=copy, instance_id="i", outstanding_max=draw(st.integers(1, 3)))
                    for copy, where in home.items()
                    if where == name
                ),
            )
            for name in VARIANTS
        ),
    )


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[CopyState] = []
        self.healthy: dict[int, bool] = {}

    @initialize(routes=endpoint_routes())
    def start(self, routes: EndpointRoutes) -> None:
        self.routes = routes
        self.router = EndpointRouter(routes, random.Random(0))

    def limits(self) -> dict[int, int]:
        variants = self.routes.variants
        return {route.copy: route.outstanding_max for v in variants for route in v.copies}

    @rule(
        variant=st.sampled_from([None, *VARIANTS, "nobody"]),
        exclude=st.sampled_from([(), (0,), (1, 2)]),
    )
    def pick(self, variant: str | None, exclude: tuple[int, ...]) -> None:
        answer = self.router.pick(variant=variant, exclude=exclude)
        if isinstance(answer, NoRoute):
            assert (answer.reason == "unknown-variant") == (variant == "nobody")
            return
        assert isinstance(answer, Routed)
        state = answer.state
        self.held.append(state)
        assert variant in (None, answer.variant, state.variant)
        assert state.copy in self.limits(), "a draining copy was picked"
        assert state.healthy, "a dead copy was picked"
        assert answer.outstanding == state.outstanding <= state.outstanding_max
        if state.copy in exclude:
            others = [
                route.copy
                for v in self.routes.variants
                for route in v.copies
                if v.name == answer.variant and route.copy not in exclude
            ]
            assert not any(self.healthy.get(copy, True) for copy in others)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.router.release(self.held.pop(index))

    @rule(copy=st.integers(0, 5), healthy=st.booleans())
    def set_healthy(self, copy: int, healthy: bool) -> None:
        self.router.set_healthy(copy, healthy)
        if copy in self.limits() or any(state.copy == copy for state in self.held):
            self.healthy[copy] = healthy

    @rule(routes=endpoint_routes())
    def replace(self, routes: EndpointRoutes) -> None:
        before = set(self.limits())
        self.routes = routes
        gone = self.router.replace(routes)
        assert {state.copy for state in gone} == before - set(self.limits())
        assert all(state.draining for state in gone)
        for state in gone:
            if not state.outstanding:
                self.healthy.pop(state.copy, None)

    @invariant()
    def every_slot_is_counted_once(self) -> None:
        self.router.check_invariants()
        for name in VARIANTS:
            mine = sum(1 for state in self.held if state.variant == name)
            assert self.router.outstanding(name) == mine


TestRouter = RouterMachine.TestCase
TestRouter.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
