"""What an unpacked artifact is: from its files, its image and its environment to a description.

A builds.yaml says which folders may be meant. The first layout that fits decides: model.yaml,
code/inference.py, a Triton repository, OpenVINO IR, ONNX, a program of torch.export. Nothing is
guessed beyond that: an artifact that fits none of them is refused with what was found and what is
understood. Files are looked at, never executed or unpickled.

The models that lie in a pipeline's artifact: folders that `model` steps of pipeline.yaml name.

Only finds and describes them. Whatever else is wrong with the file is told by whoever reads it
whole (`runtimes.pipeline.file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.builds import chosen_build, read_builds
from penstock.artifacts.description.description import (
    RUNTIMES,
    Batching,
    ModelDescription,
    ModelInside,
)
from penstock.artifacts.description.yaml_tree import read_tree
from penstock.artifacts.detection.detect_pt2 import check_pt2
from penstock.artifacts.detection.generation_layout import RUNTIMES as GENERATION_RUNTIMES
from penstock.artifacts.detection.generation_layout import completed as completed_generation
from penstock.artifacts.detection.generation_layout import language_model
from penstock.artifacts.detection.huggingface import text_model
from penstock.artifacts.detection.images import (
    LOCAL_NAMES,
    ImageHint,
    image_hint,
    no_language_model,
    not_mapped,
)
from penstock.artifacts.detection.layout_errors import layout_unknown
from penstock.artifacts.files.model_files import check_whole, find_model_file, inside
from penstock.artifacts.files.paths import safe_path, shown
from penstock.artifacts.triton import triton_models
from penstock.core.models.instruction_sets import demand
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


CODE = "code/inference.py"
#: An ONNX file that declares its batch dimension may be joined up to here; nothing waits for it.
_ONNX_ROWS_MAX = 32
_WORKERS_MAX = 64
#: What each runtime can load, in the order of precedence.
_SUFFIXES = {
    "": (".xml", ".onnx", ".pt2"),
    "openvino": (".xml", ".onnx"),
    "onnxruntime": (".onnx",),
    "torch": (".pt2",),
}


PIPELINE = "pipeline.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A model that is ready to be loaded."""

    description: ModelDescription
    root: Path  #: the folder that the description's paths are relative to
    digest: str = ""  #: of the artifact in the cache; empty outside of it
    #: Of the source that it was fetched from (`Listing.stamp`); empty where it gives none.
    stamp: str = dataclasses.field(default="", compare=False)


def detect(
    root: Path,
    *,
    image: str = "",
    environment: Mapping[str, str] | None = None,
    runtime: str = "",
    image_commands: Mapping[str, tuple[str, ...]] | None = None,
    trusted: bool = False,
    instruction_set: str = "",
) -> Detected:
    """Describes the artifact in `root`.

    Args:
        root: the unpacked artifact; a single folder around everything is stepped into.
        image: the model's container image, a hint; empty if there is none.
        environment: the model's Environment; a few of SageMaker's variables choose among models.
        runtime: one of RUNTIMES or "triton", to overrule the choice; empty detects.
        image_commands: the operator's images and the commands that stand for them.
        trusted: the operator's word that pickle files may be loaded.
        instruction_set: this processor's, where the artifact is to be loaded; "": it is only looked
            at, and of several builds the one that needs least is.

    Raises:
        CallerError: `artifact-layout-unknown`, `artifact-untrusted`, `artifact-incomplete`,
            `artifact-ambiguous`, `model-yaml-invalid`, `image-not-mapped`, `runtime-mismatch`,
            `artifact-no-language-model`, `no-build-for-processor`, and those of the layouts.
    """
    environment = environment or {}
    hint = image_hint(image, image_commands or {})
    if runtime and runtime not in LOCAL_NAMES:
        raise CallerError(
            "runtime-unknown",
            f"there is no runtime {runtime!r}",
            hint=f"Use one of: {', '.join(LOCAL_NAMES)}.",
        )
    if hint.kind == "process" and runtime in ("", "process"):
        description = ModelDescription(runtime="process", task="payload", command=hint.command)
    else:
        root = _of_builds(_step_into(root), instruction_set)
        wanted = runtime if runtime in RUNTIMES else hint.runtime
        description, root = _describe(root, image, hint, environment, wanted, trusted)
        if wanted and description.runtime != wanted:
            raise CallerError(
                "runtime-mismatch",
                f"the artifact is a model for {description.runtime}, and {wanted} was asked for",
                hint="Leave the runtime out, or give an artifact of that kind.",
            )
    return Detected(description=_trusted(description, trusted), root=root)


def _trusted(description: ModelDescription, trusted: bool) -> ModelDescription:
    """The operator's word holds for the whole artifact."""
    models = tuple(
        dataclasses.replace(each, description=_trusted(each.description, trusted))
        for each in description.models
    )
    return dataclasses.replace(description, trusted=trusted, models=models)


