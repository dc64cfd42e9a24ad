"""Language models as artifacts: a folder with a compiled graph, or with weights.

A folder is a language model where config.json names an architecture that ends in ForCausalLM. A
compiled graph is served by the engine that loads it. Weights go to an engine that reads them,
where one is requested, and are compiled otherwise. An engine that needs no model has a model.yaml
and nothing else. Files are read, nothing is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from penstock.artifacts.description.description import EngineOptions, ModelDescription, PaceSpec
from penstock.artifacts.description.generation_options import PROPERTIES, options_of, runtime_of
from penstock.artifacts.detection.huggingface import read_json
from penstock.artifacts.files.model_files import check_whole, inside
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import EngineRules

TASK = "text-generation"
_NEEDED = ("config.json", "tokenizer.json")


def is_language_model(root: Path) -> bool:
    path = root / "config.json"
    if not path.is_file():
        return False
    architectures = read_json(path).get("architectures")
    return isinstance(architectures, list) and any(
        str(name).endswith("ForCausalLM") for name in architectures
    )


def served_as_weights(root: Path, runtime: str, environment: Mapping[str, str]) -> bool:
    """Whether an engine reads `root`'s weights itself, so that they are not compiled."""
    return bool(_rules(runtime or runtime_of(root / PROPERTIES, environment)).weights)


def language_model(
    root: Path, environment: Mapping[str, str], wanted: str
) -> ModelDescription | None:
    """The description of a language model; None where `root` holds none.

    Raises CallerError (`artifact-incomplete`, and those of the options).
    """
    if not is_language_model(root):
        return None
    runtime = wanted or runtime_of(root / PROPERTIES, environment) or _by_graph(root)
    if not _rules(runtime).has_model(root):
        return None
    description = ModelDescription(runtime=runtime, task=TASK, engine=EngineOptions())
    return completed(description, root, environment)


def _by_graph(root: Path) -> str:
    """The runtime whose compiled model lies in `root`; no setting needs to name it."""
    loaded = (one for one in registry.records() if one.engine.graph and one.engine.has_model(root))
    return next((one.name for one in loaded), "")


def _rules(runtime: str) -> EngineRules:
    """The rules of the engine `runtime`; where it is no engine, rules that require nothing."""
    record = registry.find(runtime)
    return EngineRules() if record is None else record.engine


def completed(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """Checks the files, and adds the settings of serving.properties and of the environment."""
    rules = _rules(description.runtime)
    if not rules.needs_model:
        return _without_model(description, root, environment)
    for name in _NEEDED:
        inside(root, name, key=f"runtime {description.runtime}")
    given = description.engine or EngineOptions()
    engine = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    if engine.chat_template:
        inside(root, engine.chat_template, key="chat_template")
    file = ""
    if rules.graph:
        file = description.file or rules.graph
        if file != rules.graph:
            raise CallerError(
                "model-yaml-invalid",
                f"model.yaml: file is {file!r}",
                hint=f"The engine looks for {rules.graph}: leave `file` out.",
            )
        inside(root, file, key=f"runtime {description.runtime}")
        check_whole(root, file)
    elif not rules.has_model(root):
        raise CallerError(
            "artifact-incomplete",
            f"runtime {description.runtime} reads {rules.weights.removeprefix('*.')} weights, and "
            "the artifact has none",
            hint="Pack the whole Hugging Face directory.",
        )
    return dataclasses.replace(description, file=file, engine=engine)


def _without_model(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """A description without files; settings of the model that it stands for apply if present."""
    if description.file:
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: file is {description.file!r}",
            hint=f"A {description.runtime} engine has no model: leave `file` out.",
        )
    given = description.engine or EngineOptions()
    found = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    engine = dataclasses.replace(found, chat_template="", pace=given.pace or PaceSpec())
    return dataclasses.replace(description, engine=engine)
