"""An encoder's graph, changed so that several texts lie side by side in one row of tokens.

Padding each text to the longest of its batch, and each batch to one of few sizes, makes a graph
compute what nobody asked for: of eight queries with 6 to 9 tokens, padded to 8 or 12, a third. And
texts of different lengths must wait for batches of their own. In a packed graph a row holds texts
one after the other. A token attends to the tokens of its own text only, has the position that it
has there, and what is read of a text's first token is read where that text begins. (Known as
sequence packing, or padding removal: "effective transformers", FlashAttention's `varlen`.)

The graph may come from any exporter, so it is changed by what depends on what, not by names:

* what depends on the attention mask alone, and is added to attention's scores, becomes a mask by
  texts: 1 and 0 keep the values that the model gives to a token and to padding;
* what depends on nothing but the length is a table of positions (embeddings, or token types that
  are not asked for). It is looked up at each token's own position;
* positions that are counted from the ids or the mask (RoBERTa) are replaced by the given ones;
* a first token (`x[:, 0]`) is taken at the beginning of each text;
* a sum over tokens, as means have it, is taken over each text's own.

Anything else is refused, with a reason: positions of pairs of tokens, other pooling. A change that
looks right is still tried: `verify` compares answers with the graph as it was.

A packed graph's inputs are those of the model but its mask, and `POSITIONS`, `TEXTS` (the number of
a token's text in its batch, from 0; -1 for a place that no text has), and `FIRST`: for each text
the place of its first token, counted over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.core.batching.packed_sizes import ROW_TOKENS
from penstock.runtimes.packed_rows import (
    FIRST,
    MASK,
    POSITIONS,
    TEXTS,
    Layout,
    placed_texts,
)

_IDS: Final = "input_ids"
_TYPES: Final = "token_type_ids"
#: A difference between a text alone and one in company, relative to the largest answer
_TOLERANCE: Final = 1e-3
#: Rounded arithmetic makes company noticeable in any graph: so many times that is allowed
_NOISE: Final = 4.0
_TRIED_LENGTHS: Final = (5, 7, 3, 40, 9, 2, 4, 33)
_IDS_MAX: Final = 1000
#: An id that is no tokenizer's padding in any model seen
_NO_PADDING: Final = 5
#: Operations after which numbers still say which places have tokens
_SAME_TOKENS: Final = {"Convert", "Unsqueeze", "Squeeze", "Reshape", "Broadcast", "LogicalNot"}


class NotPacked(Exception):
    """This graph can't be packed; the message says why."""


@dataclass(frozen=True, slots=True)
class PackedModel:
    model: Any  #: an `openvino.Model` of any number of rows, tokens and texts
    layout: Layout


def packed(source: Any) -> PackedModel:
    """Changes the graph `source` itself. Raises NotPacked."""
    return _Packing(source).made()


