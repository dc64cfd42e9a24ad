"""The models of a Triton repository that stand behind the one that answers requests.

An ensemble needs the models of its steps; a Python model may call any model of its repository
(Triton's business logic scripting). Which of them are loaded follows from the files alone: a Python
model that never speaks of an `InferenceRequest` calls nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from penstock.artifacts.description.description import ModelDescription, ModelInside
from penstock.artifacts.files.paths import shown
from penstock.artifacts.triton.ensemble import ModelTensors, check_steps
from penstock.artifacts.triton.triton_repository import CONFIG, describe
from penstock.errors import CallerError

#: What code that calls another model names, by whichever way it gets at it.
_CALLS = b"InferenceRequest"


def describe_entry(root: Path, folder: Path, *, runtime: str = "") -> ModelDescription:
    """The model in `folder`, with those of the repository `root` that it calls or may call.

    Where `folder` is `root`, the artifact is one model without a repository around it. Raises
    `CallerError` as `describe` does, and `triton-ensemble-invalid`.
    """
    folders = {} if folder == root else _folders(root)
    entry = describe(folder, runtime=runtime)
    if not entry.ensemble and not (folders and _calls(folder, entry)):
        return entry
    entry = _named(entry, folder)
    known = _reached(entry, folder, folders, runtime)
    tensors = {name: tensors_of(model) for name, model in known.items()}
    for name, model in known.items():
        if model.ensemble:
            check_ensemble(model, tensors, where=f"{name}/{CONFIG}")
    del known[folder.name]
    inside = (
        ModelInside(name=name, folder=f"../{name}", description=known[name])
        for name in sorted(known)
    )
    return dataclasses.replace(entry, models=tuple(inside))


def tensors_of(model: ModelDescription) -> ModelTensors:
    return ModelTensors(
        inputs=model.inputs,
        outputs=model.outputs,
        version=int(model.version),
        rows_max=model.batching.rows_max,
    )


def check_ensemble(
    model: ModelDescription, tensors: Mapping[str, ModelTensors], *, where: str
) -> None:
    """Raises CallerError (`triton-ensemble-invalid`)."""
    check_steps(
        model.ensemble, model.inputs, model.outputs, tensors,
        rows_max=model.batching.rows_max, where=where,
    )  # fmt: skip


def _folders(root: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(root.glob(f"*/{CONFIG}"))}


def _calls(folder: Path, model: ModelDescription) -> bool:
    """Whether a Python model may call others: any of its files speaks of it."""
    if not model.triton_python:
        return False
    return any(_CALLS in path.read_bytes() for path in folder.rglob("*.py") if path.is_file())


def _reached(
    entry: ModelDescription, folder: Path, folders: Mapping[str, Path], runtime: str
) -> dict[str, ModelDescription]:
    """Every model that a request to `entry` may come to, itself included."""
    known = {folder.name: entry}
    waiting = [folder.name]
    while waiting:
        name = waiting.pop()
        model = known[name]
        wanted = set(folders) if model.calls_models else {step.model for step in model.ensemble}
        for other in sorted(wanted - set(known)):
            if other in folders:  # if it is not there, the check of the ensemble tells where
                known[other] = _described(folders[other], runtime)
                waiting.append(other)
    _refuse_circles(known)
    return known


def _described(folder: Path, runtime: str) -> ModelDescription:
    try:
        return _named(describe(folder, runtime=runtime), folder)
    except CallerError as error:
        raise CallerError(
            error.code, f"model {shown(folder.name)}: {error.message}", hint=error.hint
        ) from None


def _named(model: ModelDescription, folder: Path) -> ModelDescription:
    """Models call each other by their folders' names. Raises CallerError for one with another."""
    if model.name != folder.name:
        raise CallerError(
            "triton-config-invalid",
            f"{CONFIG}: name is {model.name!r}, and its folder is {shown(folder.name)}",
            hint="Leave name out, or let it be the folder's.",
        )
    return dataclasses.replace(model, calls_models=_calls(folder, model))


def _refuse_circles(known: Mapping[str, ModelDescription]) -> None:
    """An ensemble that is a step of itself, at whatever distance, would never end."""
    left = {
        name: {step.model for step in model.ensemble} & set(known)
        for name, model in known.items()
        if model.ensemble
    }
    while True:
        done = [
            name
            for name, steps in left.items()
            if not steps & set(left) or not any(name in others for others in left.values())
        ]
        if not done:
            break
        for name in done:
            del left[name]
    if left:
        name = min(left)
        raise CallerError(
            "triton-ensemble-invalid",
            f"{name}/{CONFIG}: the ensembles {', '.join(sorted(left))} are steps of one another",
            hint="Take one of the steps out of the circle.",
        )
