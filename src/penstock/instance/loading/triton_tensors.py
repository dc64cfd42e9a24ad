"""A Triton configuration against the model that was loaded: completed, or refused.

Triton's rules. A side (`input`, `output`) that the configuration leaves out is the file's. With a
side left out, a model whose tensors all begin with a free dimension batches, four rows at most
where the configuration gives no number. What the configuration says must be so in the file: names,
types and sizes; and it names every input of the file. Outputs that it leaves out can't be asked
for.

One rule is milder than Triton's: a file with a fixed first dimension may have a `max_batch_size`.
Pure: it loads nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from penstock.artifacts.description.description import Batching, ModelDescription, TensorSpec
from penstock.artifacts.triton.config_json import completed_json, config_from, specs_of
from penstock.errors import ModelError
from penstock.instance.engines.reshape import ReshapedRuntime, Reshapes
from penstock.runtimes.base import TensorRuntime

#: Triton's `default-max-batch-size`.
ROWS_MAX_DERIVED: Final = 4

Specs = tuple[TensorSpec, ...]


def with_kinds(description: ModelDescription, accelerators: int) -> ModelDescription:
    """The description with the kind and the GPUs of each instance group, as Triton decides them:
    KIND_AUTO is on GPUs where there are any and it names no other, and KIND_GPU without `gpus` is
    on all of them.

    Raises ModelError: `gpu-missing`, where a group asks for a GPU that is not there.
    """
    facts = description.triton
    if facts is None or not facts.config.get("instance_group"):
        return description
    groups = [_with_kind(group, accelerators) for group in facts.config["instance_group"]]
    config = {**facts.config, "instance_group": groups}
    return dataclasses.replace(description, triton=dataclasses.replace(facts, config=config))


def _with_kind(group: dict[str, Any], accelerators: int) -> dict[str, Any]:
    kind, gpus = group["kind"], group["gpus"]
    missing = [gpu for gpu in gpus if gpu >= accelerators]
    if kind == "KIND_AUTO":
        kind = "KIND_GPU" if accelerators and not missing else "KIND_CPU"
    elif kind == "KIND_GPU" and (missing or not accelerators):
        has = f"GPUs 0 to {accelerators - 1}" if accelerators else "no GPU"
        what = f"asks for GPU {missing[0]}" if accelerators else "has kind KIND_GPU"
        raise ModelError(
            "gpu-missing",
            f"config.pbtxt: instance_group {group['name']!r} {what}, and the instance has {has}",
            hint="Leave kind out, or write KIND_CPU; or deploy it on an instance type with GPUs.",
        )
    if kind != "KIND_GPU":
        gpus = []
    return {**group, "kind": kind, "gpus": gpus or list(range(accelerators * (kind == "KIND_GPU")))}


def completed(description: ModelDescription, inputs: Specs, outputs: Specs) -> ModelDescription:
    """The description with the tensors of its file, `inputs` and `outputs`, where it left them out.

    Raises ModelError (`tensor-mismatch`). A model that is none of Triton's is returned as it is.
    """
    facts = description.triton
    if facts is None:
        return description
    batching = description.batching
    if not (description.inputs and description.outputs):
        batching = _batching(description, inputs + outputs)
    rows_max = batching.rows_max
    derived = rows_max != description.batching.rows_max
    taken = _requested(description.inputs, inputs, rows_max, derived)
    given = _requested(description.outputs, outputs, rows_max, derived)
    scalars = _scalars(inputs + outputs, taken + given, rows_max)
    reshapes = {**dict.fromkeys(scalars, ()), **facts.reshapes}
    for side, said, actual in (("input", taken, inputs), ("output", given, outputs)):
        for spec in said:
            _check(description, side, spec, actual, reshapes.get(spec.name), rows_max)
    missing = {spec.name for spec in inputs} - {spec.name for spec in taken} - facts.optional
    if missing:
        raise _mismatch(
            f"config.pbtxt names the inputs {_names(taken)}, and {description.file} has also "
            f"{', '.join(sorted(missing))}"
        )
    config = completed_json(
        facts.config, inputs=taken, outputs=given, rows_max=rows_max, scalars=scalars,
    )  # fmt: skip
    return dataclasses.replace(
        description,
        inputs=taken,
        outputs=given,
        batching=batching,
        triton=dataclasses.replace(facts, config=config, reshapes=reshapes),
    )


def completed_by_code(description: ModelDescription, config: dict[str, Any]) -> ModelDescription:
    """The description of a Python model with the configuration that its code has completed.

    Raises ModelError (`model-config-invalid`) for what is no configuration, or one without inputs.
    """
    facts = description.triton
    if facts is None:
        return description
    try:
        whole = config_from(config)
        rows_max = int(whole["max_batch_size"])
        inputs, outputs = (specs_of(whole[side], rows_max) for side in ("input", "output"))
    except (ValueError, KeyError) as error:
        raise _invalid(f"auto_complete_config made no configuration: {error}") from None
    if not inputs:
        raise _invalid("neither config.pbtxt nor auto_complete_config names an input")
    return dataclasses.replace(
        description,
        inputs=inputs,
        outputs=outputs,
        decoupled=bool(whole.get("model_transaction_policy", {}).get("decoupled")),
        batching=dataclasses.replace(description.batching, rows_max=rows_max),
        triton=dataclasses.replace(
            facts,
            config=whole,
            optional=frozenset(each["name"] for each in whole["input"] if each["optional"]),
        ),
    )


def _invalid(cause: str) -> ModelError:
    return ModelError(
        "model-config-invalid",
        cause,
        hint="Name the model's inputs and outputs in config.pbtxt, or in auto_complete_config with "
        "add_input and add_output.",
    )


def reshapes_of(description: ModelDescription) -> Reshapes:
    facts = description.triton
    return Reshapes(
        description.inputs,
        description.outputs,
        facts.reshapes if facts is not None else {},
        batched=description.batching.rows_max > 0,
    )


def reshaped(runtime: TensorRuntime, description: ModelDescription) -> Any:
    """The runtime with tensors as requests have them."""
    reshapes = reshapes_of(description)
    return ReshapedRuntime(runtime, reshapes) if reshapes else runtime


def _batching(description: ModelDescription, specs: Specs) -> Batching:
    batching = description.batching
    may = all(spec.shape and spec.shape[0] == -1 for spec in specs)
    if may and batching.rows_max == 0:
        return dataclasses.replace(batching, rows_max=ROWS_MAX_DERIVED)
    flat = next((spec.name for spec in specs if not spec.shape), "")
    if flat and batching.rows_max > 0:
        raise _mismatch(
            f"config.pbtxt gives max_batch_size {batching.rows_max}, and {flat!r} of "
            f"{description.file} has no dimension"
        )
    return batching


def _requested(said: Specs, actual: Specs, rows_max: int, derived: bool) -> Specs:
    """`derived`: it was found out after the configuration was read that there are rows."""
    if not said:
        return tuple(_as_requested(spec, rows_max) for spec in actual)
    if not derived:
        return said
    return tuple(dataclasses.replace(spec, shape=(-1, *spec.shape)) for spec in said)


def _as_requested(spec: TensorSpec, rows_max: int) -> TensorSpec:
    """As Triton shows a tensor of the file: one without dimensions has a single element."""
    dims = spec.shape[1:] if rows_max else spec.shape
    dims = dims or (1,)
    return dataclasses.replace(spec, shape=(-1, *dims) if rows_max else dims)


def _scalars(actual: Specs, said: Specs, rows_max: int) -> frozenset[str]:
    """Tensors that have no dimension in the file, rows aside, and a single element in requests."""
    single = {spec.name for spec in said if set(spec.shape[rows_max > 0 :]) == {1}}
    return frozenset(
        spec.name for spec in actual if len(spec.shape) == (rows_max > 0) and spec.name in single
    )


def _check(
    description: ModelDescription,
    side: str,
    said: TensorSpec,
    actual: Specs,
    reshape: tuple[int, ...] | None,
    rows_max: int,
) -> None:
    found = next((spec for spec in actual if spec.name == said.name), None)
    if found is None:
        raise _mismatch(
            f"config.pbtxt names the {side} {said.name!r}, and {description.file} has "
            f"{_names(actual)}"
        )
    shape = said.shape
    if reshape is not None:
        shape = (-1, *reshape) if rows_max else reshape
    sizes = list(zip(found.shape, shape, strict=False))[1 if rows_max else 0 :]
    fits = len(found.shape) == len(shape) and all(own in (-1, size) for own, size in sizes)
    if fits and found.dtype == said.dtype:
        return
    rows = f", as max_batch_size is {rows_max}" if rows_max else ""
    reshaped = f" (from {list(said.shape)})" if reshape is not None else ""
    raise _mismatch(
        f"config.pbtxt says that the {side} {said.name!r} is {said.dtype} {list(shape)}"
        f"{reshaped}{rows}, and in {description.file} it is {found.dtype} {list(found.shape)}"
    )


def _names(specs: Specs) -> str:
    return ", ".join(sorted(spec.name for spec in specs))


def _mismatch(message: str) -> ModelError:
    return ModelError(
        "tensor-mismatch",
        message,
        hint="Correct config.pbtxt, or leave out its input and output: the file then says them. "
        "With max_batch_size above 0, dims are without the batch dimension.",
    )
