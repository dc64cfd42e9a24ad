"""A span through a copy's requests: for models whose bodies only they can read.

A few bodies are sent at once, and written in the order of the input. A body with several records
that fails is halved until the guilty records are alone (`core/blame/bisection.py`).
`core/jobs/invocations.py` decides what a failed attempt means. The parts of a streamed answer are
joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Final, NamedTuple, cast

from penstock.cleanup import shielded
from penstock.core.blame.bisection import Bisection, Refuse, RunPart
from penstock.core.blame.poison_requests import SUSPECTED
from penstock.core.jobs.invocations import RETRY_S, Tries, when_failed, when_returned_to_job
from penstock.core.jobs.spec import SpanDone
from penstock.errors import ModelError, NotNowError, PenstockError
from penstock.instance.copy import Copy, CopyCall, Outcome
from penstock.instance.request import Request
from penstock.instance.transform.call import SpanProgress, TransformCall
from penstock.records.at_work import AtWork
from penstock.records.bodies import Bodies
from penstock.records.formats.lines import RecordBlock
from penstock.records.parts import PartWriter
from penstock.runtimes.base import Returned
from penstock.wire.frames import encode_request_meta


class _GroupEntry(NamedTuple):
    """One record."""

    record: bytes
    block: RecordBlock
    number: int  #: its number in the span
    error: PenstockError | None  #: why the model can't get it; None: it can


class RecordGroup:
    """Records of one body, together with preceding records that the model can't get."""

    def __init__(
        self, entries: list[_GroupEntry], inputs: list[bytes], call: TransformCall
    ) -> None:
        self.entries = entries
        self.inputs = inputs  #: the model's inputs, for records that have one
        self._call = call
        self._of_input = [at for at, entry in enumerate(entries) if entry.error is None]
        self._errors = {at: entry.error for at, entry in enumerate(entries) if entry.error}
        self._outputs: dict[int, bytes] = {}
        #: Answers that are one output for several records, keyed by the first of them.
        self._whole: dict[int, tuple[bytes, int]] = {}

    @property
    def refused(self) -> int:
        return len(self._errors)

    def numbers(self, items: Iterable[int]) -> Iterator[int]:
        """Numbers in the span of the records with these inputs."""
        return (self.entries[self._of_input[item]].number for item in items)

    def take(self, items: tuple[int, ...], answer: bytes, bodies: Bodies) -> None:
        """Takes the answer to these inputs. Raises ModelError if it must be split by record and
        can't be."""
        places = [self._of_input[item] for item in items]
        if not bodies.needs_parts:
            self._whole[places[0]] = (answer, len(items))
            return
        parts = bodies.parted(answer, len(items))
        for place, part in zip(places, parts, strict=True):
            try:
                entry = self.entries[place]
                self._outputs[place] = self._call.output(entry.number, entry.record, part)
            except PenstockError as error:
                self._errors[place] = error

    def refuse(self, item: int, error: PenstockError) -> None:
        self._errors[self._of_input[item]] = error

    def write(self, writer: PartWriter) -> None:
        run: list[bytes] = []
        for place, entry in enumerate(self.entries):
            error = self._errors.get(place)
            if error is None and place in self._outputs:
                run.append(self._outputs[place])
                continue
            if run:
                writer.write(run)
                run = []
            if error is not None:
                offset = entry.block.offset_of(entry.number)
                writer.refuse(entry.number, offset, error.to_dict())
            elif place in self._whole:
                output, records = self._whole[place]
                writer.write([output], records=records)
        if run:
            writer.write(run)


