"""Triton's `model_warmup` of a config.pbtxt: requests made of tensors, zero, random or from files.

A sample's tensors have `batch_size` rows where the model batches; its files lie in the model's
folder `warmup`. `count` is the number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from penstock.artifacts.description.description import (
    WARM_UP_ELEMENTS_MAX,
    WARM_UP_TIMES_MAX,
    WARM_UPS_MAX,
    WarmUp,
    WarmUpTensor,
)
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.triton.pbtxt import Fields

_FOLDER: Final = "warmup"
_ROWS_MAX: Final = 65_536


def warm_ups(top: Fields, rows_max: int, dtypes: Mapping[str, str]) -> tuple[WarmUp, ...]:
    """The warm-up requests. `dtypes`: Triton's names -> ours. Raises CallerError
    (`triton-config-invalid`)."""
    samples = top.messages("model_warmup")
    if len(samples) > WARM_UPS_MAX:
        raise top.invalid("model_warmup", len(samples), f"at most {WARM_UPS_MAX} samples")
    read = (_sample(item, rows_max, dtypes) for item in samples)
    # A sample without inputs requests nothing.
    return tuple(sample for sample in read if sample.tensors)


def _sample(item: Fields, rows_max: int, dtypes: Mapping[str, str]) -> WarmUp:
    name = item.text("name")
    rows = item.integer("batch_size", 0, high=_ROWS_MAX)
    if rows > rows_max:
        raise item.invalid("batch_size", rows, f"at most max_batch_size, {rows_max}")
    if rows_max > 0:
        rows = max(1, rows)
    times = max(1, item.integer("count", 1, high=WARM_UP_TIMES_MAX))
    tensors = tuple(_input(entry, rows, dtypes) for entry in item.messages("inputs"))
    if sum(math.prod(tensor.shape) for tensor in tensors) > WARM_UP_ELEMENTS_MAX:
        raise item.invalid("inputs", "too large", f"of {WARM_UP_ELEMENTS_MAX} elements at most")
    item.done()
    return WarmUp(name=name, tensors=tensors, times=times)


def _input(entry: Fields, rows: int, dtypes: Mapping[str, str]) -> WarmUpTensor:
    name = entry.text("key")
    value = entry.message("value")
    if not name or value is None:
        raise entry.invalid("key", name, "a tensor's name, with its value")
    dtype = value.choice("data_type", dtypes, "")
    if not dtype:
        raise value.invalid("data_type", "missing", f"one of {', '.join(dtypes)}")
    dims = value.integers("dims", low=0)
    zeros, random = value.flag("zero_data"), value.flag("random_data")
    file = value.text("input_data_file")
    if zeros + random + bool(file) != 1:
        raise value.invalid(
            "zero_data", "not alone", "given, or random_data, or input_data_file: one of them"
        )
    if file:
        file = safe_path(f"{_FOLDER}/{file}", where="model_warmup, input_data_file")
    value.done()
    entry.done()
    return WarmUpTensor(
        name=name,
        dtype=dtypes[dtype],
        shape=(rows, *dims) if rows else dims,
        fill="random" if random else "zeros",
        file=file,
    )
