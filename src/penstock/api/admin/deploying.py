"""How far an endpoint is: what each copy does now, and the last line that was logged.

The phase of a copy that is being loaded comes from its instance, which does the work; everything
else from the control plane. Whoever waits for the endpoint asks again and again, so this is cheap.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from penstock.api.admin.logs import tails
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import component_of
from penstock.core.deployment.endpoint_state import LOADING

#: An instance that does not answer sooner is busy; the next question comes soon.
_ANSWER_S: Final = 1.0
_LINE_CHARS_MAX: Final = 300


async def deploying(plane: ControlPlane, name: str) -> dict[str, Any]:
    """Raises CallerError (`endpoint-not-found`)."""
    record = await plane.database.call(Store.describe_endpoint, name)
    views = plane.instances(name)
    rows = await asyncio.gather(*(_copies(plane, view) for view in views))
    activities = plane.activities(name)
    last = activities[-1] if activities else None
    return {
        "endpoint": record.name,
        "status": record.status,
        "copies": [row for found in rows for row in found],
        "line": await _last_line(plane.log_paths(name)),
        "activity": None if last is None else {"what": last.what, "reason": last.reason},
    }


async def _copies(plane: ControlPlane, view: InstanceView) -> list[dict[str, Any]]:
    loading: dict[int, dict[str, Any]] = {}
    if any(copy.phase == LOADING and not copy.waits for copy in view.copies):
        status = await plane.instance_status(view.instance_id, timeout_s=_ANSWER_S)
        loading = {one["copy"]: one for one in status.get("loading", ())}
    copies: tuple[CopyView | None, ...] = view.copies or (None,)
    return [_row(view, copy, loading) for copy in copies]


def _row(
    view: InstanceView, copy: CopyView | None, loading: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """The row of a copy, or of an instance that has none yet."""
    if copy is None:
        return {"copy": None, "variant": view.variant, "component": "",
                "instance": view.instance_id, "state": view.phase, "phase": view.phase,
                "phase_s": None}  # fmt: skip
    seen = loading.get(copy.copy, {})
    waits = {"memory": "waiting for memory", "turn": "waiting for its turn to load"}
    return {
        "copy": copy.copy,
        "variant": view.variant,
        "component": component_of(copy.component),
        "instance": view.instance_id,
        "state": copy.phase,
        "phase": seen.get("phase") or waits.get(copy.waits) or copy.phase,
        "phase_s": seen.get("phase_s"),
    }


async def _last_line(paths: list[Path]) -> str:
    """The last line of the log that was written last, without its head; "" if there is none."""
    newest = await asyncio.to_thread(_newest, paths)
    if newest is None:
        return ""
    (log,) = await tails([newest], 1)
    line = log["lines"][-1] if log["lines"] else ""
    return _without_head(line)[:_LINE_CHARS_MAX]


def _without_head(line: str) -> str:
    """A line of an instance's own without time, level, logger and copy; any other as it is."""
    head, found, words = line.partition(": ")
    if not found or not head[:4].isdigit():
        return line
    copy, found, rest = words.partition("] ")
    return rest if found and copy.startswith("[") else words


def _newest(paths: list[Path]) -> Path | None:
    times = {}
    for path in paths:
        try:
            times[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # removed meanwhile
    return max(times, key=times.__getitem__, default=None)