def groups(call: TransformCall, bodies: Bodies) -> Generator[RecordGroup, None, None]:
    """Groups in the order of the input. Raises CallerError, NotNowError: see
    `RecordReader.blocks`."""
    waiting: deque[_GroupEntry] = deque()  #: records that are read and not yet in a group
    blocks = cast(Generator[RecordBlock, None, None], call.reader().blocks())

    def inputs() -> Iterator[bytes]:
        for block in blocks:
            for number, record in enumerate(block.records, block.first):
                try:
                    given = call.model_input(number, record)
                except PenstockError as error:
                    waiting.append(_GroupEntry(record, block, number, error))
                    continue
                waiting.append(_GroupEntry(record, block, number, None))
                yield given

    with closing(blocks):
        for found in bodies.grouped(inputs()):
            entries: list[_GroupEntry] = []
            left = len(found)
            while left:
                entries.append(waiting.popleft())
                left -= entries[-1].error is None
            yield RecordGroup(entries, found, call)
        if waiting:
            yield RecordGroup(list(waiting), [], call)


_numbers: Final = itertools.count(1)

#: Time between two checks whether a queued body has begun.
LOOK_S: Final = 0.25


async def ask(copy: Copy, meta: bytes, body: bytes, *, alone: bool, timeout_s: float) -> Outcome:
    """Sends one body to a copy. Returns the answer, an error (also where it did not come in time),
    or why it was given back.

    `timeout_s`: counted from when the model begins with it. Cancelling this call cancels the
    request.
    """
    call = CopyCall()
    request = call.begin(copy, next(_numbers), meta, body, alone=alone)
    try:
        return await _in_time(copy, request, call, timeout_s)
    finally:
        copy.cancel(request)


async def _in_time(copy: Copy, request: Request, call: CopyCall, timeout_s: float) -> Outcome:
    left_s = timeout_s
    looked = copy.clock.monotonic()
    while left_s > 0:
        await asyncio.wait((call.outcome,), timeout=min(left_s, LOOK_S))
        if call.outcome.done():
            return call.outcome.result()
        now = copy.clock.monotonic()
        if copy.has_begun(request):
            left_s -= now - looked
        looked = now
    return ModelError(
        "invocation-timeout",
        f"the model did not answer within {timeout_s:g} s",
        hint="Raise InvocationsTimeoutInSeconds, or send less at once: MaxPayloadInMB, "
        "BatchStrategy SingleRecord.",
    )


