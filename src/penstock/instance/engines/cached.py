"""A model whose answers are kept and given again: Triton's `response_cache { enable: true }`.

One cache serves all models of a process; it is off unless the operator gives it memory
(`control.response_cache_bytes_max`). Two requests are the same if model, version, inputs (names,
types, shapes, bytes), parameters and requested outputs are. A request's id, priority and timeout
don't matter. Only whole answers are kept, never errors. Models with sequences or any number of
responses have no cache: their configuration is refused.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Final

import numpy as np

from penstock.core.batching.batcher import RunBatch
from penstock.core.batching.response_cache import ResponseCache
from penstock.instance.codecs.base import Decoded, Tensors
from penstock.instance.engines.batches import Batches, BatchRun
from penstock.instance.request import Request
from penstock.runtimes.base import LoadContext
from penstock.runtimes.infer_metadata import InferAnswer, InferMetadata, parameters_of
from penstock.runtimes.tensor_bytes import pack

#: What an object of Python takes beside its bytes.
_OBJECT_BYTES: Final = 64
_REASON: Final = "cache-hit"


@functools.cache
def cache_of_process(bytes_max: int) -> ResponseCache[Tensors]:
    return ResponseCache(bytes_max)


def batches_for(context: LoadContext, engine: Any) -> Batches:
    """The work of a stateless model, with a cache if it wants one and may have it."""
    description = context.description
    facts = description.triton
    wanted = facts is not None and facts.config.get("response_cache", {}).get("enable")
    bytes_max = context.response_cache_bytes
    takes_tensors = getattr(engine, "takes_tensors", False)
    if not (wanted and takes_tensors and bytes_max) or context.offline:
        return Batches(engine, description.batching.priority_default)
    cache = cache_of_process(bytes_max)
    return CachedBatches(engine, cache, description.batching.priority_default)


class CachedBatches(Batches):
    def __init__(
        self, engine: Any, cache: ResponseCache[Tensors], priority_default: int = 0
    ) -> None:
        super().__init__(engine, priority_default)
        self.decode = self._decode_with_key  # where the body is read: large ones off the loop
        self._cache = cache
        self.hits = self.misses = 0
        self._hit_s = self._miss_s = 0.0

    def _decode_with_key(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        decoded, data, length = self.engine.decode(meta, body)
        decoded.cache_key = key_of(data, decoded.metadata)
        return decoded, data, length

    def queue(self, request: Request, outcome: tuple[Any, Any, int], now: float) -> None:
        clock = self._copy.clock
        began = clock.monotonic()
        decoded, data, _ = outcome
        if not decoded.cache_key:  # a model of the same artifact asks, without a body
            decoded.cache_key = key_of(data, decoded.metadata)
        outputs = self._cache.find(self, decoded.cache_key)
        if outputs is None:
            self.misses += 1
            self._miss_s += clock.monotonic() - began
            super().queue(request, outcome, now)
            return
        request.decoded = decoded
        self.hits += 1
        hit = RunBatch(0, (), 0, 0, 0.0, self._copy.driver.queue_rows, _REASON)
        super()._answer(request, outputs, BatchRun(hit, [], began), 0)
        self._hit_s += clock.monotonic() - began

    def _answer(self, request: Request, outputs: Any, run: BatchRun, run_us: int) -> None:
        clock = self._copy.clock
        began = clock.monotonic()
        kept, size = _own(outputs)
        assert request.decoded is not None
        self._cache.keep(self, request.decoded.cache_key, kept, size)
        self._miss_s += clock.monotonic() - began
        super()._answer(request, outputs, run, run_us)

    def close(self) -> None:
        super().close()
        self._cache.forget(self)

    def status(self) -> dict[str, Any]:
        counts = {"hits": self.hits, "misses": self.misses}
        times = {"hit_s": self._hit_s, "miss_s": self._miss_s}
        return {**super().status(), "cache": counts | times}


def key_of(data: Any, metadata: InferMetadata | None) -> bytes:
    """`data`: the engine's: tensors, or a version and its tensors."""
    version, tensors = data if isinstance(data, tuple) else ("", data)
    digest = hashlib.blake2b(pack(dict(sorted(tensors.items()))), digest_size=32)
    asked: list[Any] = [version]
    if metadata is not None:
        asked += [sorted(metadata.parameters.items()), sorted(metadata.outputs)]
        asked += [metadata.correlation_id, metadata.flags]
    digest.update(repr(asked).encode())  # exact: 1, 1.0, True and "1" differ
    return digest.digest()


def _own(outputs: Tensors) -> tuple[Tensors, int]:
    """A copy, as an output may be a part of its batch's; and its size."""
    copies = {name: np.array(array) for name, array in outputs.items()}
    size = sum(_bytes_of(array) for array in copies.values())
    if isinstance(outputs, InferAnswer):
        return InferAnswer(copies, dict(parameters_of(outputs))), size
    return copies, size


def _bytes_of(array: np.ndarray) -> int:
    if array.dtype != object:
        return array.nbytes
    return array.nbytes + sum(_OBJECT_BYTES + len(one) for one in array.ravel())
