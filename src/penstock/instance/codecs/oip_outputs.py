"""Requested outputs of the Open Inference Protocol, for its JSON and gRPC forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.errors import ModelError
from penstock.instance.codecs.base import Tensors
from penstock.runtimes.tensor_bytes import name_of, objects


class OutputSpec(NamedTuple):
    name: str
    binary: bool
    classes: int  #: classification extension: the n best as "score:index"; 0 = the tensor itself


def pick(wanted: list[OutputSpec], outputs: Tensors) -> Iterator[tuple[OutputSpec, np.ndarray]]:
    """The requested outputs in order; if none are requested, all."""
    if not wanted:
        for name, array in outputs.items():
            yield OutputSpec(name, False, 0), array
        return
    for want in wanted:
        if want.name not in outputs:
            raise ModelError(
                "output-missing",
                f"the model did not answer output {want.name!r}; it gave {', '.join(outputs)}",
            )
        yield want, outputs[want.name]


def dtype_of(array: np.ndarray, promised: str | None, name: str) -> str:
    """The dtype of the answer: the metadata's, where the array can be converted. Raises ModelError
    for bytes in the place of numbers and the reverse."""
    given = name_of(array)
    if promised is None or promised == given:
        return given
    if "BYTES" in (promised, given):
        raise ModelError(
            "output-dtype",
            f"the model answered output {name!r} as {given}, its configuration says {promised}",
            hint="Make the model's code and its configuration agree.",
        )
    return promised


def classified(array: np.ndarray, classes: int, batched: bool) -> np.ndarray:
    """The best classes of each row as BYTES `score:index`, best first."""
    flat = array.reshape(len(array) if batched else 1, -1)
    count = min(classes, flat.shape[1])
    order = np.argsort(-flat.astype(np.float64), axis=1, kind="stable")[:, :count]
    items = [
        f"{flat[row, at]:f}:{at}".encode() for row in range(len(flat)) for at in order[row].tolist()
    ]
    shaped = objects(items).reshape(len(flat), count)
    return shaped if batched else shaped[0]
