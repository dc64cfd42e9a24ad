"""Why a request went where it did: from the orchestrator's record and its region's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from penstock.orchestrator import requests
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.wire.http_client import Headers

#: Limit for a region's answer, in s: a person waits for it.
ASK_S_MAX: Final = 2.0
_BYTES_MAX: Final = 1 << 20


class Stories:
    """Collects the explanations, also from the regions."""

    def __init__(self, recorder: TrafficRecorder, regions: Mapping[str, Region]) -> None:
        self._recorder = recorder
        self._regions = regions

    async def of(self, request_id: str) -> dict[str, Any] | None:
        """None: the request is unknown, not finished, or too old."""
        story = self._recorder.explain(request_id)
        if story is None:
            return None
        region = self._regions.get(story["region"])
        if region is None or not story["region_request_id"]:
            return story
        return story | {"in_region": await self._ask(region, story["region_request_id"])}

    async def _ask(self, region: Region, request_id: str) -> dict[str, Any]:
        answer = _AnswerStory()
        path = f"/admin/requests/{quote(request_id, safe='')}".encode()
        exchange = region.pool.ask(answer, requests.plain(path, region.access))
        try:
            async with asyncio.timeout(ASK_S_MAX):
                await answer.ended.wait()
        except TimeoutError:
            return {"message": f"region {region.name} did not tell in time"}
        finally:
            exchange.cancel()
        with contextlib.suppress(ValueError):
            told: Any = orjson.loads(bytes(answer.body))
            if isinstance(told, dict):
                return told
        return {"message": f"region {region.name} does not know it any more"}


class _AnswerStory:
    def __init__(self) -> None:
        self.body = bytearray()
        self.ended = asyncio.Event()

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        pass

    def on_body(self, data: bytes) -> None:
        if len(self.body) < _BYTES_MAX:
            self.body += data

    def on_end(self) -> None:
        self.ended.set()

    def on_lost(self, reason: str, detail: str) -> None:
        self.ended.set()
