"""The driver of `core/jobs/asynchronous`: accepts requests, has them computed, writes outputs.

A request's life:

1. `accept`: the request is committed with its body, together with others that arrived meanwhile.
   Only then its caller gets the answer.
2. The state machine of its endpoint says when it is sent; where no copy is ready, capacity is
   requested.
3. Sent: its body is read, from the record or from its place, as soon as there is room in memory. It
   goes through the gateway's dispatcher like any other request, after all others in the batches of
   its copy.
4. Answered: the output is written, whole or not at all. Where its store fails for now, the answer
   is kept in memory (as far as there is room) and written again when the machine says so.
5. In one transaction the request leaves the record and its notification enters it. This happens
   only after its outcome is written: an output, or the object of its failure.

If the process dies between two steps, the next start finds the request in the record and repeats
them: the output is the same object. In memory are only the windows of the machines and the bodies
of requests that are being computed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from penstock.clock import Clock
from penstock.control.loop import DriverLoop
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.deployment import AsyncSpec, EndpointRoutes
from penstock.core.jobs.asynchronous import UNWRITTEN_CODE, AsyncQueue
from penstock.core.jobs.asynchronous_actions import (
    Action,
    FailRequest,
    Fetch,
    FetchOverdue,
    QueueSpec,
    Send,
    Write,
)
from penstock.core.request.admission import rows_together
from penstock.errors import InternalError, NotNowError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.refusals import endpoint_not_found
from penstock.jobs.asynchronous import outcome, rows
from penstock.jobs.asynchronous.notifier import Notifier
from penstock.jobs.asynchronous.outcome import Commits, Published
from penstock.jobs.asynchronous.rows import AsyncRequest, Ended, Entered, QueueId
from penstock.jobs.asynchronous.work import RequestWork, until_done
from penstock.metrics.item_failures import apart
from penstock.wire.frames import Reply

_log = logging.getLogger(__name__)

_LOOP: Final = "asynchronous"  #: the name of this loop in the count of failures
#: How often copies are looked at; requests are sent as soon as something happens
LOOK_EVERY_S: Final = 1.0
#: Requests at once per copy, where a copy does not report a number.
_CONCURRENCY: Final = 4
_CONCURRENCY_MOST: Final = 64

CapacityWanted = Callable[[str, str, str, int], None]


class _Queue:
    """The queue of one endpoint, and the errors of its requests."""

    def __init__(self, ident: QueueId, backlog: int) -> None:
        self.id = ident
        self.machine = AsyncQueue(QueueSpec(concurrency_max=_CONCURRENCY), backlog=backlog)
        #: Errors of requests whose failure is not recorded yet
        self.errors: dict[int, PenstockError] = {}
        self.answers: dict[int, Reply] = {}  #: answers that could not be written yet
        #: True: the endpoint was out of sight, and may be another one of the same name.
        self.unsure = True


class AsynchronousDriver:
    """Asynchronous requests of one server. `start`, then `close`."""

    def __init__(
        self,
        *,
        database: StoreThread,
        dispatcher: Dispatcher,
        work: RequestWork,
        notifier: Notifier,
        published: Published,
        clock: Clock,
        configured: Callable[[str], AsyncSpec | None],
        capacity_wanted: CapacityWanted,
    ) -> None:
        """
        Args:
            configured: endpoint -> its AsyncInferenceConfig; None where it has none.
            capacity_wanted: called with the number of requests that wait for an endpoint without a
                copy.
        """
        self._database = database
        self._dispatcher = dispatcher
        self._work = work
        self._notifier = notifier
        self._published = published
        self._clock = clock
        self._configured = configured
        self._capacity_wanted = capacity_wanted
        self._queues: dict[QueueId, _Queue] = {}
        self._entering: Commits[Entered, QueueId | None] = Commits(self._enter)
        self._ending: Commits[Ended, None] = Commits(self._end)
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_at = 0.0  #: next look at the copies, monotonic s
        self._loop = DriverLoop(
            "asynchronous", self._turn, fault="asynchronous requests", retry_s=LOOK_EVERY_S
        )

    async def start(self) -> None:
        """Resumes every request that is on record."""
        for ident, backlog in (await self._database.call(rows.queues)).items():
            self._queues[ident] = _Queue(ident, backlog)
        self._notifier.start()
        self._loop.start()

    async def close(self) -> None:
        """Cancels running work, which the next start repeats. Idempotent."""
        await self._loop.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._entering.close()
        await self._ending.close()
        await self._notifier.close()
        self._work.close()
        self._published.flush(self._clock.wall())

    async def accept(self, request: AsyncRequest, body: bytes) -> None:
        """Returns once the request is on record; from then on it is certain to be processed.

        Raises PenstockError: `endpoint-not-found`, or what the database raises.
        """
        queue = await self._entering.put(Entered(request, body))
        if queue is None:
            raise endpoint_not_found(request.endpoint)

    def knows(self, topic: str) -> bool:
        """Whether notifications to this topic have a URL."""
        return self._notifier.knows(topic)

    async def check_writable(self, uri: str) -> None:
        """Returns if outputs can be written below a prefix.

        Raises PenstockError: `output-unwritable`, `output-unreachable`.
        """
        await self._work.check_writable(uri)

    def backlog(self, endpoint: str) -> int:
        """How many requests of an endpoint have no outcome yet."""
        return sum(one.machine.backlog for one in self._queues.values() if one.id[0] == endpoint)

    def snapshot(self) -> list[dict[str, Any]]:
        """JSON-ready: the queue of each endpoint that had requests since the server's start."""
        queues = sorted(self._queues.values(), key=lambda one: one.id)
        return [{"endpoint": one.id.endpoint} | one.machine.snapshot() for one in queues]

    # What comes in

    async def _enter(self, entered: Sequence[Entered]) -> Sequence[QueueId | None]:
        taken = await self._database.call(rows.enter, entered)
        counts: dict[QueueId, int] = {}
        for one in taken:
            if one is not None:
                counts[one] = counts.get(one, 0) + 1
        now = self._clock.wall()
        for ident, count in counts.items():
            queue = self._queues.get(ident)
            if queue is None:
                queue = self._queues[ident] = _Queue(ident, 0)
                self._look_at = 0.0
            self._carry_out(queue, queue.machine.accepted(count, now=now))
        return taken

    # The loop: copies and time

    async def _turn(self) -> float:
        now = self._clock.monotonic()
        try:
            if now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                await self._look()
        finally:
            self._time()
        return self._until()

    def _until(self) -> float:
        """Seconds until the next action, if nothing happens before."""
        wall = self._clock.wall()
        due: list[float | None] = []
        for queue in self._queues.values():
            with apart(_LOOP, queue.id.endpoint):
                due.append(queue.machine.next_deadline())
        soonest = min((at - wall for at in due if at is not None), default=LOOK_EVERY_S)
        return max(min(soonest, self._look_at - self._clock.monotonic()), 0.0)

    def _time(self) -> None:
        for queue in list(self._queues.values()):
            with apart(_LOOP, queue.id.endpoint):
                due = queue.machine.next_deadline()
                now = self._clock.wall()
                if due is not None and now >= due:
                    self._carry_out(queue, queue.machine.on_timer(now=now))

    async def _look(self) -> None:
        """Looks at each endpoint's copies. Requests of endpoints that are gone are dropped."""
        for queue in list(self._queues.values()):
            with apart(_LOOP, queue.id.endpoint, but=(NotNowError,)):
                await self._look_at_copies(queue)
        await self._publish()

    async def _look_at_copies(self, queue: _Queue) -> None:
        endpoint = queue.id.endpoint
        routes = self._dispatcher.routes(endpoint)
        if routes is None or queue.unsure:
            if not await self._database.call(rows.exists, queue.id):
                self._close(queue)
                return
            queue.unsure = routes is None
        # Without a copy, capacity is wanted as long as something waits, so it may be requested
        # again.
        spec, ready = self._spec(endpoint, routes), self._dispatcher.ready_count(endpoint)
        now = self._clock.wall()
        self._carry_out(queue, queue.machine.configure(spec, ready=ready, now=now))
        if not ready and queue.machine.backlog:
            self._capacity_wanted(endpoint, "", "", queue.machine.backlog)

    def _close(self, queue: _Queue) -> None:
        now = self._clock.wall()
        self._carry_out(queue, queue.machine.close("endpoint-deleted", now=now))
        if not queue.machine.backlog:
            del self._queues[queue.id]

    async def _publish(self) -> None:
        now = self._clock.wall()
        if not self._published.is_due(now):
            return
        for routes in self._dispatcher.published():
            if routes.asynchronous:
                with apart(_LOOP, routes.endpoint, but=(NotNowError,)):
                    await self._publish_one(routes.endpoint, now)
        self._published.put_all(now)

    async def _publish_one(self, name: str, now: float) -> None:
        oldest = [
            await self._database.call(rows.oldest, one.id)
            for one in self._queues.values()
            if one.id.endpoint == name and one.machine.backlog
        ]
        age_s = now - min((at for at in oldest if at is not None), default=now)
        ready = self._dispatcher.ready_count(name)
        self._published.put(name, backlog=self.backlog(name), ready=ready, age_s=age_s, now=now)

    def _spec(self, endpoint: str, routes: EndpointRoutes | None) -> QueueSpec:
        spec = self._configured(endpoint)
        asked = spec.concurrency_max if spec is not None else 0
        return QueueSpec(concurrency_max=asked or _keeps_busy(routes))

    # What the machines say

    def _carry_out(self, queue: _Queue, actions: list[Action]) -> None:
        for one in actions:
            match one:
                case Send():
                    self._begin(self._send(queue, one))
                case Write(number=number):
                    self._begin(self._write_again(queue, number))
                case FailRequest():
                    self._begin(self._fail(queue, one))
                case Fetch():
                    self._begin(self._fetch(queue, one))
                case FetchOverdue():
                    self._begin(self._fetch_overdue(queue, one))
                case _:
                    # Published at once, so that alarms see even a short backlog
                    self._published.at_once()
                    self._look_at = 0.0
                    self._capacity_wanted(queue.id.endpoint, "", "", one.waiting)
        self._loop.wake()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("work on an asynchronous request failed", exc_info=task.exception())

    async def _fetch(self, queue: _Queue, asked: Fetch) -> None:
        found = await self._work.insist(rows.after, queue.id, asked.after, asked.count)
        whole = len(found) == asked.count
        now = self._clock.wall()
        self._carry_out(queue, queue.machine.loaded(found, whole=whole, now=now))

    async def _fetch_overdue(self, queue: _Queue, asked: FetchOverdue) -> None:
        found = await self._work.insist(rows.overdue, queue.id, self._clock.wall(), asked.count)
        self._carry_out(queue, queue.machine.overdue(found, now=self._clock.wall()))

    # One request

    async def _send(self, queue: _Queue, asked: Send) -> None:
        number = asked.number
        try:
            request = await self._work.request(number)
            if request is None:  # its end was committed after all
                self._carry_out(queue, queue.machine.ended(number, now=self._clock.wall()))
                return
            reply = await self._work.computed(
                request, number, asked.timeout_s, suspect=asked.suspect
            )
        except Exception as error:
            self._failed(queue, number, _told(error, queue))
            return
        self._carry_out(queue, queue.machine.answered(number, now=self._clock.wall()))
        await self._write(queue, request, number, reply)

    async def _write_again(self, queue: _Queue, number: int) -> None:
        reply = queue.answers.pop(number)
        self._work.let_go(reply)
        request = await self._work.request(number)
        if request is None:  # its end was committed after all
            self._carry_out(queue, queue.machine.ended(number, now=self._clock.wall()))
            return
        await self._write(queue, request, number, reply)

    async def _write(self, queue: _Queue, request: AsyncRequest, number: int, reply: Reply) -> None:
        try:
            notification = await self._work.written(request, number, reply)
        except Exception as cause:
            error = _told(cause, queue)
            if error.code != UNWRITTEN_CODE:
                self._failed(queue, number, error)
                return
            _log.warning("%s: %s", error.code, error.message)
            queue.errors[number] = error
            kept = self._work.keep(reply)
            if kept:
                queue.answers[number] = reply
            actions = queue.machine.unwritten(number, kept=kept, now=self._clock.wall())
            self._carry_out(queue, actions)
            return
        self._published.processed(queue.id.endpoint, self._clock.wall() - request.accepted)
        await self._ended(queue, Ended(number, notification))

    def _failed(self, queue: _Queue, number: int, error: PenstockError) -> None:
        queue.errors[number] = error
        self._tell_failed(queue, number, error)

    def _tell_failed(self, queue: _Queue, number: int, error: PenstockError) -> None:
        actions = queue.machine.failed(
            number,
            family=error.family,
            code=error.code,
            retry_after_s=error.retry_after_s,
            now=self._clock.wall(),
        )
        self._carry_out(queue, actions)

    async def _fail(self, queue: _Queue, asked: FailRequest) -> None:
        number = asked.number
        self._drop_answer(queue, number)
        request = await self._work.request(number)
        notification = None
        if request is not None:
            error = outcome.failure_of(asked.reason, queue.errors.get(number), request)
            try:
                await self._work.failure_written(request, number, asked.reason, error)
            except Exception as cause:
                unwritten = _told(cause, queue)
                if not asked.last:
                    _log.warning("%s: %s", unwritten.code, unwritten.message)
                    self._tell_failed(queue, number, unwritten)
                    return
                _log.error(
                    "request %s of %s is given up: its outcome (%s) could not be written: %s",
                    request.inference_id, queue.id.endpoint, error.code, unwritten.message,
                )  # fmt: skip
                self._published.given_up(queue.id.endpoint)
            notification = self._work.failure_told(request, number, asked.reason, error)
            self._published.failed(queue.id.endpoint, asked.reason)
        await self._ended(queue, Ended(number, notification))

    def _drop_answer(self, queue: _Queue, number: int) -> None:
        reply = queue.answers.pop(number, None)
        if reply is not None:
            self._work.let_go(reply)

    async def _ended(self, queue: _Queue, ended: Ended) -> None:
        await until_done(lambda: self._ending.put(ended))
        queue.errors.pop(ended.number, None)
        if ended.notification is not None:
            self._notifier.wake()
        self._carry_out(queue, queue.machine.ended(ended.number, now=self._clock.wall()))

    async def _end(self, ended: Sequence[Ended]) -> Sequence[None]:
        await self._database.call(rows.end, ended)
        return [None] * len(ended)


def _told(error: Exception, queue: _Queue) -> PenstockError:
    """The error of a request; an exception that is none of ours is logged."""
    if isinstance(error, PenstockError):
        return error
    _log.error("an asynchronous request of %s failed", queue.id.endpoint, exc_info=error)
    return InternalError("internal", "It could not be carried out.")


def _keeps_busy(routes: EndpointRoutes | None) -> int:
    """How many requests keep a copy busy: two full batches for each of its lanes."""
    variants = routes.variants if routes is not None else ()
    wanted = [2 * one.lanes * rows_together(one.model) for one in variants if one.copies]
    return min(max(wanted, default=_CONCURRENCY), _CONCURRENCY_MOST)
