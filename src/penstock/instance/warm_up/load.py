"""Loads a model and has it answer its warm-up requests, within the time that it has to start.

They go the way of all requests, through codec, batcher and runtime, so that whatever is made on
first use is made: kernels, caches, connections, what the model's own code loads lazily. A copy of
their own takes them; the copy that serves begins with empty counts. A model that does not answer
them is not loaded. The text runtimes' own warm-up, of each shape, has run before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.artifacts.description.description import WarmUp
from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.errors import ModelError, PenstockError
from penstock.instance.copy import Copy
from penstock.instance.loading.load import Prepared
from penstock.instance.loading.load import load as load_cold
from penstock.instance.loading.loaded import Loaded
from penstock.instance.request import ReplySink, Request
from penstock.instance.warm_up.requests import request_of
from penstock.runtimes.base import LaneListener
from penstock.wire import frames

_CODE: Final = "warmup-failed"


async def load(model: Prepared, listener: LaneListener) -> Loaded:
    """As `loading.load.load`, and warm. Raises ModelError (`warmup-failed`) with what the model
    answered instead, or `worker-died` where it died of it; nothing of it is left then."""
    loop = asyncio.get_running_loop()
    context = model.context
    until = loop.time() + context.startup_timeout_s
    loaded = await load_cold(model, listener)
    if not context.description.warmup:
        return loaded
    began = loop.time()
    try:
        async with asyncio.timeout_at(until):
            await _warm_up(loaded, context.model_dir, context.description.warmup)
    except TimeoutError:
        await shielded(loaded.close())
        raise ModelError(
            _CODE,
            f"the model did not start and warm up within {context.startup_timeout_s:g} s",
            hint="Warm up with less, or raise ContainerStartupHealthCheckTimeoutInSeconds.",
        ) from None
    except BaseException:
        await shielded(loaded.close())
        raise
    loaded.warm_up_s = loop.time() - began
    return loaded


async def _warm_up(loaded: Loaded, root: Path, requests: tuple[WarmUp, ...]) -> None:
    """Has each of `requests` answered as often as it says, in every lane."""
    clock = SystemClock()
    loop = asyncio.get_running_loop()
    # Nobody keeps it company: to wait for more would only take time.
    spec = replace(loaded.spec, wait_s_max=0.0, latency_s_p99_max=None)
    copy = Copy(
        0,
        loaded.work,
        spec,
        clock=clock,
        call_at=lambda at, call: loop.call_later(max(0.0, at - clock.monotonic()), call),
        elsewhere=_elsewhere,
    )
    lanes = 1 if loaded.work.one_worker else spec.lanes
    try:
        for number, each in enumerate(requests):
            try:
                meta, body = await asyncio.to_thread(request_of, root, each)
            except PenstockError as error:
                raise _failed(each, number, error.message, error.hint) from None
            encoded = frames.encode_request_meta(meta)
            for _ in range(each.times):
                sink = _Answers(lanes)
                for ident in range(lanes):
                    _send(copy, Request(sink, ident, encoded, body, 0.0, None, 0), clock)
                await sink.all_there.wait()
                if sink.given_back:
                    words = f"{_name(each, number)} was given back: {sink.given_back}"
                    raise ModelError("worker-died", words)
                if sink.wrong is not None:
                    raise _failed(each, number, *sink.wrong)
    finally:
        copy.driver.close()


def _send(copy: Copy, request: Request, clock: Clock) -> None:
    now = request.received = clock.monotonic()
    copy.accept(request, now)
    copy.turn(now)


def _elsewhere(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """Other models of the instance answer meanwhile."""

    def over(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            done(future.exception() or future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(over)


class _Answers(ReplySink):
    """Waits for `count` answers."""

    def __init__(self, count: int) -> None:
        self.all_there = asyncio.Event()
        self.wrong: tuple[str, str] | None = None  #: message and hint of the first bad answer
        self.given_back = ""  #: the reason why one was: its worker is gone
        self._left = count

    def forget(self, ident: int) -> None:
        """Nothing can cancel these."""

    def send(self, frame: bytes) -> None:
        for kind, _, meta_bytes, _, payload in frames.FrameDecoder().feed(frame):
            if kind == frames.CHUNK:
                continue
            if kind == frames.ERROR:
                error = orjson.loads(frames.decode_reply(payload, meta_bytes).body)
                story = (str(error.get("message", "")), str(error.get("hint") or ""))
                self.wrong = self.wrong or story
            elif kind == frames.RETURNED:
                self.given_back = self.given_back or payload.decode()
            self._left -= 1
        if not self._left:
            self.all_there.set()


def _failed(request: WarmUp, number: int, message: str, hint: str) -> ModelError:
    return ModelError(
        _CODE,
        f"{_name(request, number)} was not answered: {message}",
        hint=hint or "Correct it in model.yaml or config.pbtxt, or take it out.",
    )


def _name(request: WarmUp, number: int) -> str:
    return f"warm-up request {request.name or number + 1}"
