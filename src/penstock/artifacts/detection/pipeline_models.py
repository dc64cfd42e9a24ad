"""The models that lie in a pipeline's artifact: folders that `model` steps of pipeline.yaml name.

Only finds and describes them. Whatever else is wrong with the file is told by whoever reads it
whole (`runtimes.pipeline.file`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import ModelDescription, ModelInside
from penstock.artifacts.description.yaml_tree import read_tree
from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError


def models_of(
    root: Path, file: str, describe: Callable[[Path], tuple[ModelDescription, Path]]
) -> tuple[ModelInside, ...]:
    """`describe` is given a model's folder, and returns the one that its paths are relative to.

    The name of such a model is its folder's path. Raises CallerError for one that is not there, or
    wrong, or calls others itself.
    """
    found: dict[str, ModelInside] = {}
    for folder in _folders(read_tree((root / file).read_bytes(), file)):
        if folder in found:
            continue
        path = root / safe_path(folder, where=f"{file}: model.folder")
        if not path.is_dir() or not path.resolve().is_relative_to(root.resolve()):
            raise CallerError(
                "artifact-incomplete",
                f"{file}: model.folder is {shown(folder)}, and the artifact has no such folder",
                hint="Name a folder that holds a model, relative to the artifact's root.",
            )
        try:
            description, place = describe(path)
        except CallerError as error:
            raise CallerError(
                error.code, f"model {shown(folder)}: {error.message}", hint=error.hint
            ) from None
        if description.runtime == "pipeline" or description.models:
            raise CallerError(
                "pipeline-invalid",
                f"{file}: the model {shown(folder)} calls other models itself",
                hint="Name those models in steps of this pipeline.",
            )
        relative = place.relative_to(root).as_posix()
        found[folder] = ModelInside(name=folder, folder=relative, description=description)
    return tuple(found.values())


def _folders(tree: Any) -> list[str]:
    steps = tree.get("steps") if isinstance(tree, dict) else None
    models = [
        step["model"]
        for step in (steps if isinstance(steps, list) else [])
        if isinstance(step, dict) and isinstance(step.get("model"), dict)
    ]
    return [
        str(model["folder"])
        for model in models
        if isinstance(model.get("folder"), str) and model["folder"]
    ]
