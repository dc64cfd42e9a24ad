"""The target models of multi-model endpoints: lists, loading, unloading, pins, and explanations.

Nothing is stored here. Every answer is put together at that moment: the variants' prefixes list
what exists, the hosts know what is loaded, and the database has the pins. The gateway chooses the
hosts for a load (`hosts_for`), so that calls go where the model was loaded. Each host decides by
itself what it evicts and refuses.

`rows_of` is pure: it gives one line per model from what its prefix and its hosts report. A model is
loaded if any host has it loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from penstock.artifacts.model_prefix import ModelEntry, ModelPrefix, not_found
from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.control.instances.instance_client import ANSWER_S, InstanceClient, Json
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import READY, RUNNING
from penstock.core.deployment.served_targets import ServedTarget
from penstock.errors import CallerError, NotNowError, PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModelHost:
    """A ready copy that hosts target models."""

    variant: str
    instance_id: str
    copy: int
    client: InstanceClient | None

    async def call(self, *, timeout_s: float = ANSWER_S, **op: Any) -> Json:
        """Raises what `InstanceClient.call` raises."""
        if self.client is None:
            raise NotNowError("instance-gone", f"instance {self.instance_id} is gone")
        reply = await self.client.call({"copy": self.copy} | op, timeout_s=timeout_s)
        reply.pop("ok", None)
        return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModel:
    """A multi-model endpoint and its current hosts."""

    endpoint: str  #: the name as it was given at creation; lookups ignore case
    sources: tuple[ModelSource, ...]  #: the model prefixes of its multi-model variants
    hosts: tuple[TargetModelHost, ...]
    targets: tuple[ServedTarget, ...] = ()  #: those that other artifacts answer for, or are to

    def artifact_of(self, model: str) -> str:
        """The artifact that answers for a target model."""
        return next((one.serves for one in self.targets if one.target == model), model)


def multi_model_of(
    ledger: EndpointLedger, client: Callable[[str], InstanceClient | None]
) -> MultiModel | None:
    """None if the endpoint has no multi-model variant."""
    deployment = ledger.desired.shown
    variants = deployment.hosted if deployment is not None else ()
    models = [one.model for one in variants if one.model is not None]
    sources = dict.fromkeys(one for one in models if one.multi_model)
    if not sources:
        return None
    hosts = [
        TargetModelHost(
            variant=entry.variant,
            instance_id=entry.instance_id,
            copy=copy.copy,
            client=client(entry.instance_id),
        )
        for entry, copies in ledger.held()
        for copy in copies
        if entry.phase == RUNNING and copy.phase == READY and copy.component.model.multi_model
    ]
    return MultiModel(
        endpoint=ledger.desired.endpoint,
        sources=tuple(sources),
        hosts=tuple(hosts),
        targets=ledger.desired.targets,
    )


#: A model's state is the first of these that any of its hosts reports.
STATES = ("loaded", "loading", "unloading", "failed", "unloaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    model: str
    state: str  #: one of STATES
    #: size at its prefix; None: it is loaded, and no longer at the prefix
    artifact_bytes: int | None
    memory_bytes: int  #: memory on all hosts, as measured when it was loaded
    instances: tuple[str, ...]  #: instances that have it loaded
    pinned: bool
    calls: int  #: since its hosts started
    last_call_s: float | None  #: seconds since the last call; None: never called
    why: str  #: its last event, with the reason
    error: Mapping[str, Any] | None  #: the error of the last attempt to load it
    answered_by: str = ""  #: the artifact that answers for it; "" = its own


def rows_of(
    lists: Iterable[Iterable[ModelEntry]], told: Mapping[str, Iterable[Mapping[str, Any]]]
) -> list[Row]:
    """One row per model, in the order of names.

    Args:
        lists: the models at each prefix.
        told: instance -> what its host reports.
    """
    sizes: dict[str, int] = {}
    for entries in lists:
        for entry in entries:
            sizes.setdefault(entry.name, entry.size_bytes)
    hosted: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for instance, answer in told.items():
        for one in answer:
            hosted.setdefault(str(one["model"]), []).append((instance, one))
    return [
        _row(name, sizes.get(name), hosted.get(name, []))
        for name in sorted(sizes.keys() | hosted.keys())
    ]


def _row(name: str, size: int | None, hosted: list[tuple[str, Mapping[str, Any]]]) -> Row:
    by_state = sorted((_rank(one), instance) for instance, one in hosted)
    state = STATES[by_state[0][0]] if by_state else "unloaded"
    ones = [one for _, one in hosted]
    loaded = [(instance, one) for instance, one in hosted if one.get("state") == "loaded"]
    ago = [one["called_ago_s"] for one in ones if one.get("called_ago_s") is not None]
    errors = [one["error"] for one in ones if one.get("error")]
    return Row(
        model=name,
        state=state,
        artifact_bytes=size,
        memory_bytes=sum(_taken(one) for _, one in loaded),
        instances=tuple(sorted(instance for instance, _ in loaded)),
        pinned=any(one.get("pinned") for one in ones),
        calls=sum(int(one.get("hits", 0)) + int(one.get("misses", 0)) for one in ones),
        last_call_s=min(ago, default=None),
        why=_why(ones),
        error=errors[0] if errors and state != "loaded" else None,
    )


def _rank(one: Mapping[str, Any]) -> int:
    state = one.get("state", "unloaded")
    return STATES.index(state) if state in STATES else len(STATES) - 1


def _taken(one: Mapping[str, Any]) -> int:
    taken = one.get("taken") or {}
    return int(taken.get("host_bytes", 0)) + int(taken.get("accelerator_bytes", 0))


def _why(ones: list[Mapping[str, Any]]) -> str:
    """The latest event that any host reports."""
    events = [one["last_event"] for one in ones if one.get("last_event")]
    if not events:
        return ""
    latest = min(events, key=lambda event: float(event.get("ago_s", 0.0)))
    what, why = str(latest.get("what", "")), str(latest.get("why", ""))
    made_room_for = latest.get("made_room_for")
    words = f"{what}: {why}" if why else what
    return f"{words} (for {made_room_for})" if made_room_for else words


#: Default limit of a load, in s: SageMaker's limit for the start of a container.
LOAD_S_MAX: Final = 3600.0
#: Rows per call of a host, which answers requests meanwhile: it takes a few milliseconds.
_HOST_ROWS: Final = 500
#: The most rows per page; callers ask for an index page by page.
PAGE_MAX: Final = 10_000
#: Added to the host's own limit, in s: its answer has to travel.
_TRAVEL_S: Final = 5.0
#: Prefixes kept open, the last used: listing an open bucket is cheaper than opening it again.
_PREFIXES_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModelPage:
    rows: list[Row]
    next_after: str  #: pass it as `after`; empty: this was the last page
    prefix_error: PenstockError | None  #: why the prefix could not be listed


class Endpoints(Protocol):
    """The part of the control plane that this file calls."""

    def multi_model(self, endpoint: str) -> MultiModel | None:
        """None for an endpoint without a multi-model variant. Raises NotFound."""


class TargetModels:
    """All methods raise CallerError (`endpoint-not-found`, `not-multi-model`)."""

    def __init__(
        self,
        endpoints: Endpoints,
        hosts_for: Callable[[str, str], Iterable[int]],
        settings: ArtifactSettings,
        record: TargetModelRecord,
    ) -> None:
        """`hosts_for`: (endpoint, model) -> the copies that should load it."""
        self._endpoints = endpoints
        self._hosts_for = hosts_for
        self._settings = settings
        self._record = record
        self._prefixes: dict[ModelSource, ModelPrefix] = {}

    async def index(self, endpoint: str, *, after: str = "", limit: int = 100) -> TargetModelPage:
        """The models in the order of names: those at the prefix, and those that hosts know. If the
        prefix can't be listed, loaded models are still shown."""
        found = self._found(endpoint)
        limit = max(1, min(limit, PAGE_MAX))
        one_more = limit + 1  # shows whether more follow
        entries, hosts = await asyncio.gather(
            asyncio.gather(*(self._listing(one, after, one_more) for one in found.sources)),
            asyncio.gather(*(_known_to(host, after, one_more) for host in found.hosts)),
        )
        error = next((one for one in entries if isinstance(one, PenstockError)), None)
        lists = [one for one in entries if not isinstance(one, PenstockError)]
        rows = rows_of(
            lists,
            {host.instance_id: told for host, told in zip(found.hosts, hosts, strict=True)},
        )
        pins = set(await self._record.pins(found.endpoint))
        page = [
            replace(
                row,
                pinned=row.pinned or row.model in pins,
                answered_by=_other(row.model, found.artifact_of(row.model)),
            )
            for row in rows[:limit]
        ]
        more = len(rows) > limit
        return TargetModelPage(
            rows=page, next_after=page[-1].model if more else "", prefix_error=error
        )

    async def load(
        self, endpoint: str, model: str, *, wait_s: float = LOAD_S_MAX, if_room: bool = False
    ) -> list[dict[str, Any]]:
        """Loads a model where its calls will go, or the artifact that answers for it; returns when
        that is loaded, in each variant.

        `if_room`: only if it fits into free memory, and nothing is evicted for it. Its size is what
        it took before, or else what the largest other model took. One dict per host: instance,
        variant, state (`loaded` | `no-room`).

        Raises whatever refuses it, and NotNowError (`target-model-not-ready`, `no-hosts`).
        """
        found = self._found(endpoint)
        model = found.artifact_of(model)
        copies = set(self._hosts_for(found.endpoint, model))
        hosts = [host for host in found.hosts if host.copy in copies]
        if not hosts:
            raise NotNowError(
                "no-hosts",
                f"endpoint {found.endpoint} has no host that takes target models now",
                hint="Wait until it is InService.",
                retry_after_s=1.0,
            )
        if not if_room:
            await self._record.clear(found.endpoint, model)
        return list(await asyncio.gather(*(_load(host, model, wait_s, if_room) for host in hosts)))

    async def unload(
        self, endpoint: str, model: str, *, wait_s: float = LOAD_S_MAX, dependents: bool = False
    ) -> None:
        """Unloads a model everywhere; returns when it has answered its requests and is gone.
        `dependents`: the models of an ensemble's steps, too."""
        more = {"dependents": True} if dependents else {}
        model = self._found(endpoint).artifact_of(model)
        await self._everywhere(endpoint, model, wait_s, unload=model, wait_s=wait_s, **more)

    async def pin(self, endpoint: str, model: str, pinned: bool = True) -> None:
        """Pins or unpins: no host evicts a pinned model, also not one that starts later. Loads
        nothing. Raises CallerError (`target-model-not-found`) before anything is pinned."""
        found = self._found(endpoint)
        self._checked(found, model)
        if pinned:
            await self._require(found, model)
        async with self._record.telling:
            await self._record.pin(found.endpoint, model, pinned)
            await self._everywhere(endpoint, model, 0.0, pin=model, pinned=pinned)

    async def require(self, endpoint: str, model: str) -> None:
        """Raises CallerError (`target-model-not-found`) where no prefix has the model."""
        found = self._found(endpoint)
        self._checked(found, model)
        await self._require(found, model)

    async def _require(self, found: MultiModel, model: str) -> None:
        there = await asyncio.gather(*(self._artifact(one, model) for one in found.sources))
        if there and all(one["state"] == "missing" for one in there):
            raise not_found(model)

    async def explain(self, endpoint: str, model: str) -> dict[str, Any]:
        """Whether the model exists at the prefix, and for each host why it is loaded there or not,
        since when, and what the load took. `described`: what it takes and gives; {} where no host
        has had it."""
        found = self._found(endpoint)
        self._checked(found, model)
        answers = found.artifact_of(model)
        told, known, *there = await asyncio.gather(
            _all_of(found.hosts, op="explain", model=model),
            self.describe(endpoint, model),
            *(self._artifact(source, model) for source in found.sources),
        )
        return {
            "endpoint": found.endpoint,
            "model": model,
            "answered_by": _other(model, answers),
            "described": next((one["described"] for one in known if one.get("described")), {}),
            "artifacts": there,
            "hosts": [_story(host, one) for host, one in told],
        }

    async def describe(self, endpoint: str, model: str) -> list[dict[str, Any]]:
        """What each host knows for callers: `loaded`, `described`, `requests`, `batches`, of the
        artifact that answers."""
        found = self._found(endpoint)
        self._checked(found, model)
        called = found.artifact_of(model)
        return [told for _, told in await _all_of(found.hosts, op="models", describe=called)]

    async def _everywhere(self, endpoint: str, model: str, timeout_s: float, **op: Any) -> None:
        found = self._found(endpoint)
        self._checked(found, model)
        timeout_s = max(ANSWER_S, timeout_s + _TRAVEL_S)
        calls = [host.call(timeout_s=timeout_s, op="models", **op) for host in found.hosts]
        for told in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(told, BaseException):
                raise told

    def _found(self, endpoint: str) -> MultiModel:
        found = self._endpoints.multi_model(endpoint)
        if found is None:
            raise CallerError(
                "not-multi-model",
                f"endpoint {endpoint} is not a multi-model endpoint",
                hint="Its model is loaded while the endpoint exists. Create the model with Mode"
                " MultiModel to load and unload target models.",
            )
        return found

    def _checked(self, found: MultiModel, model: str) -> None:
        """Raises CallerError for a name that can't be one."""
        for source in found.sources:
            self._prefix(source).resolve(model)

    async def _listing(
        self, source: ModelSource, after: str, limit: int
    ) -> list[ModelEntry] | PenstockError:
        try:
            return await asyncio.to_thread(self._prefix(source).list, after=after, limit=limit)
        except PenstockError as error:
            return error

    async def _artifact(self, source: ModelSource, model: str) -> dict[str, Any]:
        told: dict[str, Any] = {"uri": shown_uri(source.uri), "state": "there"}
        try:
            if await asyncio.to_thread(self._prefix(source).stamp, model) is None:
                told["state"] = "missing"
        except PenstockError as error:
            told |= {"state": "unusable", "error": error.to_dict()}
        return told

    def _prefix(self, source: ModelSource) -> ModelPrefix:
        prefix = self._prefixes.get(source)
        if prefix is None:
            prefix = ModelPrefix(
                source.uri,
                self._settings,
                dict(source.environment),
                image=source.image,
                compressed=source.compressed,
            )
            if len(self._prefixes) >= _PREFIXES_MAX:
                self._prefixes.clear()
            self._prefixes[source] = prefix
        return prefix


