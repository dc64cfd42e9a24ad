"""Which copy of an endpoint gets a request; its slot is reserved in the same step.

A burst never sees stale counts: `pick` raises the chosen copy's `outstanding` before it returns,
and the driver calls `release` exactly once per pick, when the last byte of the answer is written
or the attempt has failed.

First the pool of copies that may answer it, a variant's or an inference component's (`pools.py`).
Then the copy, by the variant's strategy. Excluded copies (they failed this very request) are taken
only if no other copy may be routed to.

A paused copy is well, but what is sent to it waits: it is picked only where no other copy of its
pool has room. Its sessions stay, and wait with it.

A request of a session goes to the session's copy, whatever the variant's strategy. It is never
taken to another copy, which would know nothing of the session: if the copy is full the request is
refused, and if it has died the session is lost.

Routes are replaced as a whole. A copy that stays keeps its count and health; one that is gone
drains: it is never picked again and is forgotten with its last release.
"""

from __future__ import annotations

import random
from typing import Any

from penstock.core.deployment import CopyRoute, EndpointRoutes
from penstock.core.routing.copies import CopyState, NoRoute, Routed
from penstock.core.routing.pools import (
    COMPONENT_NOT_ALLOWED,
    COMPONENT_REQUIRED,
    ByComponent,
    ByVariant,
    Pool,
    PoolChoice,
)
from penstock.core.routing.sessions import FULL, UNKNOWN, Sessions
from penstock.core.routing.strategies import strategy_of
from penstock.core.routing.target_models import ModelsSeen, choose

#: Queues of full copies move on within tenths of a second; the admission forecast knows better.
_RETRY_AFTER_S_FULL = 0.1

_ALL_COPIES_FULL = NoRoute("all-copies-full", _RETRY_AFTER_S_FULL)
_TARGET_MODEL_REQUIRED = NoRoute("target-model-required", None)
_TARGET_MODEL_NOT_ALLOWED = NoRoute("target-model-not-allowed", None)


