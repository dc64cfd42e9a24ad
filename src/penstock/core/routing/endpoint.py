"""Which copy of an endpoint gets a request; its slot is reserved in the same step.

A burst never sees stale counts: `pick` raises the chosen copy's `outstanding` before it returns,
and the driver calls `release` exactly once per pick, when the last byte of the answer is written or
the attempt has failed. Several gateways share no count: each adds the requests that it has sent to
what a copy's instance reports for the other gateways (`set_others`).

First the pool of copies that may answer it is chosen, a variant's (a generation's of it, while two
serve) or an inference component's (`pools.py`), then the copy, by the variant's strategy. Excluded
copies (they failed this very request) are taken only if no other copy is available. The same holds
for ejected copies, which answer nothing while others of their pool do (`outliers.py`), for a while
and for all requests.

A paused copy is healthy, but requests sent to it wait: it is picked only where no other copy of its
pool has room. Its sessions stay, and wait with it.

A request of a session goes to the session's copy, whatever the variant's strategy. No other copy
would do, as it knows nothing of the session: if the copy is full the request is refused, and if it
has died the session is lost. Sequences of stateful models have rules of their own
(`sequences.py`).

Routes are replaced as a whole. A copy that stays keeps its count, its health and its sessions, also
when it is no longer incoming because its generation has taken over. A removed copy drains: it is
never picked again and is forgotten with its last release; if its model keeps sequences, it goes on
with those that it has until `let_go`.
"""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Any

from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, Group, VariantRoutes
from penstock.core.routing.copies import CopyState, ModelsObserved, NoRoute, Routed
from penstock.core.routing.outliers import Action
from penstock.core.routing.pools import (
    COMPONENT_NOT_ALLOWED,
    COMPONENT_REQUIRED,
    ByComponent,
    ByVariant,
    Pool,
    PoolChoice,
    closely,
    paused,
)
from penstock.core.routing.prefixes import TOKEN_BYTES
from penstock.core.routing.rebalance import CopyLoad
from penstock.core.routing.sequences import LOST, NOT_STARTED, is_sequence
from penstock.core.routing.sessions import FULL, UNKNOWN, Sessions
from penstock.core.routing.strategies import strategy_of
from penstock.core.routing.target_models import choose

#: s. Queues of full copies move on within tenths of a second; the admission forecast is better.
_RETRY_AFTER_S_FULL = 0.1

_ALL_COPIES_FULL = NoRoute("all-copies-full", _RETRY_AFTER_S_FULL)
_TARGET_MODEL_REQUIRED = NoRoute("target-model-required", None)
_TARGET_MODEL_NOT_ALLOWED = NoRoute("target-model-not-allowed", None)


