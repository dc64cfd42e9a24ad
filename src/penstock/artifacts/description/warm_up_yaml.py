"""The key `warmup` of model.yaml: requests that a model answers before it is given others."""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.artifacts.description.description import DTYPES, FILLS, WarmUp, WarmUpTensor
from penstock.artifacts.description.yaml_keys import Keys

KEY: Final = "warmup"
#: A model that needs more is better warmed up by its own code.
REQUESTS_MAX: Final = 100
TIMES_MAX: Final = 1000
#: Of all tensors of a request; a shape can claim any size.
ELEMENTS_MAX: Final = 1 << 26


def parse(top: Keys) -> tuple[WarmUp, ...]:
    """Raises CallerError (`model-yaml-invalid`)."""
    items = top.sections(KEY)
    if len(items) > REQUESTS_MAX:
        raise top.wrong(KEY, f"{len(items)} requests", f"at most {REQUESTS_MAX}")
    return tuple(_request(item) for item in items)


def _request(item: Keys) -> WarmUp:
    request = WarmUp(
        name=item.text("name"),
        body=item.text("body"),
        file=item.path("file"),
        content_type=item.text("content_type"),
        accept=item.text("accept"),
        tensors=tuple(_tensor(each) for each in item.sections("tensors")),
        times=item.integer("times", 1, low=1, high=TIMES_MAX),
    )
    given = [name for name in ("body", "file", "tensors") if getattr(request, name)]
    if len(given) != 1:
        raise item.wrong("body", given, "one of body, file and tensors: that one alone")
    if request.tensors and request.content_type:
        raise item.wrong("content_type", request.content_type, "left out where tensors are given")
    if sum(math.prod(tensor.shape) for tensor in request.tensors) > ELEMENTS_MAX:
        raise item.wrong("tensors", "too large", f"of {ELEMENTS_MAX} elements at most")
    item.done()
    return request


def _tensor(item: Keys) -> WarmUpTensor:
    tensor = WarmUpTensor(
        name=item.text("name", required=True),
        dtype=item.choice("dtype", DTYPES, required=True),
        shape=item.integers("shape", low=0, high=2**40, required=True),
        fill=item.choice("fill", FILLS, default="zeros"),
        file=item.path("file"),
    )
    item.done()
    return tensor


def dump(request: WarmUp) -> dict[str, Any]:
    """What `parse` reads back; defaults are left out."""
    fields: dict[str, Any] = {
        "name": request.name,
        "body": request.body,
        "file": request.file,
        "content_type": request.content_type,
        "accept": request.accept,
        "tensors": [_dump_tensor(tensor) for tensor in request.tensors],
        "times": request.times,
    }
    return {key: value for key, value in fields.items() if value not in ("", [], 1)}


def _dump_tensor(tensor: WarmUpTensor) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
    }
    if tensor.file:
        fields["file"] = tensor.file
    if tensor.fill != "zeros":
        fields["fill"] = tensor.fill
    return fields
