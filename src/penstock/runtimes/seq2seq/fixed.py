"""Second graphs with fixed sizes, for one case whose costs are visible: a lone short text.

A graph of free sizes spends an eighth of a short encoder run, and of a step of one row, on its
sizes: it computes them at every node, and fusions and layouts that need sizes are missing. With
fixed sizes that is done at loading. Every such graph has its own copy of the weights, so encoders
of several lengths are made only up to `COPIES_BYTES_MAX`. Other lengths, and texts with mates, use
the graphs of free sizes. Must not know rows, requests or caches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.runtimes.openvino.runtime import shared_core

#: Bound for copies of an encoder's weights beside the first, in bytes. Four copies of T5-small's in
#: INT8 fit (the process grows by 120 MiB with all else that a graph needs), one in BF16.
COPIES_BYTES_MAX = 128 << 20

#: With fixed sizes, OpenVINO 2026.4.1 fuses attention into code that computes wrong results in BF16
#: (errors as large as the logits); unfused it is right, and no slower.
_UNFUSED = {"SNIPPETS_MODE": "DISABLE"}


def fixed_request(graph: Any, sizes: Mapping[str, Sequence[int]], config: dict[str, Any]) -> Any:
    """An infer request for inputs of exactly these sizes; the graph keeps them."""
    graph.reshape({port: list(sizes[port.get_any_name()]) for port in graph.inputs})
    if config["INFERENCE_PRECISION_HINT"] == "bf16":
        config = {**config, **_UNFUSED}
    return shared_core().compile_model(graph, "CPU", config).create_infer_request()


class LoneEncoder:
    """The encoder for one source of at most `length` tokens, bound to memory of its own."""

    def __init__(self, graph: Any, length: int, config: dict[str, Any]) -> None:
        import openvino

        self.length = length
        sizes = (1, length)
        self._request = fixed_request(graph, {"ids": sizes, "mask": sizes}, config)
        self._ids = np.zeros(sizes, dtype=np.int32)
        self._mask = np.zeros(sizes, dtype=np.float32)
        self._cross_kv = np.empty(list(graph.output("cross_kv").get_shape()), dtype=np.float32)
        bound = {"ids": self._ids, "mask": self._mask, "cross_kv": self._cross_kv}
        #: The request reads and writes these: they must outlive it.
        self._held = {
            name: openvino.Tensor(array, shared_memory=True) for name, array in bound.items()
        }
        for name, tensor in self._held.items():
            self._request.set_tensor(name, tensor)

    def run(self, source: Sequence[int]) -> np.ndarray:
        """[2 * layers, 1, heads, length, size]; the next run overwrites it."""
        count = len(source)
        self._ids[0, :count] = source
        self._ids[0, count:] = 0
        self._mask[0, :count] = 1.0
        self._mask[0, count:] = 0.0
        self._request.infer(share_outputs=True)
        return self._cross_kv


class LoneEncoders:
    """Encoders for sources of up to `bucket` tokens, one per part of the bucket; none if too
    large."""

    def __init__(self, path: Path, bucket: int, config: dict[str, Any]) -> None:
        self._encoders: list[LoneEncoder] = []
        # Read once, so its weights' file is mapped once
        graph = shared_core().read_model(str(path))
        for length in lengths(bucket, _copied_bytes(graph)):
            self._encoders.append(LoneEncoder(graph, length, config))
        self._lengths = [encoder.length for encoder in self._encoders]

    def of(self, tokens: int) -> LoneEncoder | None:
        at = bisect_left(self._lengths, tokens)
        return self._encoders[at] if at < len(self._lengths) else None

    def close(self) -> None:
        self._encoders, self._lengths = [], []


def lengths(bucket: int, copy_bytes: int) -> tuple[int, ...]:
    """The finest division of the bucket, into at most eight parts, whose copies fit."""
    for parts in (8, 4, 2, 1):
        if parts * copy_bytes <= COPIES_BYTES_MAX:
            return tuple(range(bucket // parts, bucket + 1, bucket // parts))
    return ()


def _copied_bytes(graph: Any) -> int:
    """Memory of one more compiled graph. The largest constant is the embedding table, which is read
    in place; in BF16 OpenVINO 2026.4.1 makes an FP32 table of it for each graph."""
    constants = [node for node in graph.get_ops() if node.get_type_name() == "Constant"]
    *others, table = sorted(constants, key=lambda node: node.get_byte_size())
    folded = 2 * table.get_byte_size() if table.get_element_type().get_type_name() == "bf16" else 0
    return int(folded + sum(node.get_byte_size() for node in others))
