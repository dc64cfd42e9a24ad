"""LoRA adapters inside an OpenVINO graph: all of them at once, and each token uses its own.

OpenVINO GenAI applies adapters to a whole pipeline: requests that are stepped together would share
them, and so would its prefix cache. Here they are part of the graph instead, before the library
sees it:

* *Which adapter.* The first token of a sequence says it: its id is raised by the adapter's number
  times `stride`. The graph subtracts the number again, and an attention layer of its own (one head
  that looks at position 0 alone) carries it to every later token, through the same cache of keys
  and values as all else. The library's prefix cache identifies blocks by their token ids, so one
  adapter never finds what another has computed.
* *What it does.* The matrices of all adapters of a layer are joined along the rank. Of the first
  product, a token keeps the columns of its own adapter, and exact zeros elsewhere: an answer does
  not depend on whose tokens it is computed with, and without an adapter +0.0 is added.

Joining adapters along the rank is the idea of Chen et al., 2023, "Punica". This module knows
OpenVINO's operations and imports them on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.generation.adapter_base import mismatch
from penstock.runtimes.generation.adapter_files import WEIGHTS, AdapterFiles, Layer, Matrix
from penstock.runtimes.openvino_genai.structured import with_past
from penstock.runtimes.tensor_bytes import decode_raw

#: Most adapters in one graph: numbers up to this stay exact in a cache of 8 bits.
ADAPTERS_MAX: Final = 64
#: Size of the head that carries the number: the CPU's paged attention needs multiples of 16.
HEAD_SIZE: Final = 16
#: Score of position 0: all others get e**-100, which is 0 in any precision.
_SCORE: Final = 100.0


def graph_with_adapters(
    model_dir: Path, adapters: Sequence[AdapterFiles], folder: Path, *, graph: str, stride: int
) -> None:
    """Writes a model's graph with these adapters into `folder`, with the model's settings beside
    it."""
    import openvino as ov

    model = ov.Core().read_model(model_dir / graph)
    add_adapters(model, adapters, stride=stride)
    ov.save_model(model, folder / graph, compress_to_fp16=False)
    for name in ("config.json", "generation_config.json"):
        if (model_dir / name).is_file():
            (folder / name).write_bytes((model_dir / name).read_bytes())


def add_adapters(model: Any, adapters: Sequence[AdapterFiles], *, stride: int) -> None:
    """Adds adapters to `model`, an `openvino.Model` made by `penstock compile` or Optimum.

    `stride`: more than any token's id. Raises CallerError (`adapter-mismatch`) for an adapter that
    does not fit this model, ModelError (`adapters-unsupported`) for a graph that can't have any.
    """
    graph = _Graph(model)
    layers = graph.layers()
    joined: dict[str, list[tuple[int, AdapterFiles, Layer]]] = {}
    for number, adapter in enumerate(adapters, start=1):
        for layer in adapter.layers:
            _check(layer, layers)
            joined.setdefault(layer.module, []).append((number, adapter, layer))
    numbers = graph.numbers(stride)
    for module, parts in joined.items():
        graph.join(layers[module], numbers, parts)
    model.validate_nodes_and_infer_types()


def _check(layer: Layer, layers: dict[str, Any]) -> None:
    product = layers.get(layer.module)
    if product is None:
        raise mismatch(f"the base has no linear layer {layer.module!r}")
    width_in, width_out = _width(product.input_value(0)), _width(product.output(0))
    if (layer.down.columns, layer.up.rows) != (width_in, width_out):
        raise mismatch(
            f"{layer.module} maps {width_in} to {width_out} numbers in the base, and"
            f" {layer.down.columns} to {layer.up.rows} in the adapter"
        )


def _width(value: Any) -> int:
    last = value.get_partial_shape()[-1]
    return int(last.get_length()) if last.is_static else -1


class _Graph:
    """One model that is being changed."""

    def __init__(self, model: Any) -> None:
        import openvino.opset13 as ops

        self._ops: Any = ops
        self._model = model

    def layers(self) -> dict[str, Any]:
        """Multiplications by weights, by the name of their module. The one that makes the logits is
        left out: the library looks for it at the very end of the graph."""
        last = {result.input_value(0).get_node().get_name() for result in self._model.get_results()}
        found: dict[str, Any] = {}
        for node in self._model.get_ordered_ops():
            module, slash, _ = node.get_friendly_name().removeprefix("__module.").partition("/")
            if node.get_type_name() == "MatMul" and slash and node.get_name() not in last:
                found.setdefault(module, node)
        if not found:
            raise _unsupported("the layers of its graph have no names")
        return found

    def numbers(self, stride: int) -> Any:
        """[rows, tokens, 1]: the number of each token's adapter, as floating point."""
        ops = self._ops
        ids, positions = self._input("input_ids"), self._input("position_ids")
        readers = list(ids.output(0).get_target_inputs())
        real = ops.mod(ids, self._integers(stride))
        number = ops.convert(ops.divide(ids, self._integers(stride)), "f32")
        for reader in readers:
            reader.replace_source_output(real.output(0))
        first = ops.convert(ops.equal(positions, self._integers(0)), "f32")
        everyone = ops.add(ops.multiply(first, self._floats(0.0)), self._floats(1.0))
        at = len(self._model.get_sinks()) // 2  # after the variables of the model's own layers
        keys = self._kept(
            f"past_key_values.{at}.keypresent.{at}.key",
            self._head(ops.multiply(first, self._floats(_SCORE))),
            ids,
        )
        values = self._kept(
            f"past_key_values.{at}.valuepresent.{at}.value", self._head(number), ids
        )
        told = ops.scaled_dot_product_attention(
            self._head(everyone), keys, values, self._mask(), self._floats(1.0), causal=False
        )
        told = ops.transpose(told, self._shape([0, 2, 1, 3]))
        told = ops.reshape(told, self._shape([0, 0, HEAD_SIZE]), True)
        told = ops.gather(told, self._shape([0]), self._shape(2))
        return ops.round(told, "half_to_even")

    def join(
        self, product: Any, numbers: Any, parts: list[tuple[int, AdapterFiles, Layer]]
    ) -> None:
        """Adds the contribution of each token's own adapter to a layer's output."""
        ops = self._ops
        down = np.concatenate([_array(files, layer.down) for _, files, layer in parts])
        up = np.concatenate(
            [_array(files, layer.up) * np.float32(layer.scale) for _, files, layer in parts], axis=1
        )
        owners = np.concatenate(
            [np.full(layer.down.rows, number, np.float32) for number, _, layer in parts]
        )
        if not (np.isfinite(down).all() and np.isfinite(up).all()):
            raise mismatch(f"{parts[0][2].module} has weights that are infinite or no numbers")
        low = ops.matmul(product.input_value(0), self._floats(down), False, True)
        # Selected, not multiplied by 0: an overflow in one adapter must not reach the others.
        own = ops.select(ops.equal(numbers, self._floats(owners)), low, self._floats(0.0))
        readers = list(product.output(0).get_target_inputs())
        total = ops.add(product, ops.matmul(own, self._floats(up), False, True))
        for reader in readers:
            reader.replace_source_output(total.output(0))

    def _head(self, value: Any) -> Any:
        """[rows, tokens] as [rows, 1, tokens, HEAD_SIZE]: the value first, then zeros."""
        ops = self._ops
        place = np.zeros(HEAD_SIZE, np.float32)
        place[0] = 1.0
        wide = ops.multiply(ops.unsqueeze(value, self._shape(-1)), self._floats(place))
        wide = ops.reshape(wide, self._shape([0, 0, 1, HEAD_SIZE]), True)
        return ops.transpose(wide, self._shape([0, 2, 1, 3]))

    def _kept(self, name: str, new: Any, ids: Any) -> Any:
        joined, sink = with_past(name, new, ids, self._input("beam_idx"))
        self._model.add_sinks([sink])
        return joined

    def _mask(self) -> Any:
        for node in self._model.get_ordered_ops():
            is_attention = node.get_type_name() == "ScaledDotProductAttention"
            if is_attention and node.get_input_size() > 3:
                return node.input_value(3)
        raise _unsupported("its graph has no scaled dot product attention with a mask")

    def _input(self, name: str) -> Any:
        try:
            return self._model.input(name).get_node()
        except RuntimeError:
            raise _unsupported(f"its graph has no input {name!r}") from None

    def _floats(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, dtype=np.float32))

    def _integers(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, dtype=np.int64))

    def _shape(self, value: Any) -> Any:
        return self._ops.constant(np.asarray(value, dtype=np.int32))


def _array(files: AdapterFiles, matrix: Matrix) -> np.ndarray:
    """The matrix in FP32. Its offsets in the file were checked when the file was read."""
    with open(files.root / WEIGHTS, "rb") as file:
        file.seek(matrix.begin)
        data = file.read(matrix.end - matrix.begin)
    dtype = {"F32": "FP32", "F16": "FP16", "BF16": "BF16"}[matrix.dtype]
    return decode_raw(data, dtype, (matrix.rows, matrix.columns)).astype(np.float32)


def _unsupported(cause: str) -> ModelError:
    return ModelError(
        "adapters-unsupported",
        f"the base can't take adapters: {cause}",
        hint="Compile it again by this version, or merge the adapter into the base.",
    )
