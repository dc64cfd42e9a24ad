"""An instance on its node (`fleet/node.py` is what runs there): its start, its log and its end.

Gateways and instances have connections of their own, over TLS: the node makes the instance's key,
which stays there, and gets a certificate for it.

Its log is brought here piece by piece. The notes about its models come with its last words, so that
all of it can be read on the server, as if the instance had run here.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.core.blame.crashed_instances import is_crash
from penstock.errors import CallerError, NotNowError, from_dict
from penstock.fleet.base import InstanceExit, InstanceSpec
from penstock.fleet.identity import contexts
from penstock.fleet.identity.authority import Authority
from penstock.fleet.identity.dial import check_version
from penstock.fleet.log_file import LOG_BYTES_MAX, append, put_aside
from penstock.fleet.ray.cluster import (
    CALL_FAILED,
    Cluster,
    HeldActor,
    is_dead,
    last_line,
    node_lost,
)

#: A busy node needs seconds to make an actor's process; the instance's own start comes on top.
_ACTOR_S_MAX: Final = 120.0
_START_S_MAX: Final = 90.0
#: The node itself ends a guest's start that makes no progress, and Ray reports a lost node.
_GUEST_START_S_MAX: Final = 86_400.0
#: An instance that runs reports at least this often; Ray reports a lost actor itself.
_WATCH_S: Final = 5.0
_SILENT_S_MAX: Final = 10.0
#: How many calls in a row may fail before an actor counts as lost. Ray says "unavailable" of one
#: whose connection broke, and it may come back.
_FAILURES_MAX: Final = 3
_AGAIN_S: Final = 0.5
LAST_WORD_S_MAX: Final = 2.0


class Starting:
    """Starts the instances of one fleet."""

    def __init__(
        self,
        cluster: Cluster,
        authority: Authority,
        *,
        cache_dir: str,
        wall: Callable[[], float],
    ) -> None:
        """`cache_dir`: on each node; "" = the default of the node's user."""
        self._cluster = cluster
        self._authority = authority
        self._cache_dir = cache_dir
        self._wall = wall

    async def begin(self, held: HeldActor) -> tuple[str, int]:
        """The instance's address and process id, once its group has a place.

        Raises NotNowError `node-unusable`, `instance-version` and `node-lost`, and whatever the
        instance's own start raised.
        """
        instance_id = held.spec.instance_id
        told = await self._node_of(held)
        check_version(str(told.get("version")), str(told.get("wire")), f"the node of {instance_id}")
        wanted = await self._wanted(held, str(told["request"]))
        try:
            limit_s = _GUEST_START_S_MAX if held.spec.yields else _START_S_MAX
            begun = await self._cluster.answer(held.actor.start, wanted, seconds=limit_s)
        except CALL_FAILED as error:
            raise node_lost(instance_id, error) from error
        if "error" in begun:
            await last_log(self._cluster, held)
            raise from_dict(begun["error"])
        return str(begun["address"]), int(begun["pid"])

    async def _node_of(self, held: HeldActor) -> dict[str, Any]:
        """Makes the actor; returns the versions on its node and the certificate request."""
        instance_id = held.spec.instance_id
        try:
            held.actor = await self._cluster.make_actor(held.group, held.bundle, instance_id)
            return await self._cluster.answer(held.actor.describe, seconds=_ACTOR_S_MAX)
        except CALL_FAILED as error:
            raise NotNowError(
                "node-unusable",
                f"a node of the Ray cluster can't make a process for instance {instance_id}:"
                f" {last_line(error)}",
                hint="Penstock must be installed there, with all that it needs, as it is here.",
            ) from error

    async def _wanted(self, held: HeldActor, request: str) -> dict[str, Any]:
        spec = held.spec
        name = contexts.of_instance(spec.instance_id)
        return {
            "certificate": self._authority.sign(request, name, now=self._wall()),
            "authority": self._authority.certificate,
            "cache_dir": self._cache_dir,
            "instance_type": asdict(spec.instance_type),
            "shadow": spec.shadow,
            "guest": spec.guest,
            "cores_max": spec.cores_max,
            "settings": await asyncio.to_thread(_with_certificate, spec.settings),
        }


def _with_certificate(settings: dict[str, object]) -> dict[str, object]:
    """Replaces the path of the platform's certificate, which is valid only here, by its text."""
    platform = settings.get("platform")
    if not isinstance(platform, dict) or not platform.get("certificate"):
        return settings
    try:
        text = Path(platform["certificate"]).read_text()
    except OSError as error:
        raise CallerError(
            "tls-unusable", f"{platform['certificate']} can't be read: {error.strerror}"
        ) from error
    return settings | {"platform": platform | {"certificate": text}}


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