def verify(source: Any, made: PackedModel, config: Mapping[str, Any]) -> None:
    """Compares answers to texts side by side with those of each text alone. `source`: the graph as
    it was. Raises NotPacked."""
    from penstock.runtimes.openvino.runtime import shared_core

    alone, together = (
        shared_core().compile_model(model, "CPU", dict(config)) for model in (source, made.model)
    )
    numbers = np.random.default_rng(1)
    texts = [
        numbers.integers(_NO_PADDING, _most(source, _IDS, _IDS_MAX), length).tolist()
        for length in _TRIED_LENGTHS
    ]
    placed = placed_texts([len(text) for text in texts])
    assert placed is not None, "short texts have places"
    types = [
        [at * _most(source, _TYPES, 2) // len(text) for at in range(len(text))] for text in texts
    ]
    tokens = {_IDS: texts, _TYPES: types}
    given = placed.inputs(made.layout, tokens, len(texts))
    kinds = [each.get_element_type().to_dtype() for each in made.model.inputs]
    answer = together([array.astype(kind) for array, kind in zip(given, kinds, strict=True)])
    outputs = {str(at): np.array(answer[at]) for at in range(len(made.layout.of_rows))}
    found = list(placed.outputs(made.layout, outputs).values())
    padded = _answers(alone, texts, types)
    for at, of_rows in enumerate(made.layout.of_rows):
        rows = [
            _answers(alone, [text], [own])[at][0] for text, own in zip(texts, types, strict=True)
        ]
        for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
            ends = None if of_rows else len(text)
            noise = _distance(row[:ends], padded[at][number][:ends])
            scale = float(np.abs(row).max())
            allowed = _TOLERANCE * scale + _NOISE * noise
            if not _distance(row[:ends], found[at][number][:ends]) <= allowed:  # NaN is no answer
                raise NotPacked(f"its answers differ in output {at}")


def _answers(
    graph: Any, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """The outputs for these texts, padded to the longest."""
    shape = (len(texts), max(map(len, texts)))
    by_name = {name: np.zeros(shape, dtype=np.int64) for name in (_IDS, MASK, _TYPES)}
    for at, (text, own) in enumerate(zip(texts, types, strict=True)):
        by_name[_IDS][at, : len(text)], by_name[MASK][at, : len(text)] = text, 1
        by_name[_TYPES][at, : len(text)] = own
    given = [
        by_name[_input_name(port.get_node())].astype(port.get_element_type().to_dtype())
        for port in graph.inputs
    ]
    answer = graph(given)
    return [np.array(answer[at]) for at in range(len(graph.outputs))]


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max()) if one.shape == other.shape else np.inf


def _most(source: Any, name: str, most: int) -> int:
    """A number, up to `most`, below which all values of this input have embeddings."""
    sizes = [most]
    for op in source.get_ordered_ops():
        if op.get_type_name() != "Gather":
            continue
        table = op.input_value(0).get_partial_shape()
        if table.rank.is_dynamic or table.rank.get_length() != 2 or table[0].is_dynamic:
            continue
        index = op.input_value(1).get_node()
        while index.get_type_name() == "Convert":
            index = index.input_value(0).get_node()
        if index.get_type_name() == "Parameter" and _input_name(index) == name:
            sizes.append(int(table[0].get_length()))
    return max(1, min(sizes))


class _Packing:
    """First everything is looked at and evaluated, then the graph is changed."""

    def __init__(self, source: Any) -> None:
        self._source = source
        inputs = {_input_name(port.get_node()): port for port in source.inputs}
        if not {_IDS, MASK} <= set(inputs) or not set(inputs) <= {_IDS, MASK, _TYPES}:
            raise NotPacked(f"its inputs are {', '.join(sorted(inputs))}")
        ranks = [port.get_partial_shape().rank for port in source.inputs]
        if any(rank.is_dynamic or rank.get_length() != 2 for rank in ranks):
            raise NotPacked("an input is not [texts, tokens]")
        self._mask = inputs[MASK].get_node()
        self._ops = list(source.get_ordered_ops())
        self._values = _value_dependencies(self._ops)
        self._positional = _positional(self._ops, self._values)
        self._sums = [op for op in self._ops if self._values[op.get_name()] and _sums_tokens(op)]
        self._only_mask = self._of_mask()

    def made(self) -> PackedModel:
        import openvino
        from openvino import opset13 as ops

        tables, masks, firsts = self._tables(), self._masks(), self._firsts()
        positions, texts = (_parameter(ops, name, [-1, -1]) for name in (POSITIONS, TEXTS))
        first = _parameter(ops, FIRST, [-1])
        for meets, table in tables:
            found = ops.gather(ops.constant(table), positions, np.int64(0))
            if table.ndim > 2:  # one table for all heads of attention
                found = ops.gather(ops.constant(table[0]), positions, np.int64(0))
                found = ops.unsqueeze(found, np.array([1]))
            _join(meets, found)
        same = ops.equal(
            ops.unsqueeze(texts, np.array([1, 3])), ops.unsqueeze(texts, np.array([1, 2]))
        )
        used = ops.greater_equal(texts, np.int64(0))
        for meets, kept, dropped, port in masks:
            kind, rank = port.get_element_type(), port.get_partial_shape().rank.get_length()
            values = [ops.constant(np.array(each), kind) for each in (kept, dropped)]
            where = {2: used, 3: ops.unsqueeze(used, np.array([2]))}.get(rank, same)
            _join(meets, ops.select(where, *values))
        taken = set()
        for op, width in firsts:
            flat = ops.reshape(op.input_value(0), np.array([-1, width]), special_zero=False)
            row = ops.gather(flat, first, np.int64(0))
            if op.output(0).get_partial_shape().rank.get_length() == 3:
                row = ops.unsqueeze(row, np.array([1]))
            _join(list(op.output(0).get_target_inputs()), row)
            taken.add(row.get_name())
        for op in self._sums:
            row = _sum_of_each(ops, op, texts, first)
            _join(list(op.output(0).get_target_inputs()), row)
            taken.add(row.get_name())
        results = self._source.get_results()
        of_rows = tuple(bool(taken & _ancestors(result)) for result in results)
        kept_inputs = [
            port.get_node() for port in self._source.inputs if _input_name(port.get_node()) != MASK
        ]
        nodes = [*kept_inputs, positions, texts, *([first] if taken else [])]
        needed = set().union(*map(_ancestors, results))
        if self._mask.get_name() in needed:
            raise NotPacked("it uses its mask in a way of its own")
        nodes = [node for node in nodes if node.get_name() in needed]
        model = openvino.Model(results, nodes, "packed")
        layout = Layout(
            inputs=tuple(_input_name(node) for node in nodes),
            dtypes=tuple(node.get_element_type().get_type_name() for node in nodes),
            of_rows=of_rows,
        )
        return PackedModel(model, layout)

    def _meets(self, port: Any, inside: set[str]) -> list[Any]:
        """Where a port's value goes on to what is not `inside`, and depends on values."""
        outside = {name for name, values in self._values.items() if values} - inside
        return [
            each for each in port.get_target_inputs() if each.get_node().get_name() in outside
        ]  # fmt: skip

    def _tables(self) -> list[tuple[list[Any], np.ndarray]]:
        """(where it is read, values by position) of all that depends on positions alone."""
        found = []
        for op in self._ops:
            if op.get_name() not in self._positional:
                continue
            for port in op.outputs():
                meets = self._meets(port, self._positional | self._only_mask)
                rank = port.get_partial_shape().rank
                if not meets or (rank.is_static and rank.get_length() < 2):
                    continue  # sizes of a reshape, which hold for any rows
                short, long = (self._evaluated(port, length) for length in (5, ROW_TOKENS))
                if short.shape == long.shape and np.array_equal(short, long):
                    continue
                found.append((meets, _table(short, long, op)))
        return found

    def _of_mask(self) -> set[str]:
        """Names of operations that say which places have tokens; not what was summed over them."""
        found: set[str] = set()
        summed = {op.get_name() for op in self._sums}
        for op in self._ops:
            if summed & {port.get_node().get_name() for port in op.input_values()}:
                summed.add(op.get_name())
            elif self._values[op.get_name()] == {MASK}:
                found.add(op.get_name())
        return found - summed - self._positional

    def _masks(self) -> list[tuple[list[Any], Any, Any, Any]]:
        """(where it is read, value of a token, value of padding, what it was) of all masks."""
        found = []
        for op in self._ops:
            if op.get_name() not in self._only_mask:
                continue
            for port in op.outputs():
                meets = self._meets(port, self._positional | self._only_mask)
                if meets:
                    found.append((meets, *self._mask_values(port), port))
        if not found:
            raise NotPacked("no attention reads its mask")
        return found

    def _mask_values(self, port: Any) -> tuple[Any, Any]:
        rank = port.get_partial_shape().rank
        if rank.is_dynamic or rank.get_length() not in {2, 3, 4}:
            raise NotPacked("it uses its mask in a way of its own")
        given = np.arange(ROW_TOKENS)[None] % 3 % 2  # tokens and padding in turn
        given[0, 0] = 1  # where no token is left, some models give a mask of its own
        seen = self._evaluated(port, ROW_TOKENS, given)
        by_token = seen if seen.ndim == 4 else np.swapaxes(seen.reshape(1, seen.shape[1], -1), 1, 2)
        if by_token.shape[-1] != ROW_TOKENS or (seen.ndim == 4 and seen.shape[1] != 1):
            raise NotPacked("its mask is not one of tokens alone")
        rows = by_token.reshape(-1, ROW_TOKENS)
        kept, dropped = rows[:, given[0] == 1], rows[:, given[0] == 0]
        if (kept != kept[0, 0]).any() or (dropped != dropped[0, 0]).any():
            raise NotPacked("its mask is not one of tokens alone")
        return kept[0, 0], dropped[0, 0]

    def _firsts(self) -> list[tuple[Any, int]]:
        """(operation that reads first tokens, their width)"""
        found = []
        for op in self._ops:
            if not self._values[op.get_name()] - {MASK} or not _takes_first(op):
                continue
            width = op.input_value(0).get_partial_shape()[2]
            if width.is_dynamic:
                raise NotPacked("the width of its tokens is not known")
            found.append((op, width.get_length()))
        return found

    def _evaluated(self, port: Any, length: int, mask: np.ndarray | None = None) -> np.ndarray:
        """What the graph has at `port` for one text of that length."""
        import openvino
        from openvino import opset13 as ops

        from penstock.runtimes.openvino.runtime import shared_core

        needed = _ancestors(port.get_node())
        inputs = [each.get_node() for each in self._source.inputs]
        part = openvino.Model(
            [ops.result(port)], [each for each in inputs if each.get_name() in needed], "part"
        )
        run = shared_core().compile_model(part, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        given = []
        for each in part.inputs:
            values = np.ones((1, length), dtype=np.int64)
            if _input_name(each.get_node()) == MASK and mask is not None:
                values = mask
            elif _input_name(each.get_node()) == _IDS:
                values += _NO_PADDING - 1
            given.append(values.astype(each.get_element_type().to_dtype()))
        return np.array(run(given)[0])


def _sums_tokens(op: Any) -> bool:
    """Whether it sums [texts, tokens, ...] over tokens, whose number is open: a vector's is known.
    Raises NotPacked for another pooling."""
    if not op.get_type_name().startswith("Reduce"):
        return False
    shape = op.input_value(0).get_partial_shape()
    length = shape.rank.get_length() if shape.rank.is_static else 0
    if length not in {2, 3} or shape[1].is_static:
        return False
    axes = {axis % length for axis in _constant(op, 1)}
    if 1 not in axes:
        return False
    if op.get_type_name() != "ReduceSum" or axes != {1}:
        raise NotPacked(f"it pools by {op.get_type_name()}")
    return True


def _sum_of_each(ops: Any, op: Any, texts: Any, first: Any) -> Any:
    """The sum over the tokens of each text, by a product with who has which token."""
    before = op.input_value(0)
    shape = before.get_partial_shape()
    width = shape[2] if shape.rank.get_length() == 3 else None
    if width is not None and width.is_dynamic:
        raise NotPacked("the width of its tokens is not known")
    flat = ops.reshape(
        before, np.array([-1, 1 if width is None else width.get_length()]), special_zero=False
    )
    count = ops.squeeze(ops.shape_of(first), np.array([0]))
    numbers = ops.unsqueeze(ops.range(np.int64(0), count, np.int64(1), "i64"), np.array([1]))
    owners = ops.equal(numbers, ops.reshape(texts, np.array([1, -1]), special_zero=False))
    kind = before.get_element_type().get_type_name()
    summed = ops.matmul(ops.convert(owners, kind), flat, False, False)
    keeps = bool(op.get_keep_dims())
    if width is None:
        return summed if keeps else ops.squeeze(summed, np.array([1]))
    return ops.unsqueeze(summed, np.array([1])) if keeps else summed


def _table(short: np.ndarray, long: np.ndarray, op: Any) -> np.ndarray:
    """[tokens, ...] of all positions in a row; or [1, tokens, ...], where heads share it."""
    at = {2: 1, 3: 1, 4: 2}.get(short.ndim, -1)
    before = (1,) * at
    if (
        at < 0
        or short.shape[: at + 1] != (*before, 5)
        or long.shape[: at + 1] != (*before, ROW_TOKENS)
        or short.shape[at + 1 :] != long.shape[at + 1 :]
        or not np.array_equal(short, np.take(long, np.arange(5), axis=at))
    ):
        raise NotPacked(f"{op.get_friendly_name()} depends on positions in a way of its own")
    return np.asarray(long[0])


def _positional(ordered: Sequence[Any], values: Mapping[str, set[str]]) -> set[str]:
    """Names of operations that depend on places in a text alone: by its length, or by counting its
    tokens, where all of them are tokens."""
    tokens: set[str] = set()  #: say which places have tokens
    by_length: set[str] = set()
    counted: set[str] = set()
    for op in ordered:
        name, kind = op.get_name(), op.get_type_name()
        before = [port.get_node() for port in op.input_values()]
        names = {each.get_name() for each in before}
        if kind == "ShapeOf" or (names & by_length and not values[name]):
            by_length.add(name)
            continue
        known = {each.get_name() for each in before if not values[each.get_name()]}
        if kind == "Parameter":
            if _input_name(op) == MASK:
                tokens.add(name)
        elif kind in {"NotEqual", "Equal"} and values[name] == {_IDS}:
            if all(each.get_type_name() in {"Parameter", "Constant", "Convert"} for each in before):
                tokens.add(name)
        elif (kind == "CumSum" or names & counted) and names <= known | tokens | counted:
            counted.add(name)
        elif names & tokens and names <= known | tokens and kind in _SAME_TOKENS:
            tokens.add(name)
    return by_length | counted


def _join(meets: Sequence[Any], node: Any) -> None:
    for each in meets:
        each.replace_source_output(node.output(0))


def _takes_first(op: Any) -> bool:
    """Whether it reads the first token of [texts, tokens, width]."""
    kind = op.get_type_name()
    if kind not in {"Gather", "Slice", "StridedSlice"}:
        return False
    before = op.input_value(0).get_partial_shape()
    if before.rank.is_dynamic or before.rank.get_length() != 3:
        return False
    if kind == "Gather":
        return _constant(op, 1) == [0] and _constant(op, 2) == [1]
    if kind == "Slice":  # start, stop, step, axes
        return (
            _constant(op, 1) == [0] and _constant(op, 2) == [1]
            and op.get_input_size() == 5 and _constant(op, 4) == [1]
        )  # fmt: skip
    after = op.output(0).get_partial_shape()
    one = after.rank.is_static and (
        after.rank.get_length() == 2
        or (after.rank.get_length() == 3 and after[1].is_static and after[1].get_length() == 1)
    )
    begin = _constant(op, 1)
    return one and len(begin) >= 2 and begin[1] == 0


def _constant(op: Any, at: int) -> list[Any]:
    node = op.input_value(at).get_node()
    if node.get_type_name() != "Constant":
        return []
    return [each.item() for each in np.asarray(node.get_data()).ravel()]


def _parameter(ops: Any, name: str, shape: list[int]) -> Any:
    made = ops.parameter(shape, np.int64, name=name)
    made.output(0).get_tensor().set_names({name})
    return made


def _value_dependencies(ordered: Sequence[Any]) -> dict[str, set[str]]:
    """By an operation's name: the inputs whose values it depends on. Shapes are no values."""
    found: dict[str, set[str]] = {}
    for op in ordered:
        if op.get_type_name() == "Parameter":
            found[op.get_name()] = {_input_name(op)}
        elif op.get_type_name() in {"ShapeOf", "Constant"}:
            found[op.get_name()] = set()
        else:
            before = [found[port.get_node().get_name()] for port in op.input_values()]
            found[op.get_name()] = set().union(*before)
    return found


def _input_name(op: Any) -> str:
    known = op.output(0).get_names() & {_IDS, MASK, _TYPES}
    return next(iter(known), str(op.get_friendly_name()))


def _all_ancestors(op: Any) -> list[Any]:
    found: dict[str, Any] = {}
    to_see = [op]
    while to_see:
        each = to_see.pop()
        if each.get_name() not in found:
            found[each.get_name()] = each
            to_see += [port.get_node() for port in each.input_values()]
    return list(found.values())


def _ancestors(op: Any) -> set[str]:
    return {each.get_name() for each in _all_ancestors(op)}
