"""What a container says of batch transforms: GET /execution-parameters, which few answer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from penstock.runtimes.foreign.http_connection import ForeignHttpConnection, HttpAnswer

_ANSWER_S_MAX: Final = 5.0


async def execution_parameters(port: int) -> dict[str, Any]:
    """`MaxConcurrentTransforms`, `BatchStrategy`, `MaxPayloadInMB`, as far as it has them; {} of a
    container that does not answer, or no JSON."""
    connection = ForeignHttpConnection(port)
    answered: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()

    def hear(answer: HttpAnswer | None) -> None:
        if not answered.done():
            answered.set_result(answer)

    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            await connection.open()
            headers = {"accept": "application/json", "connection": "close"}
            connection.send("GET", "/execution-parameters", headers, b"", hear)
            answer = await answered
    except (OSError, TimeoutError):
        return {}
    finally:
        connection.close()
    if answer is None or answer.status != 200:
        return {}
    try:
        told = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}