def _other(model: str, artifact: str) -> str:
    return "" if artifact == model else artifact


async def _known_to(host: TargetModelHost, after: str, limit: int) -> list[Json]:
    """What a host knows of models, in parts small enough not to delay its requests. Empty if the
    host does not answer."""
    rows: list[Json] = []
    while len(rows) < limit:
        count = min(_HOST_ROWS, limit - len(rows))
        asked = {"after": after, "limit": count}
        try:
            told = (await host.call(op="models", list=asked))["models"]
        except NotNowError:
            return []
        rows += told
        if len(told) < count:
            break
        after = told[-1]["model"]
    return rows


def _story(host: TargetModelHost, told: Json) -> dict[str, Any]:
    batcher = told.pop("copy", None)
    named = {"instance": host.instance_id, "copy": host.copy, "variant": host.variant}
    return named | told | ({"batcher": batcher} if batcher is not None else {})


async def _load(host: TargetModelHost, model: str, wait_s: float, if_room: bool) -> dict[str, Any]:
    told: Mapping[str, Any] = await host.call(
        timeout_s=wait_s + _TRAVEL_S, op="models", load=model, wait_s=wait_s, if_room=if_room
    )
    return {"instance": host.instance_id, "variant": host.variant} | dict(told)


async def _all_of(
    hosts: Iterable[TargetModelHost], **op: Any
) -> list[tuple[TargetModelHost, Json]]:
    """The answer of each host; hosts that do not answer are left out. Raises the caller's
    errors."""
    hosts = list(hosts)
    told = await asyncio.gather(*(host.call(**op) for host in hosts), return_exceptions=True)
    found = []
    for host, one in zip(hosts, told, strict=True):
        if isinstance(one, NotNowError):
            continue
        if isinstance(one, BaseException):
            raise one
        found.append((host, one))
    return found
