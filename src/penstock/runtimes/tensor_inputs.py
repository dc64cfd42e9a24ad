"""For native runtimes: arrays in the form that a library needs, and the threads of a lane."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext, Tensors
from penstock.runtimes.dtypes import NUMPY


def prepared(specs: tuple[TensorSpec, ...], inputs: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """Every input in the model's order, contiguous and in the model's dtype.

    Callers validate requests; a missing name here comes from our own code or a wrong description.
    """
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None:
            raise ModelError(
                "input-missing",
                f"the model needs {spec.name!r}, which is not among {', '.join(inputs)}",
            )
        dtype = NUMPY.get(spec.dtype)
        if dtype is not None and array.dtype != dtype:
            array = array.astype(dtype)
        yield spec.name, np.ascontiguousarray(array)


def threads_of(context: LoadContext, lanes: int) -> int:
    """Intra-op threads of one lane: the description's number, else an equal share of the copy's
    cores."""
    described = context.description.threads_per_lane
    return described if described > 0 else max(1, int(context.cores / lanes))
