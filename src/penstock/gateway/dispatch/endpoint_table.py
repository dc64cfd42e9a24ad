"""The endpoints that a gateway knows: their routes, and which of their copies may be picked.

A copy may be picked while its instance's link is usable and the instance has not reported the copy
lost. While the link is paused, other copies are preferred. These facts change at any time, in any
order with the routes, so they are kept here and passed to the routers whenever one changes.
`core/routing` decides which copy gets a request.

The copies of a shadow variant, and those of components that are shadows of others, are no part of
their endpoint here: `Endpoint.shadow` has them, as an endpoint of its own that no request can name.
A component may become a shadow, or cease to be one: then its copies go from one to the other, and
each finishes what it has sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.core.deployment.deployment import EndpointRoutes, Group, VariantRoutes
from penstock.core.request.admission import Admission, admission_spec
from penstock.core.request.mirroring import MirrorGate, MirrorSpec
from penstock.core.rollout.pair_balance import PairBalance
from penstock.core.routing import CopyState, EndpointRouter, ModelsObserved, NoRoute, Routed
from penstock.core.routing.sessions import Sessions
from penstock.gateway.dispatch.invocation import UNBOUND, Invocation, component_of
from penstock.gateway.dispatch.recording import Recorders
from penstock.gateway.dispatch.served_names import ServedNames
from penstock.metrics.counts.recorder import VariantRecorder

#: Endpoint name -> its sessions.
SessionsOf = Callable[[str], Sessions]

#: The `task` in the description of models that generate tokens one by one.
GENERATION_TASK = "text-generation"

# What a few fast copies have under way; a shadow that is slower than production gets fewer.
#: Bounds for the copies of one endpoint's requests that its shadow variant has at once.
MIRRORS: Final = MirrorSpec(count_max=1024, bytes_max=64 << 20)


class Endpoint:
    """One endpoint on the hot path. The dispatcher reads its fields for each request."""

    __slots__ = (
        "_balances", "_stray", "admission", "beside", "by_source", "capture", "compared",
        "generates", "held_bytes", "held_count", "in_flight", "keeps_sequences", "lanes",
        "looks_closer", "name", "only_answers", "pairs", "recorders", "router", "routes", "shadow",
        "targets",
    )  # fmt: skip

    def __init__(
        self,
        routes: EndpointRoutes,
        rng: random.Random,
        recorders: Recorders,
        sessions: Sessions | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.name = routes.endpoint
        self.in_flight = 0
        self.held_count = 0  #: requests that wait because no copy could take them
        self.held_bytes = 0  #: size of their bodies
        #: what admission counts besides `in_flight`: requests of other gateways on the copies,
        #: minus this gateway's requests that are on no copy
        self.beside = 0
        self.admission = Admission(admission_spec(routes))
        self.router = EndpointRouter(routes, rng, sessions, shared=shared)
        self.routes = routes
        self.shadow: Shadow | None = None
        self.recorders: dict[str, VariantRecorder] = {}
        self.pairs = MirrorGate(MIRRORS)  #: requests that both sides of a rollout are asked
        #: of what is compared with fewer or more copies of it
        self._balances: dict[Group, PairBalance] = {}
        self.derive(recorders)

    def derive(self, recorders: Recorders) -> None:
        """Computes what follows from new routes."""
        routes = self.routes
        before = self.recorders
        #: `Group.pool` -> recorder of its requests
        self.recorders = {
            pool.group.pool: recorders.recorder(self.name, pool.name, pool.component, pool.config)
            for pool in routes.variants
        }
        for one in {*before.values()}.difference(self.recorders.values()):
            one.retired = True
        for pool in routes.variants:
            if pool.base:
                self.recorders[pool.group.pool].base = pool.base
            if pool.shadow_of:
                self.recorders[pool.group.pool].apart = True
        #: the recorder of requests that are for none of these
        self._stray = next(iter(self.recorders.values()), None)
        if routes.takes_components and routes.variants:
            first = routes.variants[0]
            self._stray = recorders.recorder(self.name, first.name, "", first.config)
        self.count_others()
        self.look_closer()
        self.capture = routes.capture
        found = {pool.group: pool.compared or routes.compared for pool in routes.variants}
        #: whose answers are compared, and with which rollout's agreement
        self.compared = {group: one for group, one in found.items() if one is not None}
        known = self._balances
        self._balances = {
            group: known.get(group) or PairBalance() for group in _uneven(routes, self.compared)
        }
        #: nothing is left to do for a request once it is answered
        self.only_answers = (
            routes.capture is None
            and not routes.shadows
            and not self.compared
            and all(one.compared is None for one in routes.targets)
        )
        #: of shadows: component whose requests are copied, or "" -> what gets the copies
        self.by_source = {pool.shadow_of: pool for pool in routes.variants}
        #: by target model, those that not simply the artifact of their own name answers for
        self.targets = {one.target: one for one in routes.targets}
        #: whether its replies report the numbers of input and output tokens
        self.generates = any(
            variant.model.get("task") == GENERATION_TASK for variant in self.routes.variants
        )
        #: whether requests of a sequence have to go to one copy
        self.keeps_sequences = any(pool.sequence_idle_s for pool in routes.variants)
        self.lanes = sum(len(pool.copies) * pool.lanes for pool in routes.variants)

    def recorder_of(
        self, variant: str | None, component: str | None = None
    ) -> VariantRecorder | None:
        """The recorder of requests that were never sent: by the names in the request, or else
        the first variant's."""
        return self.recorders.get(component or variant or "") or self._stray

    def pool_of(self, variant: str | None, component: str | None) -> VariantRoutes | None:
        """The routes that a request is for. Of several variants: the first that takes part in the
        draw by weight. Of two generations: the one that is not incoming."""
        pools = self.routes.variants
        if component is not None or variant is not None:
            name = component or variant
            return next((one for one in pools if (one.component or one.name) == name), None)
        return next((one for one in pools if one.weight > 0), next(iter(pools), None))

    def balance_of(self, group: Group) -> PairBalance | None:
        """Of the copies in a group and those that their answers are compared with; None: there are
        as many."""
        return self._balances.get(group._replace(incoming=False))

    def artifact_of(self, target: str) -> str:
        """The artifact that answers for a target model."""
        routes = self.targets.get(target)
        return routes.serves if routes is not None else target

    def may_begin(self, invocation: Invocation) -> bool:
        """Whether a new request finds an idle lane, whatever else waits."""
        return self.router.may_begin(invocation.variant, component_of(invocation))

    def count_others(self) -> None:
        """Recomputes what follows from other gateways' requests on the copies."""
        self.beside = self.router.others() - self.held_count

    def hold(self, body_bytes: int) -> None:
        """A new request waits for a copy; later requests queue behind it."""
        self.held_count += 1
        self.beside -= 1
        self.held_bytes += body_bytes
        self.looks_closer = True

    def let_go(self, body_bytes: int) -> None:
        """A request waits no longer."""
        self.held_count -= 1
        self.beside += 1
        self.held_bytes -= body_bytes
        self.look_closer()

    def look_closer(self) -> None:
        """Recomputes whether routing must read more of a request than its variant."""
        routes = self.routes
        self.looks_closer = self.held_count > 0 or self.router.looks_closer or routes.asynchronous


