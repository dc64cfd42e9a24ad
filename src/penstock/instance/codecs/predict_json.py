"""Plain JSON for tensor models: a bare array of rows, `{"instances": ...}` or `{"inputs": ...}`.

A model with one input takes its rows directly; one with several takes `{"inputs": {name: rows}}` or
instances that are objects by input name. The answer is `{"predictions": ...}`: rows for one output,
one object per row for several (an object of whole tensors where the model has no batch dimension).
"""

from __future__ import annotations

from typing import Any

from penstock.instance.codecs import answers
from penstock.instance.codecs.base import CodecModel, Decoded, Tensors, bad, check_inputs
from penstock.instance.codecs.values import parse_json, to_array


def decode_parsed(model: CodecModel, parsed: Any, accept: str | None) -> Decoded:
    return _decoded(model, parsed, answers.chosen(model, accept, answers.AFTER_JSON))


def decode_lines(model: CodecModel, body: bytes, accept: str | None) -> Decoded:
    """Bodies of `application/jsonlines`: one instance per line."""
    rows = [parse_json(line) for line in body.splitlines() if line.strip()]
    return _decoded(model, rows, answers.chosen(model, accept, answers.AFTER_JSON))


def _decoded(model: CodecModel, parsed: Any, encode: Any) -> Decoded:
    tensors = _tensors(model, parsed)
    return Decoded(tensors, check_inputs(model, tensors), encode)


def _tensors(model: CodecModel, parsed: Any) -> Tensors:
    if isinstance(parsed, dict):
        if "instances" in parsed:
            parsed = parsed["instances"]
        elif "inputs" in parsed:
            parsed = parsed["inputs"]
            if isinstance(parsed, dict):
                return _by_name(model, parsed)
        else:
            raise bad(
                'a JSON object needs "instances" or "inputs"; '
                f"its keys are {', '.join(sorted(map(repr, parsed)))[:200] or 'none'}"
            )
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], dict):
        return _by_name(model, _columns(parsed))
    if len(model.inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in model.inputs)
        raise bad(
            f"the model has several inputs ({names})", hint='Send {"inputs": {name: rows, ...}}.'
        )
    spec = model.inputs[0]
    return {spec.name: to_array(parsed, spec.dtype, spec.name)}


def _columns(instances: list[Any]) -> dict[str, list[Any]]:
    """Turns one object per row (keys are input names) into rows by input name."""
    names = list(instances[0])
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for at, instance in enumerate(instances):
        if not isinstance(instance, dict) or instance.keys() != columns.keys():
            raise bad(f"instance {at} does not have the inputs of instance 0: {', '.join(names)}")
        for name, value in instance.items():
            columns[name].append(value)
    return columns


def _by_name(model: CodecModel, values: dict[str, Any]) -> Tensors:
    specs = {spec.name: spec for spec in model.inputs}
    tensors: Tensors = {}
    for name, value in values.items():
        spec = specs.get(name)
        if spec is None:
            raise bad(f"input {name[:80]!r} is not one of the model's: {', '.join(sorted(specs))}")
        tensors[name] = to_array(value, spec.dtype, name)
    return tensors
