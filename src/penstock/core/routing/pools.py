"""Which pool of copies a request is for, before any copy is looked at.

The copies of a pool can replace one another: those of a variant's own model, or of one inference
component. The endpoint determines what a request must name:

    takes no components   TargetVariant, or else a variant is drawn by weight (`ByVariant`)
    takes components      its component, whose variant TargetVariant may name too (`ByComponent`)

While a new generation of an endpoint takes over, a variant has two pools: `incoming` is the new
generation's. Their weights say how much of the traffic each gets, of requests that name the variant
and of those that name none.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Protocol

from penstock.core.deployment.deployment import VariantRoutes
from penstock.core.routing.copies import CopyState, NoRoute
from penstock.core.routing.outliers import Action, CopyAnswersObserved, Eject, Outliers, Probe
from penstock.core.routing.strategies import Strategy
from penstock.core.routing.target_models import choose

#: s. A dead worker is replaced in about a second (a process start and a model load).
_RETRY_AFTER_S_UNHEALTHY = 1.0

UNKNOWN_VARIANT = NoRoute("unknown-variant", None)
UNKNOWN_COMPONENT = NoRoute("unknown-component", None)
COMPONENT_REQUIRED = NoRoute("component-required", None)
COMPONENT_NOT_ALLOWED = NoRoute("component-not-allowed", None)
NO_COPIES = NoRoute("no-copies", _RETRY_AFTER_S_UNHEALTHY)
NO_HEALTHY_COPY = NoRoute("no-healthy-copy", _RETRY_AFTER_S_UNHEALTHY)


class Pool:
    """Copies of one model; `open` are those that may be routed to, in the order of the routes.

    `paused` are those that may be routed to where all of `open` are full. If every healthy copy is
    paused, they are all in `open`. Ejected copies (`outliers.py`) are in neither, unless no other
    copy is healthy.
    """

    __slots__ = (
        "component", "copies", "group", "incoming", "lanes", "looks_closer", "multi_model", "name",
        "open", "outliers", "paused", "strategy", "weight",
    )  # fmt: skip

    def __init__(
        self,
        routes: VariantRoutes,
        copies: tuple[CopyState, ...],
        strategy: Strategy,
        before: Pool | None = None,
    ) -> None:
        """`before`: the pool that these copies were in so far; it passes on what it learned."""
        self.group = routes.group
        self.name = routes.name  #: name of its variant
        self.component = routes.component
        self.weight = routes.weight
        self.lanes = routes.lanes  #: of each of its copies
        self.incoming = routes.incoming
        self.strategy = strategy
        self.multi_model = routes.multi_model
        #: the choice depends on more than the numbers of outstanding requests
        self.looks_closer = (
            routes.multi_model or strategy.prefixes is not None or strategy.speeds is not None
        )
        self.copies = copies
        # Models and containers that requests name differ in their times; copies may not.
        self.outliers: Outliers = Outliers(by_times=not (routes.multi_model or routes.direct))
        if before is not None and before.multi_model == routes.multi_model and len(copies) > 1:
            self.outliers = before.outliers
        else:
            for state in copies:
                state.judge()
        self.open: list[CopyState] = []
        self.paused: list[CopyState] = []

    def reopen(self) -> None:
        """Derives `open` and `paused` from the state of the copies."""
        healthy = [state for state in self.copies if state.healthy]
        taken = [state for state in healthy if not state.ejected] or healthy
        eager = [state for state in taken if not state.paused]
        self.open = eager or taken
        self.paused = [state for state in taken if state.paused] if eager else []

    def look(self, silent: Container[str], now: float) -> list[tuple[CopyState, Action]]:
        """Updates which copies are outliers; call `reopen` afterwards. `silent`: instances."""
        healthy = {state.copy: state for state in self.copies if state.healthy}
        seen = [
            CopyAnswersObserved(
                state.copy,
                state.outstanding,
                state.answers,
                state.missed,
                state.instance_id in silent,
            )
            for state in healthy.values()
        ]
        took_s_max = max((state.took_s_max for state in self.copies), default=0.0)
        for state in self.copies:
            state.took_s_max = 0.0
        actions = self.outliers.look(seen, took_s_max=took_s_max, now=now)
        for action in actions:
            ejected = action.reason if isinstance(action, Eject) else ""
            healthy[action.copy].judge(ejected, probed=isinstance(action, Probe))
        return [(healthy[action.copy], action) for action in actions]

    def weigh(self) -> None:
        """Call after speeds were learned, or copies were added."""
        speeds = self.strategy.speeds
        for state in self.copies:
            state.cost = speeds.cost(state.kind) if speeds is not None else 1.0
        self.strategy.weigh()

    def not_yet_failed(self, exclude: tuple[int, ...]) -> list[CopyState]:
        """Open copies that have not failed this request, else paused ones, else all open ones."""
        others = [state for state in self.open if state.copy not in exclude]
        others = others or [state for state in self.paused if state.copy not in exclude]
        return others or self.open


class PoolChoice(Protocol):
    """How the pool is chosen; made anew whenever pools open or close.

    Attributes:
        only: the pool of a request that names nothing, where there is only one choice.
        named: variant -> the pool of all requests that name it; none where there is no such pool.
    """

    only: Pool | None
    named: dict[str, Pool]

    def drawn(self) -> Pool | None:
        """The pool of a request that names nothing; None: `choose` says why there is none."""

    def choose(self, variant: str | None, component: str | None) -> Pool | NoRoute:
        """A pool with an open copy, or why there is none."""


class Draw:
    """Draws one of some pools by weight, among those that are open and have a weight > 0."""

    __slots__ = ("_last", "_pools", "_random", "_total", "_weights", "only")

    def __init__(self, pools: Iterable[Pool], rng: random.Random) -> None:
        self._random = rng.random  # bound once: it is called for every request
        self._pools = [pool for pool in pools if pool.open and pool.weight > 0]
        self._weights = list(accumulate(pool.weight for pool in self._pools))  #: running sums
        self._total = self._weights[-1] if self._weights else 0.0
        self._last = len(self._pools) - 1
        self.only = self._pools[0] if len(self._pools) == 1 else None  #: the only one, if so

    def pool(self) -> Pool | None:
        """None: no pool takes part."""
        pools = self._pools
        if not pools:
            return None
        at = self._random() * self._total
        return pools[bisect_right(self._weights, at, 0, self._last)]


class ByVariant:
    """A named variant is used, even against a weight of 0; otherwise one is drawn by weight among
    the variants with weight > 0. Variants without a healthy copy lose their share to the others,
    but a full one does not: traffic meant for one must not flood another.

    The same holds for the two generations of a variant: one of them is drawn for a request that
    names it. If neither has a weight the one that is not incoming serves alone.
    """

    __slots__ = ("_draws", "_pools", "drawn", "named", "only")

    def __init__(self, pools: Iterable[Pool], rng: random.Random) -> None:
        self._pools: dict[str, list[Pool]] = {}  #: variant -> its pools
        for pool in pools:
            self._pools.setdefault(pool.name, []).append(pool)
        self.named: dict[str, Pool] = {}
        self._draws: dict[str, Draw] = {}  #: variant -> of its two generations, if both have a part
        for name, generations in self._pools.items():
            healthy = [one for one in generations if one.open]
            healthy.sort(key=attrgetter("incoming"))
            draw = Draw(healthy, rng)
            if len(healthy) > 1 and all(one.weight > 0 for one in healthy):
                self._draws[name] = draw
            elif healthy:
                self.named[name] = draw.only or healthy[0]
        every = Draw((one for each in self._pools.values() for one in each), rng)
        self.only = every.only
        self.drawn = every.pool

    def choose(self, variant: str | None, component: str | None) -> Pool | NoRoute:
        if component is not None:
            return COMPONENT_NOT_ALLOWED
        if variant is not None:
            generations = self._pools.get(variant)
            if generations is None:
                return UNKNOWN_VARIANT
            draw = self._draws.get(variant)
            chosen = self.named.get(variant) if draw is None else draw.pool()
            return chosen or _none_open(generations)
        every = [one for generations in self._pools.values() for one in generations]
        return self.drawn() or _none_open([one for one in every if one.weight > 0])


class ByComponent:
    """Every request names a component, and a component has one variant."""

    __slots__ = ("_pools", "named", "only")

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._pools = {pool.component: pool for pool in pools}
        self.only: Pool | None = None
        self.named: dict[str, Pool] = {}

    def drawn(self) -> Pool | None:
        return None

    def choose(self, variant: str | None, component: str | None) -> Pool | NoRoute:
        if component is None:
            return COMPONENT_REQUIRED
        pool = self._pools.get(component)
        if pool is None:
            return UNKNOWN_COMPONENT
        if variant is not None and variant != pool.name:
            return UNKNOWN_VARIANT
        return pool if pool.open else _none_open((pool,))


def closely(
    pool: Pool,
    exclude: tuple[int, ...],
    prompt: bytes | None,
    prefix: bytes | None,
    model: str | None,
    now: float,
) -> tuple[CopyState | None, str, CopyState | None]:
    """(copy, reason, host that should also load the target model); no copy where all are full."""
    copies = pool.not_yet_failed(exclude) if exclude else pool.open
    if model is not None:
        return choose(copies, model, now=now)
    strategy, prefixes = pool.strategy, pool.strategy.prefixes
    if prefixes is None:
        return strategy.pick(copies), _why(strategy, exclude, copies), None
    if not exclude and len(copies) > 1:
        state, reason = prefixes.choose(copies, prompt or b"", prefix, strategy.pick)
        return state, strategy.reason if reason == "least-outstanding" else reason, None
    state = strategy.pick(copies)
    if state is not None:  # whatever the reason of the choice, the copy has the prompt now
        prefixes.remember(prompt or b"", prefix, state)
    return state, "retry" if exclude else "only-copy", None


def _why(strategy: Strategy, exclude: tuple[int, ...], copies: Sequence[CopyState]) -> str:
    if exclude:
        return "retry"
    return strategy.reason if len(copies) > 1 else "only-copy"


def paused(pool: Pool, exclude: tuple[int, ...], model: str | None, now: float) -> CopyState | None:
    """A paused copy, where no other has room."""
    left = [state for state in pool.paused if state.copy not in exclude]
    if model is not None:
        return choose(left, model, now=now)[0]
    return pool.strategy.pick(left) if left else None


def _none_open(pools: Sequence[Pool]) -> NoRoute:
    return NO_HEALTHY_COPY if any(pool.copies for pool in pools) else NO_COPIES