class Shadow(NamedTuple):
    """The shadow variant of an endpoint, or its components that are shadows of others."""

    entry: Endpoint  #: their copies, and the requests that were copied to them
    gate: MirrorGate

    def of(self, invocation: Invocation) -> VariantRoutes | None:
        """What gets a copy of such a request. Its weight is the share of these that is copied."""
        return self.entry.by_source.get(component_of(invocation) or "")

    def component(self, name: str | None) -> VariantRoutes | None:
        """The component of this name, where it is a shadow."""
        return next((one for one in self.entry.routes.variants if one.component == name), None)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state."""
        return self.gate.snapshot() | {"router": self.entry.router.snapshot()}


class EndpointTable:
    """The endpoints by name, and the health of copies by instance."""

    def __init__(
        self,
        rng: random.Random,
        recorders: Recorders,
        sessions_of: SessionsOf | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """
        Args:
            rng: the random numbers of routing.
            recorders: count the requests of each variant and component.
            sessions_of: makes an endpoint's sessions; None: sessions are not shared.
            shared: other gateways send to the same copies.
        """
        self._shared = shared
        self._rng = rng
        self._sessions_of = sessions_of
        self._recorders = recorders
        self._usable: set[str] = set()  #: instances whose link can send requests
        self._paused: set[str] = set()  #: those of them whose link is paused
        self._lost: dict[str, set[int]] = {}  #: instance -> copies that it reported as lost
        #: instance -> copy that is a host -> its target models
        self._models: dict[str, dict[int, ModelsObserved]] = {}
        #: instance -> copy -> requests in flight from other gateways
        self._others: dict[str, dict[int, int]] = {}
        self._copies: dict[int, tuple[Endpoint, str]] = {}  #: copy -> (endpoint, instance)
        self.endpoints: dict[str, Endpoint] = {}
        self.served = ServedNames(self.endpoints)

    def publish(self, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        """Replaces an endpoint's routes; returns the copies that drain from now on."""
        endpoint = self.endpoints.get(routes.endpoint)
        before = endpoint.routes.served_names if endpoint is not None else {}
        self.served.take(routes.endpoint, before, routes.served_names)
        if endpoint is None:
            sessions = self._sessions_of(routes.endpoint) if self._sessions_of else None
            endpoint = self.endpoints[routes.endpoint] = Endpoint(
                routes, self._rng, self._recorders, sessions, shared=self._shared
            )
            gone = self._take(endpoint, ())
        else:
            gone = self._revise(endpoint, routes)
        shadows = [] if endpoint.shadow is None else endpoint.shadow.entry.routes.variants
        gone += self._publish_shadow(endpoint, routes)
        if any(pool.group.pool in endpoint.recorders for pool in shadows):
            endpoint.derive(self._recorders)  # what was a shadow answers callers now
        return gone

    def _publish_shadow(self, endpoint: Endpoint, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        shadow = endpoint.shadow
        if not routes.shadows:
            endpoint.shadow = None
            return self._end_shadow(shadow)
        of_shadow = EndpointRoutes(
            endpoint=routes.endpoint,
            variants=routes.shadows,
            takes_components=routes.takes_components,
            capture=routes.capture,
        )
        if shadow is not None:
            return _let_go(shadow.entry, self._revise(shadow.entry, of_shadow))
        entry = Endpoint(of_shadow, self._rng, self._recorders, shared=self._shared)
        endpoint.shadow = Shadow(entry, MirrorGate(MIRRORS))
        return self._take(entry, ())

    def _revise(self, endpoint: Endpoint, routes: EndpointRoutes) -> tuple[CopyState, ...]:
        endpoint.routes = routes = _still_described(routes, endpoint.routes)
        endpoint.admission.revise(admission_spec(routes))
        gone = endpoint.router.replace(routes)
        endpoint.derive(self._recorders)
        return self._take(endpoint, gone)

    def _take(self, endpoint: Endpoint, gone: tuple[CopyState, ...]) -> tuple[CopyState, ...]:
        """Takes an endpoint's new routes, in which these copies are no longer."""
        self._drop(endpoint, gone)
        for variant in endpoint.routes.variants:
            for route in variant.copies:
                self._copies[route.copy] = (endpoint, route.instance_id)
                self._tell(route.copy)
        endpoint.count_others()
        return gone

    def _end_shadow(self, shadow: Shadow | None) -> tuple[CopyState, ...]:
        return _let_go(shadow.entry, self._forget(shadow.entry)) if shadow is not None else ()

    def _forget(self, endpoint: Endpoint) -> tuple[CopyState, ...]:
        gone = endpoint.router.replace(EndpointRoutes(endpoint=endpoint.name, variants=()))
        self._drop(endpoint, gone)
        return gone

    def _drop(self, endpoint: Endpoint, gone: tuple[CopyState, ...]) -> None:
        for state in gone:
            place = self._copies.get(state.copy)
            if place is not None and place[0] is endpoint:  # else they are its shadow's, or were
                del self._copies[state.copy]

    def withdraw(self, name: str) -> tuple[CopyState, ...]:
        """Forgets an endpoint; returns the copies that drain from now on."""
        endpoint = self.endpoints.pop(name, None)
        if endpoint is None:
            return ()
        self.served.take(name, endpoint.routes.served_names, {})
        return self._forget(endpoint) + self._end_shadow(endpoint.shadow)

    def set_usable(self, instance_id: str, usable: bool, *, fresh: bool = False) -> None:
        """The link of an instance can send requests, or can't. `fresh`: earlier reports are
        void."""
        if usable:
            self._usable.add(instance_id)
        else:
            self._usable.discard(instance_id)
        self._paused.discard(instance_id)
        if fresh:
            self._lost.pop(instance_id, None)
            self._models.pop(instance_id, None)
            for copy in self._others.pop(instance_id, {}):
                self._set_others(copy, 0)
        self._tell_all(instance_id)
        if not usable:
            for endpoint in self.endpoints.values():
                if endpoint.keeps_sequences:
                    endpoint.router.instance_lost(instance_id)

    def set_paused(self, instance_id: str, paused: bool) -> None:
        """The link of an instance is paused, or is not any more."""
        if paused:
            self._paused.add(instance_id)
        else:
            self._paused.discard(instance_id)
        self._tell_all(instance_id)

    def set_lost(self, instance_id: str, copy: int, lost: bool) -> None:
        """The instance reports that a copy died, or that it is back."""
        copies = self._lost.setdefault(instance_id, set())
        if lost:
            copies.add(copy)
        else:
            copies.discard(copy)
        if copy in self._copies:
            self._tell(copy)

    def set_models(
        self, instance_id: str, copy: int, loaded: list[str], gone: list[str], *, free_bytes: int
    ) -> None:
        """A host reports the target models that it loaded and dropped since its last report."""
        seen = self._models.setdefault(instance_id, {}).setdefault(copy, ModelsObserved())
        seen.told(loaded=loaded, gone=gone, free_bytes=free_bytes)
        if copy in self._copies:
            self._tell(copy)

    def set_others(self, instance_id: str, counts: Iterable[tuple[int, int]]) -> None:
        """The instance reports changes of its copies' requests in flight from other gateways."""
        told = self._others.setdefault(instance_id, {})
        for copy, others in counts:
            told[copy] = others
            place = self._copies.get(copy)
            if place is not None and place[1] == instance_id:
                self._set_others(copy, others)

    def _set_others(self, copy: int, others: int) -> None:
        place = self._copies.get(copy)
        if place is not None:
            place[0].router.set_others(copy, others)
            place[0].count_others()

    def place_of(self, copy: int) -> tuple[Endpoint, str] | None:
        """The endpoint and the instance of a copy in the routes; None for any other."""
        return self._copies.get(copy)

    def copies_on(self, instance_id: str) -> list[int]:
        """The copies on an instance that are in the routes."""
        return [copy for copy, (_, owner) in self._copies.items() if owner == instance_id]

    def outstanding(self, copy: int) -> int:
        """Requests on a copy in the routes; 0 for any other."""
        found = self._copies.get(copy)
        return found[0].router.outstanding_on(copy) if found is not None else 0

    def healthy_copies(self, name: str, component: str | None = None) -> Iterator[int]:
        """Copies of an endpoint, or of one of its components, that may be picked now."""
        endpoint = self.endpoints.get(name)
        for variant in endpoint.routes.variants if endpoint is not None else ():
            for route in variant.copies:
                if component in (None, variant.component) and self._healthy(
                    route.copy, route.instance_id
                ):
                    yield route.copy

    def _healthy(self, copy: int, instance_id: str) -> bool:
        return instance_id in self._usable and copy not in self._lost.get(instance_id, ())

    def _tell_all(self, instance_id: str) -> None:
        for copy, (_, owner) in self._copies.items():
            if owner == instance_id:
                self._tell(copy)

    def _tell(self, copy: int) -> None:
        endpoint, instance_id = self._copies[copy]
        endpoint.router.set_healthy(copy, self._healthy(copy, instance_id))
        endpoint.router.set_paused(copy, instance_id in self._paused)
        others = self._others.get(instance_id)
        if others is not None:
            endpoint.router.set_others(copy, others.get(copy, 0))
        models = self._models.get(instance_id)
        if models is not None and copy in models:
            endpoint.router.set_models(copy, models[copy])


def _uneven(routes: EndpointRoutes, compared: Iterable[Group]) -> list[Group]:
    """Groups that are compared with one of another size: the copies of one would get the requests
    of all in the other. Of a component both revisions are in one group."""
    sizes = {pool.group: len(pool.copies) for pool in routes.variants}
    return [
        group
        for group in compared
        if not group.incoming
        and (group.component or sizes[group] != sizes.get(group._replace(incoming=True), 0))
    ]


def _let_go(endpoint: Endpoint, gone: tuple[CopyState, ...]) -> tuple[CopyState, ...]:
    """Copies that left a shadow's routes end with their requests: no sequence is copied to them."""
    for state in gone:
        endpoint.router.let_go(state)
    return gone


def _still_described(routes: EndpointRoutes, before: EndpointRoutes) -> EndpointRoutes:
    """Models without a copy keep the description that their last copy gave, since clients read it
    while the model is scaled to zero."""
    known = {one.group: one.model for one in before.variants}
    return replace(
        routes,
        variants=tuple(
            one if one.copies or one.model else replace(one, model=known.get(one.group, {}))
            for one in routes.variants
        ),
    )


def pick(
    router: EndpointRouter,
    invocation: Invocation,
    variant: str | None,
    exclude: tuple[int, ...],
    now: float,
) -> Routed | NoRoute:
    """The router's choice, given all that may bind the request to a copy."""
    affinity = invocation.affinity or UNBOUND
    picked = router.pick(
        variant=variant,
        exclude=exclude,
        session=affinity.session,
        opens=affinity.opens,
        prefix=affinity.prefix,
        prompt=invocation.body if router.reads_prompts else None,
        model=affinity.model,
        component=affinity.component,
        now=now,
    )
    if affinity.ends and affinity.session is not None and isinstance(picked, Routed):
        router.sequence_ends(affinity.session)
    return picked
