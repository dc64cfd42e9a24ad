"""Which of SageMaker's toolkits completes a model's code, or serves a model without code.

The toolkits' images bring default functions for their framework: scikit-learn's calls
`model.predict(data)`, Hugging Face's a pipeline. The image's name says which are meant. Where no
image is given, the framework that the code imports decides, if it is one alone. A function that the
code defines always wins; that is decided where the model is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.detection.generation_layout import is_language_model
from penstock.artifacts.files.user_code import code_facts
from penstock.runtimes import registry
from penstock.runtimes.record import Interface

#: (package, toolkit): a package before others may be imported together with them.
_OF_PACKAGES: Final = (
    ("transformers", "huggingface"),
    ("torch", "pytorch"),
    ("xgboost", "xgboost"),
    ("sklearn", "sklearn"),
)
#: Packages of models that answer `predict(array)` as scikit-learn's do, and its file format.
_LIKE_SKLEARN: Final = frozenset({"lightgbm", "catboost", "joblib"})
#: A toolkit may be imported for what another builds on: its own code never needs both.
_BUILDS_ON: Final = {"huggingface": frozenset({"pytorch"})}

_WEIGHTS: Final = ("*.safetensors", "pytorch_model*.bin")
_GRAPHS: Final = ("*.onnx", "*.xml", "onnx/*.onnx")


def completed_code(
    description: ModelDescription, root: Path, toolkit: str, environment: Mapping[str, str]
) -> ModelDescription:
    """The description with the module of default functions, where its runtime has toolkits.

    `toolkit`: of the image; "" = by the code's imports. Raises CallerError
    (`variable-not-served`).
    """
    record = registry.record(description.runtime)
    if not record.handlers or description.triton_python:
        return description
    record.lanes_asked(environment)  # refuses what can't be honoured
    if description.file.endswith(".py") and not toolkit:
        toolkit = toolkit_of(code_facts(root / description.file).imports)
    handler = record.handlers.get(toolkit, description.handler)
    return dataclasses.replace(description, handler=handler)


def toolkit_of(imports: Iterable[str]) -> str:
    """The toolkit of code that imports these packages; "" where none or several are possible."""
    packages = set(imports)
    found = [toolkit for package, toolkit in _OF_PACKAGES if package in packages]
    if found:
        rest = set(found[1:]) - _BUILDS_ON.get(found[0], frozenset())
        return "" if rest else found[0]
    return "sklearn" if packages & _LIKE_SKLEARN else ""


def without_code(
    root: Path, toolkit: str, environment: Mapping[str, str]
) -> ModelDescription | None:
    """The model of a toolkit that serves weights without code; None: it can't serve these."""
    file = _hugging_face_file(root) if toolkit == "huggingface" else ""
    if not file:
        return None
    record = next(one for one in registry.records() if toolkit in one.handlers)
    return ModelDescription(
        runtime=record.name,
        task=record.task,
        file=file,
        handler=record.handlers[toolkit],
        lanes=record.lanes_asked(environment),
    )


def served_as_it_is(root: Path, toolkit: str, environment: Mapping[str, str]) -> bool:
    """Whether code of the artifact, or the image's toolkit, reads the weights in `root` itself, so
    that they are not compiled. Raises CallerError, as detection will."""
    if toolkit == "huggingface" and _hugging_face_file(root):
        return True
    layouts = (one.layout for one in registry.records(Interface.PAYLOAD) if one.layout is not None)
    return any(layout(root, environment) is not None for layout in layouts)


def _hugging_face_file(root: Path) -> str:
    """The configuration of a model whose weights `transformers` loads. Language models have engines
    of their own, and a graph that was exported has a faster runtime."""
    if not (root / "config.json").is_file() or is_language_model(root):
        return ""
    if any(next(root.glob(pattern), None) for pattern in _GRAPHS):
        return ""
    weights = any(next(root.glob(pattern), None) for pattern in _WEIGHTS)
    return "config.json" if weights else ""
