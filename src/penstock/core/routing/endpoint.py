"""Which copy of an endpoint gets a request; its slot is reserved in the same step.

A burst never sees stale counts: `pick` raises the chosen copy's `outstanding` before it returns,
and the driver calls `release` exactly once per pick, when the last byte of the answer is written
or the attempt has failed.

Variant first. `variant` (TargetVariant) decides alone, even against a weight of 0. Otherwise one is
drawn by weight among the variants with weight > 0; those that have no healthy copy now lose their
share to the others, but a full one does not: traffic meant for one variant must not flood another.
Then the copy, by the variant's strategy. Excluded copies (they failed this very request) are taken
only if no other copy may be routed to.

A paused copy is well, but what is sent to it waits: it is picked only where no other copy of its
variant has room. Its sessions stay, and wait with it.

A request of a session goes to the session's copy, whatever the variant's strategy. It is never
taken to another copy, which would know nothing of the session: if the copy is full the request is
refused, and if it has died the session is lost.

Routes are replaced as a whole. A copy that stays keeps its count and health; one that is gone
drains: it is never picked again and is forgotten with its last release.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from penstock.core.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.core.routing.copies import CopyState, NoRoute, Routed
from penstock.core.routing.rebalance import CopyLoad
from penstock.core.routing.sessions import FULL, UNKNOWN, Sessions
from penstock.core.routing.strategies import Strategy, strategy_of
from penstock.core.routing.target_models import ModelsSeen, choose

#: A dead worker is replaced in about a second (a process start and a model load).
_RETRY_AFTER_S_UNHEALTHY = 1.0
#: Queues of full copies move on within tenths of a second; the admission forecast knows better.
_RETRY_AFTER_S_FULL = 0.1

_UNKNOWN_VARIANT = NoRoute("unknown-variant", None)
_NO_COPIES = NoRoute("no-copies", _RETRY_AFTER_S_UNHEALTHY)
_NO_HEALTHY_COPY = NoRoute("no-healthy-copy", _RETRY_AFTER_S_UNHEALTHY)
_ALL_COPIES_FULL = NoRoute("all-copies-full", _RETRY_AFTER_S_FULL)
_TARGET_MODEL_REQUIRED = NoRoute("target-model-required", None)
_TARGET_MODEL_NOT_ALLOWED = NoRoute("target-model-not-allowed", None)


class _Variant:
    """A variant's copies; `open` are those that may be routed to, in the order of the routes.

    `paused` are those that may be routed to where all of `open` are full. If every healthy copy is
    paused they are simply open.
    """

    __slots__ = ("copies", "multi_model", "name", "open", "paused", "strategy", "weight")

    def __init__(
        self, routes: VariantRoutes, copies: tuple[CopyState, ...], strategy: Strategy
    ) -> None:
        self.name = routes.name
        self.weight = routes.weight
        self.strategy = strategy
        self.multi_model = routes.multi_model
        self.copies = copies
        self.open: list[CopyState] = []
        self.paused: list[CopyState] = []


class EndpointRouter:
    """All copies of one endpoint, as one gateway process counts them."""

    __slots__ = (
        "_draining", "_drawn", "_drawn_weights", "_number", "_only", "_rng", "_sessions", "_states",
        "_variants", "looks_closer", "reads_prompts",
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
        self._variants: dict[str, _Variant] = {}
        self._drawn: list[_Variant] = []  #: who takes part in the draw by weight
        self._drawn_weights: list[float] = []  #: running sums of their weights
        self._only: _Variant | None = None  #: set where there is nothing to draw
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
            now: needed with `session` and `model`.
        """
        if session is not None:
            return self._pick_in_session(
                session, opens, variant, exclude, prefix, prompt, model, now
            )
        chosen = self._only
        if variant is not None:
            chosen = self._variants.get(variant)
            if chosen is None:
                return _UNKNOWN_VARIANT
        elif chosen is None:
            if not self._drawn:
                return self._none_open([v for v in self._variants.values() if v.weight > 0])
            sums = self._drawn_weights
            chosen = self._drawn[
                bisect_right(sums, self._rng.random() * sums[-1], 0, len(sums) - 1)
            ]
        copies = chosen.open
        if not copies:
            return self._none_open((chosen,))
        strategy = chosen.strategy
        helper = None
        if chosen.multi_model:
            if model is None:
                return _TARGET_MODEL_REQUIRED
            state, reason, helper = choose(
                self._not_yet_failed(chosen, exclude) if exclude else copies, model, now=now
            )
        elif model is not None:
            return _TARGET_MODEL_NOT_ALLOWED
        elif strategy.prefixes is not None:
            state, reason = self._by_prefix(chosen, exclude, prompt or b"", prefix)
        elif exclude:
            state = strategy.pick(self._not_yet_failed(chosen, exclude))
            reason = "retry"
        elif len(copies) == 1:
            only = copies[0]
            state = only if only.outstanding < only.outstanding_max else None
            reason = "only-copy"
        else:
            state = strategy.pick(copies)
            reason = strategy.reason
        if state is None:
            paused = [state for state in chosen.paused if state.copy not in exclude]
            if model is not None:
                state, _, _ = choose(paused, model, now=now)
            else:
                state = strategy.pick(paused) if paused else None
            reason = "paused-copy"
            if state is None:
                return _ALL_COPIES_FULL
        self._number = state.picked = self._number + 1
        state.outstanding = outstanding = state.outstanding + 1
        return Routed(state, chosen.name, reason, outstanding, helper)

    @staticmethod
    def _not_yet_failed(chosen: _Variant, exclude: tuple[int, ...]) -> list[CopyState]:
        """Open copies that have not failed this request, else paused ones, else all open ones."""
        others = [state for state in chosen.open if state.copy not in exclude]
        others = others or [state for state in chosen.paused if state.copy not in exclude]
        return others or chosen.open

    def _by_prefix(
        self, chosen: _Variant, exclude: tuple[int, ...], prompt: bytes, prefix: bytes | None
    ) -> tuple[CopyState | None, str]:
        """As `pick`, and the copy that is picked for whatever reason knows the prompt now."""
        strategy, prefixes = chosen.strategy, chosen.strategy.prefixes
        assert prefixes is not None
        if not exclude and len(chosen.open) > 1:
            return prefixes.choose(chosen.open, prompt, prefix)
        state = strategy.pick(self._not_yet_failed(chosen, exclude))
        if state is not None:
            prefixes.remember(prompt, prefix, state)
        return state, "retry" if exclude else "only-copy"

    def _pick_in_session(
        self,
        session: str,
        opens: bool,
        variant: str | None,
        exclude: tuple[int, ...],
        prefix: bytes | None,
        prompt: bytes | None,
        model: str | None,
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
                now=now,
            )
            if isinstance(answer, Routed):
                self._sessions.bind(session, answer.state, now=now)
            return answer
        if isinstance(found, NoRoute):
            return found
        if variant is not None and variant != found.variant:
            return UNKNOWN  # to the variant that is asked for
        known = self._variants.get(found.variant)
        if known is not None and known.multi_model != (model is not None):
            return _TARGET_MODEL_REQUIRED if known.multi_model else _TARGET_MODEL_NOT_ALLOWED
        if found.outstanding >= found.outstanding_max:
            return _ALL_COPIES_FULL
        self._number = found.picked = self._number + 1
        found.outstanding += 1
        return Routed(found, found.variant, "session", found.outstanding)

    def open_session(
        self, session: str, *, variant: str | None = None, now: float
    ) -> CopyState | NoRoute:
        """Binds a session to a copy without a request; no slot is reserved."""
        answer = self.pick(variant=variant, session=session, opens=True, now=now)
        if isinstance(answer, NoRoute):
            return answer
        self.release(answer.state)
        return answer.state

    def close_session(self, session: str, *, now: float) -> NoRoute | None:
        """Ends a session; None: done. One that was lost may be closed like any other."""
        return None if self._sessions.close(session, now=now) else UNKNOWN

    def hosts_for(self, model: str, *, now: float) -> list[CopyState]:
        """Where a target model is to be loaded ahead of its calls: one host of each variant.

        The host that a call would go to now; later calls follow. Reserves nothing.
        """
        variants = [one for one in self._variants.values() if one.multi_model]
        chosen = [choose(one.open or one.paused, model, now=now)[0] for one in variants]
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
            for variant in self._variants.values()
            for state in (*variant.open, *variant.paused)
            if state.models is not None
        ]

    def release(self, state: CopyState) -> None:
        """Frees the slot of one earlier pick."""
        state.outstanding -= 1
        if state.draining and not state.outstanding:
            self._draining.pop(state.copy, None)

    def replace(self, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        """Takes new routes; returns the copies that drain from now on, with their counts."""
        before, variants_before = self._states, self._variants
        self._states = {}
        self._variants = {}
        for variant in routes.variants:
            states = tuple(self._kept(route, variant.name, before) for route in variant.copies)
            known = variants_before.get(variant.name)
            strategy = strategy_of(variant, self._rng, known.strategy if known else None)
            self._variants[variant.name] = _Variant(variant, states, strategy)
            self._states.update((state.copy, state) for state in states)
        self.reads_prompts = any(v.strategy.prefixes for v in self._variants.values())
        self.looks_closer = self.reads_prompts or any(
            v.multi_model for v in self._variants.values()
        )
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

    def groups(self) -> tuple[str, ...]:
        """Names of what `loads` may be asked for: copies that any request of theirs may go to."""
        return tuple(self._variants)

    def group_of(self, copy: int) -> str | None:
        """The group of a routed copy."""
        state = self._states.get(copy)
        return state.variant if state is not None else None

    def loads(self, group: str) -> list[CopyLoad]:
        """Of the copies of a group that may be picked and between which requests may move.

        None where each request names a target model: which copy has it loaded says more than its
        count. Those of a paused copy are not asked for: it would hear of it late.
        """
        found = self._variants.get(group)
        if found is None or found.multi_model:
            return []
        return [
            CopyLoad(state.copy, state.outstanding, state.outstanding_max) for state in found.open
        ]

    def outstanding_on(self, copy: int) -> int:
        """Requests in flight on a routed copy; 0 for any other."""
        state = self._states.get(copy)
        return state.outstanding if state is not None else 0

    def outstanding(self, variant: str) -> int:
        """Requests in flight on a variant, draining copies included."""
        states = (*self._states.values(), *self._draining.values())
        return sum(state.outstanding for state in states if state.variant == variant)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "variants": [
                {
                    "variant": variant.name,
                    "weight": variant.weight,
                    "strategy": variant.strategy.name,
                    "copies": [_describe(state) for state in variant.copies],
                }
                | (prefixes.snapshot() if (prefixes := variant.strategy.prefixes) else {})
                for variant in self._variants.values()
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
        for variant in self._variants.values():
            healthy = [state for state in variant.copies if state.healthy]
            eager = [state for state in healthy if not state.paused]
            assert variant.open == (eager or healthy), f"open copies of {variant.name} are wrong"
            assert len(variant.open) + len(variant.paused) == len(healthy), "a copy is left out"
            assert all(state.variant == variant.name for state in variant.copies)
            if variant.strategy.prefixes is not None:
                variant.strategy.prefixes.check_invariants()
        self._sessions.check_invariants()
        assert all(state.outstanding for state in self._draining.values()), "a drained copy is kept"
        assert not set(self._states) & set(self._draining), "a copy is routed and draining"

    def _kept(self, route: CopyRoute, variant: str, before: dict[int, CopyState]) -> CopyState:
        state = before.get(route.copy) or self._draining.pop(route.copy, None)
        if state is None:
            return CopyState(route.copy, route.instance_id, variant, route.outstanding_max)
        if state.variant != variant:
            state.life += 1
        state.instance_id = route.instance_id
        state.variant = variant
        state.outstanding_max = route.outstanding_max
        state.draining = False
        return state

    def _reopen(self) -> None:
        """Derives what `pick` looks at: open copies, and who takes part in the draw."""
        self._drawn = []
        self._drawn_weights = []
        total = 0.0
        for variant in self._variants.values():
            healthy = [state for state in variant.copies if state.healthy]
            eager = [state for state in healthy if not state.paused]
            variant.open = eager or healthy
            variant.paused = [state for state in healthy if state.paused] if eager else []
            if variant.open and variant.weight > 0:
                total += variant.weight
                self._drawn.append(variant)
                self._drawn_weights.append(total)
        self._only = self._drawn[0] if len(self._drawn) == 1 else None

    @staticmethod
    def _none_open(variants: Sequence[_Variant]) -> NoRoute:
        return _NO_HEALTHY_COPY if any(variant.copies for variant in variants) else _NO_COPIES


def _describe(state: CopyState) -> dict[str, Any]:
    return {
        "copy": state.copy,
        "instance_id": state.instance_id,
        "outstanding": state.outstanding,
        "outstanding_max": state.outstanding_max,
        "healthy": state.healthy,
        "paused": state.paused,
    }
