"""Runs suspected records of a span alone, part by part, to see whether the instance survives.

The answers are not used. If the process is still there afterwards, the records have passed; else
the note says which part was at work when it ended (`core/blame/crashed_instances.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from threading import Event

from penstock.core.blame.poison_requests import DEATHS
from penstock.core.jobs.windows import full_batches
from penstock.errors import NotNowError, PenstockError
from penstock.instance.copy import Copy
from penstock.instance.engines.rows import RowsEngine, WindowRows
from penstock.instance.transform.body_span import ask
from penstock.instance.transform.call import SpanProgress, TransformCall
from penstock.instance.transform.lane_pool import LanePool
from penstock.records.at_work import AtWork
from penstock.records.bodies import Bodies
from penstock.runtimes.base import Returned
from penstock.wire.frames import encode_request_meta

#: Runs the model's inputs of some records together.
RunInputs = Callable[[list[bytes]], Awaitable[None]]


async def run_apart(call: TransformCall, progress: SpanProgress, run: RunInputs) -> None:
    """Returns once all parts have run.

    Raises the errors of reading the span; NotNowError where the span was ended, or may pass later.
    """
    inputs = await asyncio.to_thread(_read, call)
    noted = AtWork(call.parts_uri, call.span)
    try:
        for part in call.apart:
            progress.check()
            given = [inputs[number] for number in part if number in inputs]
            if given:
                with noted.working(part):
                    await run(given)
        progress.check()
    finally:
        noted.close()


def _read(call: TransformCall) -> dict[int, bytes]:
    """The model's inputs of the suspects, by their numbers; reads no further than the last one."""
    wanted = {number for part in call.apart for number in part}
    found: dict[int, bytes] = {}
    with closing(call.reader().blocks()) as blocks:  # type: ignore[type-var]
        for block in blocks:
            for number, record in enumerate(block.records, block.first):
                if number not in wanted:
                    continue
                wanted.discard(number)
                with suppress(PenstockError):  # the model gets nothing of such a record
                    found[number] = call.model_input(number, record)
            if not wanted:
                break
    return found


def through_rows(call: TransformCall, engine: RowsEngine, pool: LanePool) -> RunInputs:
    """Runs them through a model of this process."""

    def run_on_lanes(inputs: list[bytes]) -> None:
        with suppress(Exception), closing(pool.begin()) as lanes:
            rows = engine.read(call.asked, inputs)
            for batch in full_batches(rows.lengths, engine.rows_spec, kinds=rows.kinds):
                ran = Event()
                lanes.add((partial(_run_batch, rows, batch.rows, ran),))
                ran.wait()

    async def run(inputs: list[bytes]) -> None:
        await asyncio.to_thread(run_on_lanes, inputs)

    return run


def through_copy(call: TransformCall, copy: Copy) -> RunInputs:
    """Runs them as a request body."""
    bodies = Bodies(call.spec)
    meta = encode_request_meta(call.asked)

    async def run(inputs: list[bytes]) -> None:
        timeout_s = call.spec.invocation_timeout_s
        outcome = await ask(copy, meta, bodies.joined(inputs), alone=True, timeout_s=timeout_s)
        if isinstance(outcome, Returned) and outcome.reason not in DEATHS:
            raise NotNowError("transform-copy-lost", f"the copy takes no more: {outcome.reason}")
        if isinstance(outcome, NotNowError):
            raise outcome

    return run


def _run_batch(rows: WindowRows, batch: tuple[int, ...], ran: Event, lane: int) -> None:
    try:
        with suppress(Exception):
            rows.run(lane, batch)
    finally:
        ran.set()