def _describe(
    root: Path,
    image: str,
    hint: ImageHint,
    environment: Mapping[str, str],
    wanted: str,
    trusted: bool,
) -> tuple[ModelDescription, Path]:
    if (root / model_yaml.FILE_NAME).is_file():
        described = model_yaml.load(root)
        if described.runtime in GENERATION_RUNTIMES:
            return completed_generation(described, root, environment), root
        return _completed(described, root, trusted), root
    if (root / PIPELINE).is_file() and wanted in ("", "pipeline"):
        return _pipeline(root, PIPELINE, trusted), root
    if wanted in ("", *GENERATION_RUNTIMES):
        language = language_model(root, environment, wanted)
        if language is not None:
            return language, root
    if hint.kind == "generation":
        raise no_language_model(image)
    code = _code_file(root, environment)
    if code and hint.kind != "triton":
        return _user_code(code, environment), root
    folder = triton_models.find_model_folder(root, environment)
    if folder is not None:
        return triton_models.describe_entry(root, folder, runtime=wanted), folder
    file = find_model_file(root, _SUFFIXES.get(wanted, ()))
    if file:
        return _bare_model(root, file, wanted, trusted), root
    unknown = layout_unknown(root, trusted=trusted)
    if hint.kind == "unknown" and unknown.code == "artifact-layout-unknown":
        raise not_mapped(image, unknown.message)
    raise unknown


def _pipeline(root: Path, file: str, trusted: bool) -> ModelDescription:
    """With the models that its steps name, each found as an artifact of its own would be."""
    models = models_of(
        root, file, lambda folder: _describe(folder, "", image_hint("", {}), {}, "", trusted)
    )
    return ModelDescription(runtime="pipeline", task="payload", file=file, models=models)


def _step_into(root: Path) -> Path:
    """A single folder around everything is the habit of tar -czf model.tar.gz my_model."""
    entries = list(root.iterdir())
    if len(entries) != 1 or not entries[0].is_dir() or entries[0].is_symlink():
        return root
    name = entries[0].name
    return root if name == "code" or name.isdigit() else entries[0]


def _of_builds(root: Path, instruction_set: str) -> Path:
    if not instruction_set:
        builds = read_builds(root)
        least = min(builds, key=lambda one: demand(one.needs), default=None)
        return root if least is None else root / least.folder
    choice = chosen_build(root, instruction_set)
    return root if choice is None else root / choice.build.folder


def _code_file(root: Path, environment: Mapping[str, str]) -> str:
    """SageMaker's toolkits take another file of code/ by SAGEMAKER_PROGRAM."""
    program = environment.get("SAGEMAKER_PROGRAM", "")
    if not program:
        return CODE if (root / CODE).is_file() else ""
    file = f"code/{program}"
    inside(root, file, key="SAGEMAKER_PROGRAM")
    return file


def _user_code(file: str, environment: Mapping[str, str]) -> ModelDescription:
    workers = environment.get("SAGEMAKER_MODEL_SERVER_WORKERS", "")
    if workers and not _is_worker_count(workers):
        raise CallerError(
            "environment-invalid",
            f"SAGEMAKER_MODEL_SERVER_WORKERS is {workers[:20]!r}",
            hint=f"It must be a number from 1 to {_WORKERS_MAX}.",
        )
    return ModelDescription(
        runtime="python", task="payload", file=file, lanes=int(workers) if workers else 1
    )


def _is_worker_count(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(_WORKERS_MAX))
    return digits and 1 <= int(text) <= _WORKERS_MAX


def _bare_model(root: Path, file: str, wanted: str, trusted: bool) -> ModelDescription:
    if file.endswith(".pt2"):
        check_pt2(root, file, trusted=trusted)
        # A free first dimension may be a batch or the length of a sequence: nothing is joined.
        return ModelDescription(runtime="torch", file=file, batching=Batching(rows_max=0))
    header = check_whole(root, file)
    runtime = wanted or "openvino"
    if header is not None and header.has_strings():
        # OpenVINO is not given string tensors; ONNX Runtime has them.
        runtime = "onnxruntime"
    text = text_model(root, runtime, file)
    if text is not None:
        return text
    # Rows are joined only where the file itself says which dimension they are.
    rows_max = _ONNX_ROWS_MAX if header is not None and header.is_batched() else 0
    return ModelDescription(runtime=runtime, file=file, batching=Batching(rows_max=rows_max))


def _completed(description: ModelDescription, root: Path, trusted: bool) -> ModelDescription:
    """Finds what model.yaml left out, and checks that what it names is there and whole."""
    if description.tokenizer is not None:
        inside(root, description.tokenizer.file, key="model.yaml: tokenizer.file")
    if description.runtime == "process":
        return description
    if description.runtime == "pipeline":
        file = description.file or PIPELINE
        inside(root, file, key="model.yaml: file")
        models = _pipeline(root, file, trusted).models
        return dataclasses.replace(description, file=file, models=models)
    if description.generation is not None:
        for key in ("encoder_file", "decoder_file"):
            named = getattr(description.generation, key)
            inside(root, named, key=f"model.yaml: generation.{key}")
            if description.runtime == "torch":
                check_pt2(root, named, trusted=trusted)
            else:
                check_whole(root, named)
        return dataclasses.replace(description, file=description.generation.decoder_file)
    suffixes = (".py",) if description.runtime == "python" else _SUFFIXES[description.runtime]
    file = description.file
    if not file:
        file = CODE if description.runtime == "python" else find_model_file(root, suffixes)
    if not file.endswith(suffixes):
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: file is {file!r}" if file else "model.yaml: file is missing",
            hint=f"It must name a file in the artifact that ends in {' or '.join(suffixes)}.",
        )
    inside(root, file, key="model.yaml: file")
    if description.runtime == "torch":
        check_pt2(root, file, trusted=trusted)
    header = check_whole(root, file)
    if header is not None and header.has_strings() and description.runtime == "openvino":
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: runtime is 'openvino', and {file} has string tensors",
            hint="Use runtime: onnxruntime.",
        )
    return dataclasses.replace(description, file=file)
