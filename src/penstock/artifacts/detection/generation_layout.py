"""Language models as artifacts: a folder with a graph for OpenVINO GenAI, or weights for vLLM.

A folder is a language model where config.json names an architecture that ends in ForCausalLM. With
openvino_model.xml it is served by `openvino_genai`; safetensors weights go to `vllm` where that is
asked for, and are compiled to the former everywhere else. A `paced` engine, which stands in for a
model, has a model.yaml and nothing else. Files are looked at, nothing is loaded.
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

GRAPH = "openvino_model.xml"
RUNTIMES = ("openvino_genai", "vllm", "paced")
#: Found by their files; a paced engine has none, and is asked for by a model.yaml alone.
_OF_MODELS = ("openvino_genai", "vllm")
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
    """Whether `root`'s weights are for an engine that reads them itself: not to be compiled."""
    return (runtime or runtime_of(root / PROPERTIES, environment)) == "vllm"


def language_model(
    root: Path, environment: Mapping[str, str], wanted: str
) -> ModelDescription | None:
    """The description of a language model; None where `root` is none.

    Raises CallerError (`artifact-incomplete`, those of the options).
    """
    if not is_language_model(root):
        return None
    has_graph = (root / GRAPH).is_file()
    has_weights = next(root.glob("*.safetensors"), None) is not None
    runtime = wanted or runtime_of(root / PROPERTIES, environment)
    if not runtime:
        runtime = "openvino_genai" if has_graph else ""
    if runtime not in _OF_MODELS or not (has_graph if runtime == "openvino_genai" else has_weights):
        return None
    description = ModelDescription(runtime=runtime, task=TASK, engine=EngineOptions())
    return completed(description, root, environment)


def completed(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """Checks the files, and adds what serving.properties and the environment say."""
    if description.runtime == "paced":
        return _paced(description, root, environment)
    for name in _NEEDED:
        inside(root, name, key=f"runtime {description.runtime}")
    given = description.engine or EngineOptions()
    engine = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    if engine.chat_template:
        inside(root, engine.chat_template, key="chat_template")
    file = ""
    if description.runtime == "openvino_genai":
        file = description.file or GRAPH
        if file != GRAPH:
            raise CallerError(
                "model-yaml-invalid",
                f"model.yaml: file is {file!r}",
                hint=f"The engine looks for {GRAPH}: leave `file` out.",
            )
        inside(root, file, key="runtime openvino_genai")
        check_whole(root, file)
    elif next(root.glob("*.safetensors"), None) is None:
        raise CallerError(
            "artifact-incomplete",
            "runtime vllm reads safetensors weights, and the artifact has none",
            hint="Pack the whole Hugging Face directory.",
        )
    return dataclasses.replace(description, file=file, engine=engine)


def _paced(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """It needs no file; settings of the model that it stands in for count where it has them."""
    if description.file:
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: file is {description.file!r}",
            hint="A paced engine has no model: leave `file` out.",
        )
    given = description.engine or EngineOptions()
    found = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    engine = dataclasses.replace(found, chat_template="", pace=given.pace or PaceSpec())
    return dataclasses.replace(description, engine=engine)
