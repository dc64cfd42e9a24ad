"""Fetches, loads and ends models as the residency decides, and reports the results to it.

A model's life: fetch -> load -> a copy that takes requests -> end, or a crash. The residency
decides which of these happens, and when; the host (`host.py`) handles callers that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from penstock.artifacts.models.index import own_name
from penstock.clock import Clock
from penstock.core.deployment.slot_retries import is_death, is_permanent
from penstock.core.residency import Action, Footprint, Residency
from penstock.errors import NotNowError, PenstockError
from penstock.instance import replies
from penstock.instance.batcher_driver import CallAt
from penstock.instance.copy import Elsewhere
from penstock.instance.engines.cached import CachedBatches
from penstock.instance.engines.lane_threads import LaneEvents
from penstock.instance.models.calls import TargetCalls
from penstock.instance.models.explicit import Explicit
from penstock.instance.models.idle_warm_up import IdleWarmUpDriver
from penstock.instance.models.loader import Brought, Loader
from penstock.instance.models.target import HostedTarget
from penstock.instance.models.work_note import WorkNote
from penstock.wire.work_note import NotedModel

_LOG = logging.getLogger(__name__)

#: The reason with which a model is gone whose worker died and did not come back.
_CRASHED = "crashed"

#: The code where a foreign server answered 507.
MEMORY_FULL_CODE = "model-memory-full"


class LoadsHost(Protocol):
    """The host for which models are loaded."""

    state: str

    def carry_out(self, actions: list[Action]) -> None: ...
    def admit(self, target: HostedTarget) -> None: ...
    def idle(self, target: HostedTarget) -> None: ...
    def ask_for_parked(self, target: HostedTarget) -> None: ...
    def tell(self, loaded: list[str] | None = None, gone: list[str] | None = None) -> None: ...


class LoadsDriver:
    def __init__(
        self,
        host: LoadsHost,
        residency: Residency,
        loader: Loader,
        explicit: Explicit,
        warm_up: IdleWarmUpDriver,
        calls: TargetCalls,
        *,
        used: Footprint,
        clock: Clock,
        call_at: CallAt,
        elsewhere: Elsewhere,
        note: WorkNote,
    ) -> None:
        """`used`: the host's memory now."""
        self.used = used  #: the host's memory, as measured last
        self.loads = 0  #: number of loads so far
        self._unloads = 0
        self._host = host
        self._residency = residency
        self._loader = loader
        self._explicit = explicit
        self._warm_up = warm_up
        self._calls = calls
        self._clock = clock
        self._call_at = call_at
        self._elsewhere = elsewhere
        self._note = note
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()  #: running unloads

    async def prepare(self, target: HostedTarget) -> None:
        started = self._now()
        try:
            brought = target.brought = await self._loader.prepare(target.name)
        except Exception as error:
            await self._failed(target, error, "preparing")
            return
        if brought.model.digest != target.digest:
            target.taken = None  # that was measured for other content
        target.stamp, target.digest = brought.stamp, brought.model.digest
        now = target.looked_at = self._now()
        target.counts.took("download", now - started)
        self._host.carry_out(
            self._residency.prepared(
                target.name,
                brought.expected.need,
                now=now,
                prepare_s=now - started,
                artifact=target.digest,
                measured=brought.expected.measured,
                sized=brought.expected.sized,
            )
        )

    async def load(self, target: HostedTarget, *, alone: bool) -> None:
        brought = target.brought
        assert brought is not None, "prepared before it is loaded"
        events = LaneEvents()
        target.mark = self._note.mark(NotedModel(target.name, target.digest))
        try:
            took = await self._loader.load(
                target.name, brought, events, kept=_known(target, brought), alone=alone
            )
        except Exception as error:
            target.mark.remove()
            if isinstance(error, NotNowError) and error.code == MEMORY_FULL_CODE:
                self.used = await self._loader.measured()
                self._host.carry_out(
                    self._residency.full(target.name, now=self._now(), used=self.used)
                )
            else:
                await self._failed(target, error, "loading")
            return
        self.loads += 1
        target.loaded, target.error = took.loaded, None
        if took.loaded.pids():  # it runs in another process, and can only end that one
            target.mark.remove()
        target.mark.works(False)
        target.described, target.taken = took.loaded.described, took.model
        target.steps = brought.steps
        target.copy = took.loaded.copy(
            target.number,
            clock=self._clock,
            call_at=self._call_at,
            elsewhere=self._elsewhere,
            on_state=partial(self._copy_state, target),
            on_idle=partial(self._host.idle, target),
            on_answer=target.counts.answered,
        )
        target.counts.cached = isinstance(took.loaded.work, CachedBatches)
        target.counts.loaded(took.model, took.seconds, self._now())
        events.attach(target.copy)
        self.used = took.used
        _LOG.info("model %s loaded in %.3f s", target.name, took.seconds)
        self._host.carry_out(
            self._residency.loaded(
                target.name,
                took.model,
                now=self._now(),
                load_s=took.seconds,
                used=took.used,
            )
        )
        self._explicit.loaded(target.name)
        if target.copy is not None:
            self._warm_up.loaded(target)
        if self._host.state != "closed":
            self._host.tell(loaded=[target.name])
        await self._load_others(target)

    async def _load_others(self, target: HostedTarget) -> None:
        """What its callers would wait for next."""
        wanted = (target.described or {}).get("wanted_models") or ()
        steps = [own_name(step) for step in target.steps]
        for name in await self._calls.wish(target.name, [*steps, *wanted]):
            _LOG.warning("model %s wants %s, which can't be loaded", target.name, name)

    async def _failed(self, target: HostedTarget, error: Exception, what: str) -> None:
        known = replies.as_error(error, f"{what} model {target.name}")
        if own_name(target.name) not in known.message:  # its file alone says little to others
            known.message = f"model {target.name}: {known.message}"
        self._explicit.ended(target.name)
        _LOG.warning("%s model %s: %s: %s", what, target.name, known.code, known.message)
        target.error = known
        target.counts.load_failed()
        used = self.used = await self._loader.measured()
        name, now, message = target.name, self._now(), known.message
        if is_death(known):
            actions = self._residency.crashed(name, now=now, used=used, message=message)
        else:
            target.failed, permanent = True, is_permanent(known)
            actions = self._residency.load_failed(
                name, now=now, message=message, permanent=permanent, used=used
            )
        self._host.carry_out(actions)

    def unload(self, target: HostedTarget, reason: str) -> None:
        target.counts.unloading(reason, target.run_us, self._now())
        copy, loaded = target.copy, target.loaded
        target.copy = target.loaded = target.brought = None
        self._warm_up.gone(target)
        if copy is not None:
            assert not copy.unanswered, "a model is not ended while it answers"
            target.keep_counts(copy)
            copy.close()
        task = self.begin(self._end(target, loaded, reason))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, target: HostedTarget, loaded: Any, reason: str) -> None:
        if self._host.state != "closed":
            self._host.tell(gone=[target.name])
        if loaded is not None:
            started = self._now()
            self.used = await self._loader.end(loaded)
            target.counts.took("unload", self._now() - started)
            del loaded
        else:
            self.used = await self._loader.measured()
        target.mark.remove()
        self._unloads += 1
        _LOG.info("model %s unloaded: %s", target.name, reason)
        self._explicit.ended(target.name)
        self._host.carry_out(self._residency.unloaded(target.name, now=self._now(), used=self.used))

    def _copy_state(self, target: HostedTarget, event: str, error: PenstockError | None) -> None:
        """Its worker died, came back, or will not come back."""
        _LOG.warning("model %s: %s", target.name, event)
        if event == "copy-ready":
            self._host.admit(target)
        elif event == "copy-failed":
            target.error = error
            self.begin(self._crashed(target))

    async def _crashed(self, target: HostedTarget) -> None:
        target.mark.remove()
        target.counts.unloading(_CRASHED, target.run_us, self._now())
        copy, loaded = target.copy, target.loaded
        target.copy = target.loaded = target.brought = None
        self._warm_up.gone(target)
        self._host.tell(gone=[target.name])
        if copy is not None:
            target.keep_counts(copy)
            copy.close()
        if loaded is not None:
            self.used = await self._loader.end(loaded)
        self._explicit.ended(target.name)
        now = self._now()
        self._host.carry_out(self._residency.crashed(target.name, now=now, used=self.used))
        self._host.ask_for_parked(target)

    async def make_room(self, name: str) -> bool:
        """A server has no memory to run a model: whether another model was unloaded for it."""
        before = self._unloads
        self.used = await self._loader.measured()
        self._host.carry_out(self._residency.full(name, now=self._now(), used=self.used))
        ends = list(self._ends)
        if ends:
            await asyncio.wait(ends)
        return self._unloads > before

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("hosting models failed", exc_info=task.exception())

    def _now(self) -> float:
        return self._clock.monotonic()

    async def give_up(self) -> None:
        """Cancels everything that has begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _known(target: HostedTarget, brought: Brought) -> Footprint:
    """The memory that it will be charged with, from its own record; else from its earlier load on
    this host; else from models of its size, or a rule."""
    expected = brought.expected
    return expected.kept if expected.measured else target.taken or expected.kept
