"""Paths below /v2 that are about the server and no model: Triton's extensions for shared memory,
and for log and trace settings."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import orjson

from penstock.api.answering import only
from penstock.api.model_names import (
    CUDA_SHARED_MEMORY,
    LOGGING,
    SHARED_MEMORY_PATHS,
    TRACE,
    ModelName,
)
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_memory import cuda_status, refuse_cuda
from penstock.errors import CallerError
from penstock.gateway.http.call import Call

#: Bound of a small question's body, which is parsed on the loop.
_QUESTION_BYTES_MAX: Final = 4096


class OipExtensions:
    """Answers such paths."""

    def __init__(self, models: OipModels) -> None:
        self._models = models

    def answer(self, call: Call, parts: list[str]) -> Awaitable[Any] | None:
        """The answer's JSON; None for a path of somebody else. Raises PenstockError."""
        if parts[:1] and parts[0] in SHARED_MEMORY_PATHS:
            return self._shared_memory(call, parts[0] == CUDA_SHARED_MEMORY, parts[1:])
        if parts == [LOGGING]:
            return self._models.settings.log(_given(call))
        if tuple(parts) == TRACE:
            return self.trace(call, None)
        return None

    async def trace(self, call: Call, name: ModelName | None) -> Any:
        """`name`: the model that the settings are of; None: of all."""
        given = _given(call)
        if name is not None:
            self._models.check_version(name, "")
        return self._models.settings.trace(given)

    def _shared_memory(self, call: Call, cuda: bool, rest: list[str]) -> Awaitable[Any] | None:
        name = ""
        if rest[:1] == ["region"] and len(rest) == 3:
            name, rest = rest[1], rest[2:]
        if rest not in (["status"], ["unregister"]) and not (name and rest == ["register"]):
            return None
        only(call, *((b"GET", b"HEAD") if rest == ["status"] else (b"POST",)))
        return self._about_region(call, cuda, name, rest[0])

    async def _about_region(self, call: Call, cuda: bool, name: str, action: str) -> Any:
        shared = self._models.shared
        if action == "status":
            return cuda_status(name) if cuda else await shared.status(name)
        if cuda:
            refuse_cuda()
        if action == "unregister":
            return await shared.unregister(peer_of(call), name)
        return await shared.register(peer_of(call), name, question(call.body))


def peer_of(call: Call) -> str:
    """The address of the caller's machine; empty for one that came over a Unix socket."""
    peer = call.connection.about("peername") if call.connection is not None else None
    return str(peer[0]) if peer else ""


def _given(call: Call) -> dict[str, Any]:
    """The settings to change; {} for a call that only reads."""
    only(call, b"GET", b"HEAD", b"POST")
    return question(call.body) if call.method == b"POST" else {}


def question(body: bytes) -> dict[str, Any]:
    """The JSON object of a small body; {} for an empty one. Raises CallerError."""
    if len(body) > _QUESTION_BYTES_MAX:
        message = f"The body is larger than {_QUESTION_BYTES_MAX} bytes."
        raise CallerError("body-too-large", message, status=413)
    if not body.strip():
        return {}
    try:
        asked: Any = orjson.loads(body)
    except ValueError as cause:
        raise CallerError("json-malformed", f"The body is not JSON: {cause}") from cause
    return asked if isinstance(asked, dict) else {}