class BodySpan:
    """`run` once, on the event loop."""

    def __init__(
        self,
        call: TransformCall,
        copy: Copy,
        progress: SpanProgress,
        *,
        at_once: asyncio.Semaphore,
        ahead: int,
    ) -> None:
        """
        Args:
            at_once: shared by all spans of the copy: bounds the bodies that it has at once.
            ahead: bodies of this span that are read and not yet written.
        """
        self._call = call
        self._copy = copy
        self._progress = progress
        self._meta = encode_request_meta(call.asked)
        self._bodies = Bodies(call.spec)
        self._noted = AtWork(call.parts_uri, call.span) if call.noted else None
        self._at_once = at_once
        self._ahead = ahead
        self._asking = 0
        self._busy_since = 0.0

    async def run(self) -> SpanDone:
        """When it returns, the part is committed; when it raises, nothing of it is left.

        Raises CallerError where the data does not have the declared format, or a disk fails;
        NotNowError where the span was ended, or may pass later.
        """
        call = self._call
        writer = await asyncio.to_thread(PartWriter, call.parts_uri, call.span, call.spec.output)
        try:
            await self._run(writer)
            self._progress.check()
            summary = await asyncio.to_thread(writer.commit)
        finally:
            writer.abandon()
            if self._noted is not None:
                self._noted.close()
        return self._progress.done(summary)

    async def _run(self, writer: PartWriter) -> None:
        found = groups(self._call, self._bodies)
        pending: deque[tuple[RecordGroup, asyncio.Task[None]]] = deque()
        ended = asyncio.create_task(self._progress.wait())
        try:
            while (group := await asyncio.to_thread(next, found, None)) is not None:
                pending.append((group, asyncio.create_task(self._answered(group))))
                while len(pending) >= self._ahead:
                    await self._write_next(pending, ended, writer)
                self._progress.check()
            while pending:
                await self._write_next(pending, ended, writer)
        finally:
            tasks = [ended, *(task for _, task in pending)]
            for task in tasks:
                task.cancel()
            await shielded(_over(tasks, found))

    async def _write_next(
        self,
        pending: deque[tuple[RecordGroup, asyncio.Task[None]]],
        ended: asyncio.Task[None],
        writer: PartWriter,
    ) -> None:
        group, task = pending[0]
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        self._progress.check()
        pending.popleft()
        await task
        await asyncio.to_thread(group.write, writer)
        self._progress.records += len(group.entries)
        self._progress.refused += group.refused

    # One body

    async def _answered(self, group: RecordGroup) -> None:
        """Returns when all of its records have an output or an error."""
        if not group.inputs:
            return
        async with self._at_once:
            error = await self._ask_for(group, tuple(range(len(group.inputs))), Tries())
            if error is None:
                return
            halves = Bisection(range(len(group.inputs)))
            tries = Tries(past=SUSPECTED) if error.code == "model-worker-died" else Tries()
            actions = halves.begin()
            while actions:
                part: RunPart | None = None
                for action in actions:
                    if isinstance(action, Refuse):
                        assert error is not None
                        group.refuse(action.item, error)
                    else:
                        part = action
                if part is None:
                    return
                error = await self._ask_for(group, part.items, tries)
                actions = halves.passed() if error is None else halves.failed()

    async def _ask_for(
        self, group: RecordGroup, items: tuple[int, ...], tries: Tries
    ) -> PenstockError | None:
        """Keeps the answers, or returns why there are none. Raises NotNowError if the copy is gone
        or does not accept it."""
        body = self._bodies.joined([group.inputs[item] for item in items])
        noted = self._noted
        with nullcontext() if noted is None else noted.working(group.numbers(items)):
            answer = await self._final(body, tries)
        if isinstance(answer, PenstockError):
            return answer
        try:
            group.take(items, answer, self._bodies)
        except PenstockError as error:
            return error
        return None

    async def _final(self, body: bytes, tries: Tries) -> bytes | PenstockError:
        spec = self._call.spec
        while True:
            self._busy()
            try:
                outcome = await ask(
                    self._copy, self._meta, body, alone=tries.alone,
                    timeout_s=spec.invocation_timeout_s,
                )  # fmt: skip
            finally:
                self._idle()
            if isinstance(outcome, bytes):
                return outcome
            wait_s_max = spec.invocation_timeout_s
            if isinstance(outcome, Returned):
                step = when_returned_to_job(tries, outcome.reason, wait_s_max=wait_s_max)
                error: PenstockError = _died()
            else:
                step = when_failed(
                    tries, outcome, retries_max=spec.invocation_retries_max,
                    wait_s_max=wait_s_max, batched=self._copy.spec.rows_max > 1,
                )  # fmt: skip
                error = outcome
            tries = step.tries
            if step.do == "refuse":
                return error
            if step.do == "give-up":
                raise NotNowError(
                    "transform-copy-lost", f"the copy takes no more records: {step.reason}"
                )
            if step.do == "wait":
                await asyncio.sleep(RETRY_S)

    # How long bodies were computed: the copy's lanes are not visible here

    def _busy(self) -> None:
        if not self._asking:
            self._busy_since = time.monotonic()
        self._asking += 1

    def _idle(self) -> None:
        self._asking -= 1
        if not self._asking:
            self._progress.run_s += time.monotonic() - self._busy_since


def _died() -> ModelError:
    return ModelError(
        "model-worker-died",
        "the model's process ended on this record",
        hint="Look into the job's log.",
        original_message="the model's process ended while it had this record",
    )


async def _over(
    tasks: Iterable[asyncio.Task[None]], found: Generator[RecordGroup, None, None]
) -> None:
    """Closes the reader, once no thread is in it."""
    await asyncio.gather(*tasks, return_exceptions=True)
    with contextlib.suppress(ValueError):  # a thread is still in it: the process is ending
        found.close()
