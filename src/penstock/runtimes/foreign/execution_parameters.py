"""What a container says about batch transforms: GET /execution-parameters, which few implement."""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.runtimes.foreign.http import ask_once

_ANSWER_S_MAX: Final = 5.0


async def execution_parameters(port: int) -> dict[str, Any]:
    """`MaxConcurrentTransforms`, `BatchStrategy` and `MaxPayloadInMB`, those that the container
    names; {} if it does not answer or answers no JSON."""
    try:
        answer = await ask_once(port, "GET", "/execution-parameters", timeout_s=_ANSWER_S_MAX)
    except OSError:
        return {}
    if answer is None or answer.status != 200:
        return {}
    try:
        told = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}
