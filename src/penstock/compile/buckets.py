"""How requests to a compiled text model are batched by default."""

from __future__ import annotations

from penstock.artifacts.description.description import Batching

#: Lengths that texts are padded to; a short query does not pay for a long one.
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
#: A millisecond lets a burst gather, and is a tenth of a service level of 10 ms.
WAIT_S_MAX = 0.001


def batching_of(tokens_max: int, rows_max: int) -> Batching:
    """Buckets up to the model's length; `tokens_max` 0: a model of tensors, which has none."""
    buckets = tuple(size for size in BUCKETS if size < tokens_max)
    return Batching(
        rows_max=rows_max,
        wait_s_max=WAIT_S_MAX if rows_max > 1 else 0.0,
        buckets=(*buckets, tokens_max) if tokens_max else (),
    )
