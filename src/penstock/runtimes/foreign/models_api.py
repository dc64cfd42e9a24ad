"""The container contract for several models in one server: load, get, unload.

Source: SageMaker's developer guide, "Custom Containers Contract for Multi-Model Endpoints". This
module knows HTTP and names, not which models are wanted. A model's name in the server is opaque.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import orjson

from penstock.errors import ModelError, NotNowError
from penstock.runtimes.foreign.server import ask_once
from penstock.wire.http_client import HttpAnswer, HttpClientSpec

LOADED_ALREADY: Final = 409
MEMORY_FULL: Final = 507
UNKNOWN: Final = 404

#: Timeout of calls that the server answers from its tables; loading has its own.
_ANSWER_S_MAX: Final = 30.0


class ForeignModels:
    """A client of the server that `at` leads to. Each call uses its own connection."""

    def __init__(self, at: HttpClientSpec) -> None:
        self._at = at

    async def load(self, name: str, url: str, *, timeout_s: float) -> None:
        """`url`: a folder that the server can read. Loading a loaded model is no error.

        Raises NotNowError (`model-memory-full`: unload another and try again; `worker-lost`) and
        ModelError (`model-unknown`, `model-not-loaded`, `load-timeout`).
        """
        body = orjson.dumps({"model_name": name, "url": url})
        answer = await self._ask("POST", "/models", body, timeout_s)
        if answer.status != LOADED_ALREADY:
            _raise_unless_done(answer, "load")

    async def unload(self, name: str, *, timeout_s: float = _ANSWER_S_MAX) -> None:
        """Unloading a model that is not there is no error. Raises as `load`."""
        answer = await self._ask("DELETE", _place(name), timeout_s=timeout_s)
        if answer.status != UNKNOWN:
            _raise_unless_done(answer, "unload")

    async def has(self, name: str) -> bool:
        """Whether the model is loaded. Raises as `load`."""
        answer = await self._ask("GET", _place(name))
        if answer.status == UNKNOWN:
            return False
        _raise_unless_done(answer, "tell of")
        return True

    async def _ask(
        self, method: str, path: str, body: bytes = b"", timeout_s: float = _ANSWER_S_MAX
    ) -> HttpAnswer:
        """The whole answer. Raises NotNowError (`worker-lost`), ModelError (`load-timeout`)."""
        try:
            answer = await ask_once(self._at, method, path, body, timeout_s=timeout_s)
        except TimeoutError:
            raise ModelError(
                "load-timeout",
                f"the server did not answer {method} {path} within {timeout_s:g} s",
                hint="Raise ContainerStartupHealthCheckTimeoutInSeconds.",
            ) from None
        except OSError:
            answer = None
        if answer is None:
            raise NotNowError("worker-lost", f"the server ended before it answered {method} {path}")
        return answer


def _place(name: str) -> str:
    return f"/models/{quote(name, safe='')}"


def memory_full(what: str) -> NotNowError:
    """The error for status 507, at a load and at a request."""
    return NotNowError(
        "model-memory-full",
        f"the server has no memory for {what}",
        hint="Another model is unloaded to make room; try again.",
        retry_after_s=1.0,
    )


def _raise_unless_done(answer: HttpAnswer, what: str) -> None:
    if 200 <= answer.status < 300:
        return
    words = answer.body[:4096].decode("utf-8", "replace")
    if answer.status == MEMORY_FULL:
        raise memory_full("one model more")
    if answer.status == UNKNOWN:
        raise ModelError(
            "model-unknown",
            f"the server answered 404 when it was to {what} a model: {words[:1000]}",
            hint="A server of several models answers POST /models and DELETE /models/{name}.",
            original_status=UNKNOWN,
            original_message=words,
        )
    raise ModelError(
        "model-not-loaded",
        f"the server answered {answer.status} when it was to {what} a model: {words[:1000]}",
        hint="Its own output is in the instance's log.",
        original_status=answer.status,
        original_message=words,
    )