class EndpointRouter:
    """All copies of one endpoint, as one gateway process counts them."""

    __slots__ = (
        "_by_component", "_choice", "_draining", "_number", "_pools", "_rng", "_sessions",
        "_shared", "_states", "judged", "learns", "looks_closer", "reads_prompts", "watched",
    )  # fmt: skip

    def __init__(
        self,
        routes: EndpointRoutes,
        rng: random.Random,
        sessions: Sessions | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """
        Args:
            routes: of the endpoint.
            rng: for random choices.
            sessions: an empty table; the default has the bounds of `sessions.py`.
            shared: other gateways route to the same copies. Each then looks at them in its own
                order, so that not all of them choose the same one of several equal copies.
        """
        self._shared = shared
        self.reads_prompts = False  #: whether `pick` uses `prompt` and `prefix`
        self.looks_closer = False  #: whether `pick` uses anything of a request besides its variant
        self.learns = False  #: whether `answered` must be called
        self.judged = False  #: whether a copy is ejected or probed
        self.watched = False  #: whether `look` must be called: a copy may replace another
        self._rng = rng
        self._sessions = sessions if sessions is not None else Sessions()
        self._number = 0  #: number of picks so far
        self._states: dict[int, CopyState] = {}  #: copies in the routes, by number
        self._draining: dict[
            int, CopyState
        ] = {}  #: removed from the routes, with requests outstanding
        self._pools: dict[Group, Pool] = {}
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
            session: the request must go to the copy that holds this session.
            opens: the session begins with this request, or with an earlier attempt of it.
            prefix: Prefix-Aware-Id: only prompts with the same id can have a common beginning.
            prompt: compared by PREFIX_AWARE from its first byte; see `reads_prompts`.
            model: TargetModel.
            component: InferenceComponentName.
            now: needed with `session` and `model`, and where `learns`.
        """
        if session is not None:
            return self._pick_in_session(
                session, opens, variant, exclude, prefix, prompt, model, component, now
            )
        choice, chosen = self._choice, None
        if component is None:  # the usual requests, without another call
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
            state, reason, helper = closely(chosen, exclude, prompt, prefix, model, now)
            if state is not None and not state.outstanding:
                state.busy_since = now
        elif len(copies) == 1:
            only = copies[0]
            state = only if only.outstanding < only.outstanding_max else None
            reason = "only-copy"
        else:
            strategy = chosen.strategy
            state = strategy.pick(copies)
            reason = strategy.reason
        if state is None:
            state, reason = paused(chosen, exclude, model, now), "paused-copy"
            if state is None:
                return _ALL_COPIES_FULL
        self._number = state.picked = self._number + 1
        state.outstanding = outstanding = state.outstanding + 1
        return Routed(state, chosen.name, reason, outstanding, helper)

    def pick_in(
        self,
        group: Group,
        *,
        incoming: bool | None = None,
        model: str | None = None,
        now: float = 0.0,
    ) -> Routed | None:
        """A slot on a copy of one pool, for a request that no caller waits for; None: no copy of it
        that is open has room. `incoming`: whether it is to be of what takes over; None: of either.
        `model`: the target model, as for `pick`."""
        pool = self._pools.get(group)
        if pool is None or pool.multi_model != (model is not None):
            return None
        copies = [one for one in pool.open if incoming in (None, one.incoming)]
        if model is not None:
            state = choose(copies, model, now=now)[0]
            if state is not None and not state.outstanding:
                state.busy_since = now
        else:
            state = pool.strategy.pick(copies) if copies else None
        if state is None:
            return None
        self._number = state.picked = self._number + 1
        state.outstanding += 1
        return Routed(state, pool.name, "comparison", state.outstanding)

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
        sequence = is_sequence(session)
        if sequence and isinstance(found, CopyState) and not found.healthy:
            found = LOST  # another gateway told of it, and did not know yet
        if sequence and not opens:
            if isinstance(found, NoRoute):
                return NOT_STARTED if found is UNKNOWN else LOST
            if found.copy in exclude:
                self._sessions.lose(session)
                return LOST
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
                if sequence:
                    answer = self._with_fewest_sequences(answer, exclude)
                self._sessions.bind(session, answer.state, now=now)
            return answer
        if isinstance(found, NoRoute):
            return found
        if self._by_component != (component is not None):
            return COMPONENT_REQUIRED if self._by_component else COMPONENT_NOT_ALLOWED
        if (variant or found.variant) != found.variant or (component or "") != found.component:
            return UNKNOWN  # does not belong to the requested variant or component
        known = self._pools.get(found.group)
        if known is not None and known.multi_model != (model is not None):
            return _TARGET_MODEL_REQUIRED if known.multi_model else _TARGET_MODEL_NOT_ALLOWED
        if found.outstanding >= found.room:
            return _ALL_COPIES_FULL
        if not found.outstanding:
            found.busy_since = now
        self._number = found.picked = self._number + 1
        found.outstanding += 1
        return Routed(found, found.variant, "session", found.outstanding)

    def _with_fewest_sequences(self, routed: Routed, exclude: tuple[int, ...]) -> Routed:
        """Slots are what a sequence takes, for longer than any request. The copy that was picked is
        as good as any other with as few."""
        pool = self._pools[routed.state.group]
        copies = [one for one in pool.not_yet_failed(exclude) if one.outstanding < one.room]
        best = min((routed.state, *copies), key=lambda one: one.sessions)
        if best is routed.state:
            return routed
        self.release(routed.state)
        self._number = best.picked = self._number + 1
        best.outstanding += 1
        return Routed(best, pool.name, "fewest-sequences", best.outstanding)

    def sequence_ends(self, session: str) -> None:
        """The request that was just picked for is the sequence's last."""
        self._sessions.note_end(session)

    def sequence_ended(self, session: str, *, now: float) -> None:
        """A sequence's last request was answered."""
        self._sessions.ended(session, now=now)

    def keeps_sequences(self, state: CopyState, *, now: float) -> bool:
        """Whether a copy that left the routes has to stay for its sequences."""
        idle_s = state.sequence_idle_s
        return idle_s > 0 and self._sessions.open_on(state, idle_s=idle_s, now=now)

    def let_go(self, state: CopyState) -> None:
        """A copy that left the routes ends: what it holds of sequences is lost."""
        state.sequence_idle_s = 0.0
        state.life += 1
        if not state.outstanding:
            self._draining.pop(state.copy, None)

    def instance_lost(self, instance_id: str) -> None:
        """Copies that left the routes are lost with their instance."""
        for state in list(self._draining.values()):
            if state.instance_id == instance_id and state.sequence_idle_s:
                self.let_go(state)

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
        """Ends a session; None: done. A lost session may be closed too."""
        return None if self._sessions.close(session, now=now) else UNKNOWN

    def session(self, session: str, *, now: float) -> CopyState | NoRoute:
        """The copy of a session, which counts as used now; or an unknown or lost session."""
        return self._sessions.find(session, now=now)

    def adopt_session(self, session: str, copy: int, *, now: float) -> bool:
        """Adds a session that began at another gateway. False: its copy is not known here, or there
        is no room for it."""
        state = self._states.get(copy) or self._draining.get(copy)
        kept = state is not None and (not state.draining or state.sequence_idle_s > 0)
        if state is None or not kept or self._sessions.is_full(session):
            return False
        self._sessions.adopt(session, state, now=now)
        return True

    def forget_session(self, session: str, *, now: float) -> None:
        """A session has ended at another gateway. Unknown ones are ignored."""
        self._sessions.forget(session, now=now)

    def is_open(self, variant: str | None, component: str | None) -> bool:
        """Whether such a request would find a healthy copy, with or without room."""
        return not isinstance(self._choice.choose(variant, component), NoRoute)

    def may_begin(self, variant: str | None, component: str | None) -> bool:
        """Whether a copy that such a request may go to has an idle lane.

        Also True where none of its copies is healthy: its waiting time is unknown then.
        """
        named = component if component is not None else variant
        known = False
        for pool in self._pools.values():
            name = pool.component or pool.name
            if (pool.weight > 0 or pool.component) if named is None else name == named:
                for state in pool.open:
                    known = True
                    if _in_flight_on(state) < pool.lanes:
                        return True
        return named is not None and not known

    def hosts_for(self, model: str, *, now: float) -> list[CopyState]:
        """Where to load a target model ahead of its calls: one host of each pool.

        It is the host that a call would go to now; later calls follow. Reserves nothing.
        """
        pools = [one for one in self._pools.values() if one.multi_model]
        chosen = [choose(one.open or one.paused, model, now=now)[0] for one in pools]
        return [state for state in chosen if state is not None]

    def is_loaded(self, model: str) -> bool:
        """Whether a host that may be picked reports the target model as loaded."""
        return any(model in seen.loaded for seen in self._seen())

    def loaded_models(self) -> set[str]:
        """Target models on all hosts that may be picked."""
        return set().union(*(seen.loaded for seen in self._seen()))

    def _seen(self) -> list[ModelsObserved]:
        return [
            state.models
            for pool in self._pools.values()
            for state in (*pool.open, *pool.paused)
            if state.models is not None
        ]

    def release(self, state: CopyState) -> None:
        """Frees the slot of one earlier pick; call it after `answered`, where that is called."""
        state.outstanding -= 1
        if state.draining and not state.outstanding and not state.sequence_idle_s:
            self._draining.pop(state.copy, None)

    def answered(self, state: CopyState, *, now: float) -> None:
        """A request was answered successfully. Needed where `learns`."""
        pool = self._pools.get(state.group)
        speeds = pool.strategy.speeds if pool is not None and state.kind else None
        if pool is None or speeds is None or state.draining:
            return
        took_s, state.busy_since = now - state.busy_since, now
        if speeds.answered(state.kind, took_s, now=now):
            pool.weigh()

    def replace(self, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        """Sets new routes; returns the copies that drain from now on, with their counts."""
        before, pools_before = self._states, self._pools
        self._states = {}
        self._pools = {}
        self._by_component = routes.takes_components
        sharing = _sharing(routes)
        for variant in routes.variants:
            known = _passing_on(variant, before, pools_before)
            states = tuple(
                self._kept(route, variant.group, before, known) for route in variant.copies
            )
            for state in states:
                state.sequence_idle_s = variant.sequence_idle_s
            if self._shared:
                states = tuple(self._rng.sample(states, len(states)))
            learned = known.strategy if known else None
            shares = any(route.copy in sharing for route in variant.copies)
            strategy = strategy_of(variant, self._rng, learned, shares=shares)
            self._pools[variant.group] = Pool(variant, states, strategy, known)
            self._states.update((state.copy, state) for state in states)
        for copy, state in self._states.items():
            beside = (self._states.get(each) for each in sharing.get(copy, ()))
            state.beside = tuple(each for each in beside if each is not None)
        idle_s = max((one.sequence_idle_s for one in routes.variants), default=0.0)
        self._sessions.hold_sequences(idle_s)
        self.reads_prompts = any(pool.strategy.prefixes for pool in self._pools.values())
        self.looks_closer = any(pool.looks_closer for pool in self._pools.values())
        self.learns = any(pool.strategy.speeds is not None for pool in self._pools.values())
        self.watched = any(len(pool.copies) > 1 for pool in self._pools.values())
        for pool in self._pools.values():
            pool.weigh()
        gone = tuple(state for copy, state in before.items() if copy not in self._states)
        for state in gone:
            state.draining = True
            if not state.sequence_idle_s:
                state.life += 1
            if state.outstanding or state.sequence_idle_s:
                self._draining[state.copy] = state
        self._reopen()
        return gone

    def set_healthy(self, copy: int, healthy: bool) -> None:
        """A copy died or came back. Unknown copies are ignored: the report may be late."""
        state = self._states.get(copy) or self._draining.get(copy)
        if state is not None and state.healthy != healthy:
            state.healthy = healthy
            if not healthy:
                state.life += 1
                self._forget_outlier(state)
            self._reopen()

    def _forget_outlier(self, state: CopyState) -> None:
        """The copy that replaces it has a clean record."""
        state.judge()
        pool = self._pools.get(state.group)
        if pool is not None:
            pool.outliers.forget(state.copy)

    def awaits(self) -> set[str]:
        """Instances with requests in flight or with ejected copies: while there are any, go on
        calling `look`."""
        if not self.watched:
            return set()
        states = self._states.values()
        return {one.instance_id for one in states if one.outstanding or one.ejected}

    def look(self, silent: Container[str], *, now: float) -> list[tuple[CopyState, Action]]:
        """Looks for copies that answer nothing while others do; see `outliers.py`.

        Call it each `outliers.LOOK_EVERY_S` while `awaits` is not empty, and carry out the actions;
        routing follows them from now on.

        Args:
            silent: instances that did not answer in time when asked whether they live.
            now: monotonic s.
        """
        actions = [one for pool in self._pools.values() for one in pool.look(silent, now)]
        if actions:
            self.judged = any(one.ejected or one.probed for one in self._states.values())
            self._reopen()
        return actions

    def set_paused(self, copy: int, paused: bool) -> None:
        """Requests sent to a copy wait, or no longer do. Unknown copies are ignored."""
        state = self._states.get(copy) or self._draining.get(copy)
        if state is not None and state.paused != paused:
            state.paused = paused
            self._reopen()

    def set_others(self, copy: int, others: int) -> None:
        """Requests that a copy has in flight for other gateways. Unknown copies are ignored."""
        state = self._states.get(copy)
        if state is not None:
            state.bound(others=others)

    def others(self) -> int:
        """Requests that all routed copies have in flight for other gateways."""
        return sum(state.others for state in self._states.values())

    def set_models(self, copy: int, models: ModelsObserved) -> None:
        """Sets a host's report of its target models. Unknown copies are ignored."""
        state = self._states.get(copy)
        if state is not None:
            state.models = models

    def groups(self) -> tuple[Group, ...]:
        """Arguments for `loads`: each group's copies can replace one another for any request."""
        return tuple(self._pools)

    def group_of(self, copy: int) -> Group | None:
        """The group of a routed copy."""
        state = self._states.get(copy)
        return state.group if state is not None else None

    def loads(self, group: Group) -> list[CopyLoad]:
        """The loads of a group's copies that may be picked and between which requests may move.

        Empty where each request names a target model: which copy has it loaded matters more than
        counts. Paused copies are left out: they would react late.
        """
        found = self._pools.get(group)
        if found is None or found.multi_model:
            return []
        return [
            CopyLoad(state.copy, state.outstanding, state.outstanding_max, state.cost)
            for state in found.open
        ]

    def state_of(self, copy: int) -> CopyState | None:
        """The state of a routed copy."""
        return self._states.get(copy)

    def outstanding_on(self, copy: int) -> int:
        """Requests in flight on a routed copy, those of other gateways too; 0 for any other."""
        state = self._states.get(copy)
        return state.outstanding + state.others if state is not None else 0

    def outstanding(self, variant: str) -> int:
        """Requests in flight on a variant, draining copies included."""
        states = (*self._states.values(), *self._draining.values())
        return sum(state.outstanding for state in states if state.variant == variant)

    def open_copies(self) -> list[CopyState]:
        """Copies that could be picked now, of all pools that take part in a random choice."""
        pools = [pool for pool in self._pools.values() if pool.weight > 0 or pool.component]
        return [state for pool in pools for state in pool.open]

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "variants": [
                {
                    "variant": pool.name,
                    "weight": pool.weight,
                    "strategy": pool.strategy.name,
                    "copies": [_describe(state) | _outlier(pool, state) for state in pool.copies],
                }
                | ({"component": pool.component} if pool.component else {})
                | ({"incoming": True} if pool.incoming else {})
                | (prefixes.snapshot() if (prefixes := pool.strategy.prefixes) else {})
                | ({"speeds": speeds.snapshot()} if (speeds := pool.strategy.speeds) else {})
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
            taken = [state for state in healthy if not state.ejected] or healthy
            eager = [state for state in taken if not state.paused]
            assert pool.open == (eager or taken), f"open copies of {key} are wrong"
            assert len(pool.open) + len(pool.paused) == len(taken), "a copy is left out"
            assert pool.group == key, f"{key} has the copies of {pool.group}"
            assert all(state.group == key for state in pool.copies)
            if pool.strategy.prefixes is not None:
                pool.strategy.prefixes.check_invariants()
            if pool.strategy.speeds is not None:
                pool.strategy.speeds.check_invariants()
        self._sessions.check_invariants()
        draining = self._draining.values()
        assert all(state.outstanding or state.sequence_idle_s for state in draining), (
            "a drained copy is kept"
        )
        assert not set(self._states) & set(self._draining), "a copy is routed and draining"

    def _kept(
        self, route: CopyRoute, group: Group, before: dict[int, CopyState], known: Pool | None
    ) -> CopyState:
        """The state of a routed copy. `known`: the pool that passes on what it learned."""
        state = before.get(route.copy) or self._draining.pop(route.copy, None)
        if state is None:
            state = CopyState(route.copy, route.instance_id, group.variant, route.outstanding_max)
        else:
            if state.group[:2] != group[:2]:
                state.life += 1
            if known is None or known.group != state.group:
                state.judge()  # what it was judged by stays behind
        state.join(group)
        state.incoming = group.incoming or route.incoming
        state.instance_id = route.instance_id
        state.kind = route.kind
        state.cache_bytes = TOKEN_BYTES * route.cache_tokens
        state.bound(limit=route.outstanding_max)
        state.draining = False
        return state

    def _reopen(self) -> None:
        """Derives the data for `pick`: open copies, and the pools to choose from."""
        pools = self._pools.values()
        for pool in pools:
            pool.reopen()
        self._choice = ByComponent(pools) if self._by_component else ByVariant(pools, self._rng)


def _passing_on(
    routes: VariantRoutes, copies: dict[int, CopyState], pools: dict[Group, Pool]
) -> Pool | None:
    """The pool that these copies were in so far, or else the one of the same name: a generation
    that has taken over is no longer incoming. It is taken out of `pools`, so that no two pools go
    on with what one learned."""
    groups = (copies[route.copy].group for route in routes.copies if route.copy in copies)
    return pools.pop(next(groups, routes.group), None)


def _in_flight_on(state: CopyState) -> int:
    """Requests on its lanes and in its queue; a base and its adapters share both."""
    if not state.beside:
        return state.outstanding + state.others
    return sum(each.outstanding + each.others for each in state.beside)


def _sharing(routes: EndpointRoutes) -> dict[int, tuple[int, ...]]:
    """Copy -> the copies that share its queue: a base's and those of its adapters."""
    together: dict[int, list[int]] = {}
    for variant in routes.variants:
        for route in variant.copies:
            if route.base_copy:
                together.setdefault(route.base_copy, [route.base_copy]).append(route.copy)
    return {copy: tuple(group) for group in together.values() for copy in group}


def _outlier(pool: Pool, state: CopyState) -> dict[str, Any]:
    told = pool.outliers.snapshot(state.copy)
    return {"outlier": told} if told else {}


def _describe(state: CopyState) -> dict[str, Any]:
    return {
        "copy": state.copy,
        "instance_id": state.instance_id,
        "outstanding": state.outstanding,
        "outstanding_max": state.limit,
        "healthy": state.healthy,
        "paused": state.paused,
        **({"others": state.others} if state.others else {}),
        **({"cost": round(state.cost, 3)} if state.kind else {}),
    }
