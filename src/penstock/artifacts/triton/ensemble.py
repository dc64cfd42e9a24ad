"""`ensemble_scheduling` of a Triton configuration, read and checked against the models it names.

The check needs the configurations alone, so a wrong ensemble is reported before anything loads,
with its file and its step. A model whose configuration leaves its tensors to the model file is
checked again after loading. The rules are Triton's: every input of a step's model has a source,
exactly one step makes a tensor, types are equal, and so are sizes unless one of them is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.artifacts.description.description import EnsembleStep, TensorSpec
from penstock.artifacts.triton.pbtxt import Fields
from penstock.artifacts.triton.refused_fields import REFUSED_OF_ENSEMBLES
from penstock.errors import CallerError

STEPS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTensors:
    """The known facts of a model that steps may call."""

    inputs: tuple[TensorSpec, ...]  #: empty = unknown before it is loaded
    outputs: tuple[TensorSpec, ...]
    versions: tuple[int, ...]  #: those that are served, the default one first
    rows_max: int  #: 0 = it has no batch dimension
    optional: frozenset[str] = frozenset()  #: inputs that a request may leave out


def read_steps(top: Fields) -> tuple[EnsembleStep, ...]:
    """The steps of a configuration's `ensemble_scheduling`. Raises CallerError."""
    scheduling = top.message("ensemble_scheduling")
    if scheduling is None:
        raise top.invalid("ensemble_scheduling", "missing", "given where the platform is ensemble")
    # In Triton this bounds memory between steps; here every model's own queue does.
    scheduling.integer("max_inflight_requests")
    items = scheduling.messages("step")
    scheduling.done()
    if not 1 <= len(items) <= STEPS_MAX:
        raise top.invalid("ensemble_scheduling.step", len(items), f"1 to {STEPS_MAX} steps")
    return tuple(_step(item) for item in items)


def _step(item: Fields) -> EnsembleStep:
    model = item.text("model_name")
    if not model:
        raise item.invalid("model_name", "missing", "the name of a model of the repository")
    cause, hint = REFUSED_OF_ENSEMBLES["model_namespace"]
    item.refuse("model_namespace", cause, hint=hint)
    step = EnsembleStep(
        model=model,
        version=item.integer("model_version", -1, low=-1),
        inputs=_map(item, "input_map"),
        outputs=_map(item, "output_map"),
    )
    item.done()
    return step


