"""Several versions of one model behind one queue: each request runs on the version that it names.

A batch may hold requests for several versions; each version then runs its own. They have the same
lanes, so a lane is free once all of them are done with its batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.core.blame.poison_requests import reason_of_death
from penstock.errors import ModelError
from penstock.instance.codecs.base import Decoded, Encode, Tensors
from penstock.instance.engines.tensor import TensorBodies, join_rows
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Returned
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.wire.frames import decode_request_meta


class VersionedEngine:
    """An `Engine` (`engines.batches`). `engines`: one for each version; a request that names none
    gets `default`."""

    def __init__(self, engines: Mapping[str, Any], default: str) -> None:
        self._engines = engines
        self._default = default
        self.takes_tensors = all(getattr(each, "takes_tensors", False) for each in engines.values())
        self.shares_worker = any(getattr(each, "shares_worker", False) for each in engines.values())

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        version = _version_of(decode_request_meta(meta).parameters) or self._default
        decoded, data, length = self._engine(version).decode(meta, body)
        return decoded, (version, data), length

    def taken(
        self,
        tensors: Tensors,
        encode: Encode,
        metadata: InferMetadata | None = None,
        version: str = "",
    ) -> tuple[Decoded, Any, int]:
        version = version or self._default
        decoded, data, length = self._engine(version).taken(tensors, encode, metadata)
        return decoded, (version, data), length

    def cut(self, data: Any, start: int, stop: int) -> Any:
        version, rows = data
        return version, self._engines[version].cut(rows, start, stop)

    join = staticmethod(join_rows)

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        groups: dict[str, list[int]] = {}
        for at, item in enumerate(items):
            version, item.data = item.data
            groups.setdefault(version, []).append(at)
        if len(groups) == 1:
            self._engines[next(iter(groups))].run(lane, items, bucket, done)
            return
        results: list[Any] = [None] * len(items)
        left = set(groups)

        def ended(version: str, outcome: Any) -> None:
            members = groups[version]
            for at, result in zip(members, _each(outcome, len(members)), strict=True):
                results[at] = result
            left.discard(version)
            if not left:
                done(results)

        for version, members in groups.items():
            own = [items[at] for at in members]
            self._engines[version].run(lane, own, bucket, partial(ended, version))

    def unwanted(self, lane: int) -> None:
        for engine in self._engines.values():
            end = getattr(engine, "unwanted", None)
            if end is not None:
                end(lane)

    def item_unwanted(self, request: Request) -> None:
        for engine in self._engines.values():
            tell = getattr(engine, "item_unwanted", None)
            if tell is not None:
                tell(request)

    def _engine(self, version: str) -> TensorBodies:
        engine: TensorBodies | None = self._engines.get(version)
        if engine is None:
            raise ModelError(
                "model-version-not-found",
                f"the model has no version {version[:64]!r}; it has {', '.join(self._engines)}",
                original_status=404,
            )
        return engine


def _version_of(parameters: str | None) -> str:
    said = json.loads(parameters).get("version", "") if parameters else ""
    return str(said)


def _each(outcome: Any, count: int) -> list[Any]:
    """The outcome of one version's part of a batch, for each of its items."""
    if outcome is None:
        return [Returned(reason_of_death(count - 1))] * count
    if isinstance(outcome, BaseException):
        return [outcome] * count
    return list(outcome)