class EndpointRouter:
    """All copies of one endpoint, as one gateway process counts them."""

    __slots__ = (
        "_by_component", "_choice", "_draining", "_number", "_pools", "_rng", "_sessions",
        "_states", "looks_closer", "reads_prompts",
    )  # fmt: skip

    def __init__(
        self, routes: EndpointRoutes, rng: random.Random, sessions: Sessions | None = None
    ) -> None:
        """`sessions`: empty; the default has the bounds of `sessions.py`."""
        self.reads_prompts = False  #: whether `prompt` and `prefix` matter to `pick`
        self.looks_closer = False  #: whether anything of a request matters besides its variant
        self._rng = rng
        self._sessions = sessions if sessions is not None else Sessions()
        self._number = 0  #: picks so far
        self._states: dict[int, CopyState] = {}  #: routed copies
        self._draining: dict[
            int, CopyState
        ] = {}  #: gone from the routes, with requests outstanding
        self._pools: dict[tuple[str, str], Pool] = {}  #: (variant, component) -> its copies
        self._by_component = False
        self._choice: PoolChoice = ByVariant((), rng)
        self.replace(routes)

    def pick(
        self,
        *,
        variant: str | None = None,
        exclude: tuple[int, ...] = (),
        session: str | None = None,
        opens: bool = False,
        prefix: bytes | None = None,
        prompt: bytes | None = None,
        model: str | None = None,
        component: str | None = None,
        now: float = 0.0,
    ) -> Routed | NoRoute:
        """Chooses a copy and reserves a slot on it.

        Args:
            variant: TargetVariant.
            exclude: copies that failed this request.
            session: the copy that holds this session, and no other.
            opens: the session begins with this request, or with an earlier attempt of it.
            prefix: Prefix-Aware-Id: prompts have only in common what begins alike under one of it.
            prompt: what PREFIX_AWARE compares, from its first byte; see `reads_prompts`.
            model: TargetModel.
            component: InferenceComponentName.
            now: needed with `session` and `model`.
        """
        if session is not None:
            return self._pick_in_session(
                session, opens, variant, exclude, prefix, prompt, model, component, now
            )
        choice, chosen = self._choice, None
        if component is None:  # the usual ones, without another call
            if variant is not None:
                chosen = choice.named.get(variant)
            else:
                chosen = choice.only or choice.drawn()
        if chosen is None:
            found = choice.choose(variant, component)
            if isinstance(found, NoRoute):
                return found
            chosen = found
        helper = None
        copies = chosen.open
        if chosen.looks_closer or exclude or model is not None:
            if chosen.multi_model != (model is not None):
                return _TARGET_MODEL_REQUIRED if chosen.multi_model else _TARGET_MODEL_NOT_ALLOWED
            state, reason, helper = _closely(chosen, exclude, prompt, prefix, model, now)
        elif len(copies) == 1:
            only = copies[0]
            state = only if only.outstanding < only.outstanding_max else None
            reason = "only-copy"
        else:
            strategy = chosen.strategy
            state = strategy.pick(copies)
            reason = strategy.reason
        if state is None:
            state, reason = _paused(chosen, exclude, model, now), "paused-copy"
            if state is None:
                return _ALL_COPIES_FULL
        self._number = state.picked = self._number + 1
        state.outstanding = outstanding = state.outstanding + 1
        return Routed(state, chosen.name, reason, outstanding, helper)

    def _pick_in_session(
        self,
        session: str,
        opens: bool,
        variant: str | None,
        exclude: tuple[int, ...],
        prefix: bytes | None,
        prompt: bytes | None,
        model: str | None,
        component: str | None,
        now: float,
    ) -> Routed | NoRoute:
        found = self._sessions.find(session, now=now)
        if opens and (isinstance(found, NoRoute) or found.copy in exclude):
            if self._sessions.is_full(session):
                return FULL
            answer = self.pick(
                variant=variant,
                exclude=exclude,
                prefix=prefix,
                prompt=prompt,
                model=model,
                component=component,
                now=now,
            )
            if isinstance(answer, Routed):
                self._sessions.bind(session, answer.state, now=now)
            return answer
        if isinstance(found, NoRoute):
            return found
        if self._by_component != (component is not None):
            return COMPONENT_REQUIRED if self._by_component else COMPONENT_NOT_ALLOWED
        if (variant or found.variant) != found.variant or (component or "") != found.component:
            return UNKNOWN  # to the variant or the component that is asked for
        known = self._pools.get((found.variant, found.component))
        if known is not None and known.multi_model != (model is not None):
            return _TARGET_MODEL_REQUIRED if known.multi_model else _TARGET_MODEL_NOT_ALLOWED
        if found.outstanding >= found.outstanding_max:
            return _ALL_COPIES_FULL
        self._number = found.picked = self._number + 1
        found.outstanding += 1
        return Routed(found, found.variant, "session", found.outstanding)

    def open_session(
        self,
        session: str,
        *,
        variant: str | None = None,
        component: str | None = None,
        now: float,
    ) -> CopyState | NoRoute:
        """Binds a session to a copy without a request; no slot is reserved."""
        answer = self.pick(
            variant=variant, component=component, session=session, opens=True, now=now
        )
        if isinstance(answer, NoRoute):
            return answer
        self.release(answer.state)
        return answer.state

    def close_session(self, session: str, *, now: float) -> NoRoute | None:
        """Ends a session; None: done. One that was lost may be closed like any other."""
        return None if self._sessions.close(session, now=now) else UNKNOWN

    def is_open(self, variant: str | None, component: str | None) -> bool:
        """Whether such a request would find a copy that is well, with room or without."""
        return not isinstance(self._choice.choose(variant, component), NoRoute)

    def hosts_for(self, model: str, *, now: float) -> list[CopyState]:
        """Where a target model is to be loaded ahead of its calls: one host of each variant.

        The host that a call would go to now; later calls follow. Reserves nothing.
        """
        pools = [one for one in self._pools.values() if one.multi_model]
        chosen = [choose(one.open or one.paused, model, now=now)[0] for one in pools]
        return [state for state in chosen if state is not None]

    def is_loaded(self, model: str) -> bool:
        """Whether a host that may be picked says that it has the target model."""
        return any(model in seen.loaded for seen in self._seen())

    def loaded_models(self) -> set[str]:
        """Of all hosts that may be picked."""
        return set().union(*(seen.loaded for seen in self._seen()))

    def _seen(self) -> list[ModelsSeen]:
        return [
            state.models
            for pool in self._pools.values()
            for state in (*pool.open, *pool.paused)
            if state.models is not None
        ]

    def release(self, state: CopyState) -> None:
        """Frees the slot of one earlier pick."""
        state.outstanding -= 1
        if state.draining and not state.outstanding:
            self._draining.pop(state.copy, None)

    def replace(self, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        """Takes new routes; returns the copies that drain from now on, with their counts."""
        before, pools_before = self._states, self._pools
        self._states = {}
        self._pools = {}
        self._by_component = routes.takes_components
        for variant in routes.variants:
            key = variant.name, variant.component
            states = tuple(self._kept(route, key, before) for route in variant.copies)
            known = pools_before.get(key)
            strategy = strategy_of(variant, self._rng, known.strategy if known else None)
            self._pools[key] = Pool(variant, states, strategy)
            self._states.update((state.copy, state) for state in states)
        self.reads_prompts = any(pool.strategy.prefixes for pool in self._pools.values())
        self.looks_closer = any(pool.looks_closer for pool in self._pools.values())
        gone = tuple(state for copy, state in before.items() if copy not in self._states)
        for state in gone:
            state.draining = True
            state.life += 1
            if state.outstanding:
                self._draining[state.copy] = state
        self._reopen()
        return gone

    def set_healthy(self, copy: int, healthy: bool) -> None:
        """A copy died or came back. Unknown copies are ignored: the news may be late."""
        state = self._states.get(copy) or self._draining.get(copy)
        if state is not None and state.healthy != healthy:
            state.healthy = healthy
            if not healthy:
                state.life += 1
            self._reopen()

    def set_paused(self, copy: int, paused: bool) -> None:
        """What is sent to a copy waits, or no longer does. Unknown copies are ignored."""
        state = self._states.get(copy) or self._draining.get(copy)
        if state is not None and state.paused != paused:
            state.paused = paused
            self._reopen()

    def set_models(self, copy: int, models: ModelsSeen) -> None:
        """What a host says of its target models. Unknown copies are ignored."""
        state = self._states.get(copy)
        if state is not None:
            state.models = models

    def outstanding(self, variant: str) -> int:
        """Requests in flight on a variant, draining copies included."""
        states = (*self._states.values(), *self._draining.values())
        return sum(state.outstanding for state in states if state.variant == variant)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "variants": [
                {
                    "variant": pool.name,
                    "weight": pool.weight,
                    "strategy": pool.strategy.name,
                    "copies": [_describe(state) for state in pool.copies],
                }
                | ({"component": pool.component} if pool.component else {})
                | (prefixes.snapshot() if (prefixes := pool.strategy.prefixes) else {})
                for pool in self._pools.values()
            ],
            "draining": [_describe(state) for state in self._draining.values()],
            "sessions": len(self._sessions),
            "picks": self._number,
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        for state in (*self._states.values(), *self._draining.values()):
            assert state.outstanding >= 0, f"{state} was released more often than picked"
            assert state.draining == (state.copy not in self._states), f"{state}: draining is wrong"
        for key, pool in self._pools.items():
            healthy = [state for state in pool.copies if state.healthy]
            eager = [state for state in healthy if not state.paused]
            assert pool.open == (eager or healthy), f"open copies of {key} are wrong"
            assert len(pool.open) + len(pool.paused) == len(healthy), "a copy is left out"
            assert all((state.variant, state.component) == key for state in pool.copies)
            if pool.strategy.prefixes is not None:
                pool.strategy.prefixes.check_invariants()
        self._sessions.check_invariants()
        assert all(state.outstanding for state in self._draining.values()), "a drained copy is kept"
        assert not set(self._states) & set(self._draining), "a copy is routed and draining"

    def _kept(
        self, route: CopyRoute, pool: tuple[str, str], before: dict[int, CopyState]
    ) -> CopyState:
        variant, component = pool
        state = before.get(route.copy) or self._draining.pop(route.copy, None)
        if state is None:
            return CopyState(
                route.copy, route.instance_id, variant, route.outstanding_max, component
            )
        if (state.variant, state.component) != pool:
            state.life += 1
        state.instance_id = route.instance_id
        state.variant, state.component = pool
        state.pool = component or variant
        state.outstanding_max = route.outstanding_max
        state.draining = False
        return state

    def _reopen(self) -> None:
        """Derives what `pick` looks at: open copies, and among which pools is chosen."""
        pools = self._pools.values()
        for pool in pools:
            pool.reopen()
        self._choice = ByComponent(pools) if self._by_component else ByVariant(pools, self._rng)


def _closely(
    pool: Pool,
    exclude: tuple[int, ...],
    prompt: bytes | None,
    prefix: bytes | None,
    model: str | None,
    now: float,
) -> tuple[CopyState | None, str, CopyState | None]:
    """The copy, why it, and who else is to load the target model; where all are full, no copy."""
    copies = pool.not_yet_failed(exclude) if exclude else pool.open
    if model is not None:
        return choose(copies, model, now=now)
    strategy, prefixes = pool.strategy, pool.strategy.prefixes
    if prefixes is None:
        return strategy.pick(copies), "retry", None
    if not exclude and len(copies) > 1:
        return *prefixes.choose(copies, prompt or b"", prefix), None
    state = strategy.pick(copies)
    if state is not None:  # picked for whatever reason, it knows the prompt now
        prefixes.remember(prompt or b"", prefix, state)
    return state, "retry" if exclude else "only-copy", None


def _paused(
    pool: Pool, exclude: tuple[int, ...], model: str | None, now: float
) -> CopyState | None:
    paused = [state for state in pool.paused if state.copy not in exclude]
    if model is not None:
        return choose(paused, model, now=now)[0]
    return pool.strategy.pick(paused) if paused else None


def _describe(state: CopyState) -> dict[str, Any]:
    return {
        "copy": state.copy,
        "instance_id": state.instance_id,
        "outstanding": state.outstanding,
        "outstanding_max": state.outstanding_max,
        "healthy": state.healthy,
        "paused": state.paused,
    }