def _map(item: Fields, name: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in item.messages(name):
        key, value = entry.text("key"), entry.text("value")
        entry.done()
        if not key or not value:
            raise entry.invalid("key" if not key else "value", "empty", "a tensor's name")
        if key in entries:
            raise entry.invalid("key", key, "a tensor that no other entry of the map names")
        entries[key] = value
    if not entries:
        raise item.invalid(name, "missing", "at least one entry")
    return entries


def check_steps(
    steps: tuple[EnsembleStep, ...],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    models: Mapping[str, ModelTensors],
    *,
    rows_max: int,
    where: str,
) -> None:
    """Raises CallerError (`triton-ensemble-invalid`) naming `where` and the step.

    Args:
        inputs: the ensemble's own inputs; `outputs` likewise.
        models: the models of the repository, by name.
        rows_max: the ensemble's max_batch_size.
    """
    if not inputs or not outputs:
        missing = "output" if inputs else "input"
        raise _invalid(
            f"{where}: the ensemble names no {missing}",
            "Name the tensors that requests bring and that answers carry.",
        )
    known: dict[str, tuple[TensorSpec | None, str]] = {
        spec.name: (spec, "the ensemble's input") for spec in inputs
    }
    for at, step in enumerate(steps):
        place = f"{where}, step {at} ({step.model})"
        model = _model(step, models, rows_max, place)
        _check_names(step, model, place)
        for name, tensor in step.outputs.items():
            if tensor in known:
                raise _invalid(
                    f"{place}: the tensor {tensor!r} is made twice: it is also {known[tensor][1]}",
                    "Give each output a tensor of its own.",
                )
            known[tensor] = (_spec(model.outputs, name), f"an output of step {at} ({step.model})")
    for at, step in enumerate(steps):
        place = f"{where}, step {at} ({step.model})"
        for name, tensor in step.inputs.items():
            if tensor not in known:
                raise _invalid(
                    f"{place}: its input {name!r} is the tensor {tensor!r}, which nothing makes",
                    f"The tensors are: {', '.join(known)}.",
                )
            spec = _spec(models[step.model].inputs, name)
            _check_fit(known[tensor][0], spec, tensor, f"{place}, input {name!r}")
    for spec in outputs:
        if spec.name not in known:
            raise _invalid(
                f"{where}: no step makes the ensemble's output {spec.name!r}",
                f"The tensors are: {', '.join(known)}.",
            )
        _check_fit(known[spec.name][0], spec, spec.name, f"{where}, output")
    in_order(steps, where=where)


def in_order(steps: tuple[EnsembleStep, ...], *, where: str) -> tuple[int, ...]:
    """The steps' numbers, each after the steps that feed it. Raises CallerError on a cycle."""
    makers = {tensor: at for at, step in enumerate(steps) for tensor in step.outputs.values()}
    placed: list[int] = []
    left = list(range(len(steps)))
    while left:
        ready = [at for at in left if _sources(steps[at], makers) <= set(placed)]
        if not ready:
            circle = ", ".join(f"{at} ({steps[at].model})" for at in left)
            raise _invalid(
                f"{where}: the steps {circle} wait for one another",
                "Take one of the tensors out of the circle.",
            )
        placed += ready
        left = [at for at in left if at not in placed]
    return tuple(placed)


def _sources(step: EnsembleStep, makers: Mapping[str, int]) -> set[int]:
    return {makers[tensor] for tensor in step.inputs.values() if tensor in makers}


def _model(
    step: EnsembleStep, models: Mapping[str, ModelTensors], rows_max: int, place: str
) -> ModelTensors:
    model = models.get(step.model)
    if model is None:
        raise _invalid(
            f"{place}: the repository has no model {step.model!r}",
            f"It holds {', '.join(sorted(models)) or 'no other model'}.",
        )
    if step.version not in (-1, *model.versions):
        served = ", ".join(map(str, model.versions))
        raise _invalid(
            f"{place}: it asks for version {step.version}, served is {served}",
            "Leave model_version out, or let the model's version_policy name that version.",
        )
    if 0 < model.rows_max < rows_max:
        raise _invalid(
            f"{place}: the ensemble's max_batch_size is {rows_max}, its is {model.rows_max}",
            "An ensemble allows no larger batch than each of its models.",
        )
    return model


def _check_names(step: EnsembleStep, model: ModelTensors, place: str) -> None:
    for kind, mapped, specs in (
        ("input", step.inputs, model.inputs),
        ("output", step.outputs, model.outputs),
    ):
        names = [spec.name for spec in specs]
        for name in mapped if names else ():
            if name not in names:
                raise _invalid(
                    f"{place}: the model has no {kind} {name!r}", f"It has {', '.join(names)}."
                )
    for spec in model.inputs:
        if spec.name not in step.inputs and spec.name not in model.optional:
            raise _invalid(
                f"{place}: nothing is mapped to the model's input {spec.name!r}",
                "Every input of a model needs an entry in input_map.",
            )


def _check_fit(made: TensorSpec | None, read: TensorSpec | None, tensor: str, place: str) -> None:
    """Compares two tensors as far as they are known; the rest is checked after loading."""
    if made is None or read is None:
        return
    if made.dtype != read.dtype:
        raise _invalid(
            f"{place}: the tensor {tensor!r} is {made.dtype}, {read.dtype} is wanted",
            "Let both ends have one data_type, or convert between them in a Python model.",
        )
    sizes = zip(made.shape, read.shape, strict=False)
    if len(made.shape) != len(read.shape) or any(a != b and -1 not in (a, b) for a, b in sizes):
        raise _invalid(
            f"{place}: the tensor {tensor!r} is {list(made.shape)}, {list(read.shape)} is wanted",
            "Sizes must be equal or free (-1), the batch dimension included.",
        )


def _spec(specs: tuple[TensorSpec, ...], name: str) -> TensorSpec | None:
    return next((spec for spec in specs if spec.name == name), None)


def _invalid(message: str, hint: str) -> CallerError:
    return CallerError("triton-ensemble-invalid", message, hint=hint)
