"""Watches an instance on its node: brings its log here piece by piece, and then reports its end.

The notes about its models come with its last words, so that all of it can be read on the server, as
if the instance had run here.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.core.blame.crashed_instances import is_crash
from penstock.fleet.base import InstanceExit, InstanceSpec
from penstock.fleet.log_file import LOG_BYTES_MAX, append, put_aside
from penstock.fleet.ray.cluster import CALL_FAILED, Cluster, is_dead, last_line
from penstock.fleet.ray.held import HeldActor

#: An instance that runs reports at least this often; Ray reports a lost actor itself.
_WATCH_S: Final = 5.0
_SILENT_S_MAX: Final = 10.0
#: How many calls in a row may fail before an actor counts as lost. Ray says "unavailable" of one
#: whose connection broke, and it may come back.
_FAILURES_MAX: Final = 3
_AGAIN_S: Final = 0.5
LAST_WORD_S_MAX: Final = 2.0


async def until_its_end(cluster: Cluster, held: HeldActor) -> InstanceExit:
    """Returns how the instance ended; losing its node is an end too."""
    log_at = failures = 0
    while True:
        try:
            seen = await cluster.answer(
                held.actor.watch, log_at, _WATCH_S, seconds=_WATCH_S + _SILENT_S_MAX
            )
        except CALL_FAILED as error:
            failures += 1
            if failures < _FAILURES_MAX and not is_dead(error) and not held.stopping:
                await asyncio.sleep(_AGAIN_S)
                continue
            return InstanceExit(-9, f"the instance's node is lost: {last_line(error)}")
        failures = 0
        if seen["log"]:
            log_at = seen["log_at"]
            await asyncio.to_thread(_keep_log, held, seen["log"])
        if seen["ended"] is not None:
            return await _end_of(held.spec, seen["ended"])


async def last_log(cluster: Cluster, held: HeldActor) -> None:
    """The log of an instance that did not start: it says why."""
    with suppress(*CALL_FAILED):
        seen = await cluster.answer(held.actor.watch, 0, 0.0, seconds=LAST_WORD_S_MAX)
        if held.log is not None:
            append(held.log, seen["log"])


async def _end_of(spec: InstanceSpec, told: dict[str, Any]) -> InstanceExit:
    how = InstanceExit(told["code"], told["story"], told["stood_still"])
    if is_crash(how.code):
        await asyncio.to_thread(_keep_notes, spec, told["notes"])
    return how


def _keep_log(held: HeldActor, text: bytes) -> None:
    if held.log is not None and not held.log.closed:
        append(held.log, text)
        if held.log.tell() > LOG_BYTES_MAX:
            put_aside(held.spec.log_path)


def _keep_notes(spec: InstanceSpec, notes: dict[str, str]) -> None:
    """Writes the notes where the server looks for them."""
    folder = Path(str(spec.settings.get("work_dir") or ""))
    for name, text in notes.items():
        if Path(name).name == name and name.startswith(f"{spec.instance_id}."):
            with suppress(OSError, ValueError):
                folder.mkdir(mode=0o700, exist_ok=True)
                (folder / name).write_bytes(base64.b64decode(text))
