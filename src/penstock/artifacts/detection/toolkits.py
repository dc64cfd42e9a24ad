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
from penstock.artifacts.detection.torch_files import TORCHSCRIPT, kind_of
from penstock.artifacts.files.user_code import code_facts
from penstock.runtimes import registry
from penstock.runtimes.record import Interface, RuntimeRecord

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
_TORCHSCRIPT: Final = ("*.pt", "*.pth")


def completed_code(
    description: ModelDescription, root: Path, toolkit: str, environment: Mapping[str, str]
) -> ModelDescription:
    """A description of user code, with the module of default functions where one is known.

    `toolkit`: of the image; "" = by the code's imports. Raises CallerError
    (`variable-not-served`).
    """
    record = registry.record(description.runtime)
    if not record.handlers or description.triton_python:
        return description
    record.lanes_asked(environment)  # refuses what can't be honoured
    if description.handler or not description.file.endswith(".py"):
        return description
    toolkit = toolkit or toolkit_of(code_facts(root / description.file).imports)
    return dataclasses.replace(description, handler=record.handlers.get(toolkit, ""))


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
    """The model of a toolkit that serves files without code; None: it can't serve these."""
    record = _record()
    if toolkit == "huggingface":
        file = _hugging_face_file(root)
    elif toolkit == "pytorch":
        file = _torchscript_file(root)
    else:
        return None
    if not file:
        return None
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


def _record() -> RuntimeRecord:
    return next(one for one in registry.records(Interface.PAYLOAD) if one.handlers)


def _hugging_face_file(root: Path) -> str:
    """The configuration of a model whose weights `transformers` loads. Language models have engines
    of their own, and a graph that was exported has a faster runtime."""
    if not (root / "config.json").is_file() or is_language_model(root):
        return ""
    if any(next(root.glob(pattern), None) for pattern in _GRAPHS):
        return ""
    weights = any(next(root.glob(pattern), None) for pattern in _WEIGHTS)
    return "config.json" if weights else ""


def _torchscript_file(root: Path) -> str:
    """`model.pt`, or the only file of its kind, as the toolkit chooses; "" unless TorchScript."""
    files = [path for pattern in _TORCHSCRIPT for path in sorted(root.glob(pattern))]
    named = [path for path in files if path.name == "model.pt"]
    chosen = named or files
    return chosen[0].name if len(chosen) == 1 and kind_of(chosen[0]) == TORCHSCRIPT else ""
