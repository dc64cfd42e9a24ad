"""Checks whether an adapter fits its base's weights, before the engine loads it.

An engine that loads weights itself finds a mismatch too late: in a step that other requests share.
Layers whose weights have no plain form (quantised ones) are left to the engine.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.errors import CallerError
from penstock.runtimes.generation.adapter_files import AdapterFiles

_HEADER_BYTES_MAX = 100_000_000  #: the format's own bound


def check_against_weights(adapter: AdapterFiles, model_dir: Path) -> None:
    """Raises CallerError (`adapter-mismatch`)."""
    shapes = shapes_of(model_dir)
    if not shapes:
        return
    for layer in adapter.layers:
        shape = shapes.get(f"{layer.module}.weight")
        if shape is None:
            if any(name.startswith(f"{layer.module}.") for name in shapes):
                continue
            raise mismatch(f"the base has no linear layer {layer.module!r}")
        if (layer.up.rows, layer.down.columns) != shape:
            width_out, width_in = shape
            raise mismatch(
                f"{layer.module} maps {width_in} to {width_out} numbers in the base, and"
                f" {layer.down.columns} to {layer.up.rows} in the adapter"
            )


def mismatch(cause: str) -> CallerError:
    return CallerError(
        "adapter-mismatch",
        f"the adapter does not fit its base: {cause}",
        hint="An adapter fits the model that it was trained on, in the same form, and no other.",
    )


def shapes_of(model_dir: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in the base's safetensors files, checked when it was loaded."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(model_dir.glob("*.safetensors")):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _HEADER_BYTES_MAX)))
        found |= {
            name: tuple(told["shape"]) for name, told in header.items() if name != "__metadata__"
        }
    return found
