"""Recognises an unpacked artifact: from files, image and environment to a description.

A builds.yaml names the folders to choose from. The first layout that fits decides: model.yaml,
inference.py, weights that the image's toolkit reads, a Triton repository, OpenVINO IR, ONNX, a
program of torch.export. Nothing is guessed beyond that: an artifact that fits none of them is
refused, and the error says what was found and which layouts exist. Files are read, never executed
or unpickled.

The models inside a pipeline's artifact are found here too: they lie in the folders that `model`
steps of pipeline.yaml name. `runtimes.pipeline.file` reads that file as a whole and reports
whatever else is wrong with it.

`unserved` says what an artifact is that fits no layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.builds import chosen_build, read_builds
from penstock.artifacts.description.description import (
    PRECISION_AS_MADE,
    Batching,
    ModelDescription,
    ModelInside,
)
from penstock.artifacts.description.yaml_tree import read_tree
from penstock.artifacts.detection.generation_layout import completed as completed_generation
from penstock.artifacts.detection.generation_layout import language_model
from penstock.artifacts.detection.huggingface import text_model
from penstock.artifacts.detection.images import (
    ImageHint,
    image_hint,
    is_aws_image,
    local_names,
    no_language_model,
    not_mapped,
)
from penstock.artifacts.detection.toolkits import completed_code, without_code
from penstock.artifacts.detection.unserved import layout_unknown
from penstock.artifacts.files.model_files import find_model_file, inside, saved_model
from penstock.artifacts.files.paths import safe_path, shown
from penstock.artifacts.triton import triton_models
from penstock.core.models.instruction_sets import demand
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.environments.images import merged, requirements_of
from penstock.runtimes.record import Interface, RuntimeRecord

#: Requests that a container gets at once. SageMaker sends whatever comes, and the server inside
#: queues; this many keep the workers of most servers busy, and the rest waits where it can still go
#: to another copy.
_CONTAINER_LANES: Final = 16


def models_of(
    root: Path, file: str, describe: Callable[[Path], tuple[ModelDescription, Path]]
) -> tuple[ModelInside, ...]:
    """The models of a pipeline. `describe` gets a model's folder and returns the description with
    the folder that its paths are relative to.

    The name of such a model is its folder's path. Raises CallerError for one that is missing, or
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
        if registry.record(description.runtime).has(Interface.PIPELINE) or description.models:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A model that is ready to be loaded."""

    description: ModelDescription
    root: Path  #: the folder that the description's paths are relative to
    digest: str = ""  #: digest of the artifact in the cache; empty outside of it
    #: Stamp of the source that it was fetched from (`Listing.stamp`); empty where it gives none.
    stamp: str = dataclasses.field(default="", compare=False)


def detect(
    root: Path,
    *,
    image: str = "",
    environment: Mapping[str, str] | None = None,
    runtime: str = "",
    image_commands: Mapping[str, tuple[str, ...]] | None = None,
    image_environments: Mapping[str, tuple[str, ...]] | None = None,
    hint: ImageHint | None = None,
    trusted: bool = False,
    vouched: bool = False,
    instruction_set: str = "",
    beside_others: bool = False,
) -> Detected:
    """Describes the artifact in `root`.

    Args:
        root: the unpacked artifact; a single folder around everything is stepped into.
        image: the model's container image, a hint; empty if there is none.
        environment: the model's Environment; a few of SageMaker's variables choose among models.
        runtime: one of `images.local_names`, to overrule the choice; empty detects.
        image_commands: the operator's images and the commands that stand for them.
        image_environments: the operator's images and the requirements that they stand for.
        hint: what the image stands for, where that is known already.
        trusted: whether the operator allows pickle files to be loaded, and code to run without a
            sandbox.
        vouched: whether who made the model vouches for its pickle files. They are loaded in a
            sandboxed process, or not at all.
        instruction_set: of this processor, where the artifact is to be loaded; "": it is only
            inspected, and of several builds the least demanding one is described.
        beside_others: whether it is one of the artifacts of a multi-model endpoint, which may call
            one another.

    Raises:
        CallerError: `artifact-layout-unknown`, `artifact-untrusted`, `artifact-incomplete`,
            `artifact-ambiguous`, `model-yaml-invalid`, `image-not-mapped`, `runtime-mismatch`,
            `artifact-no-language-model`, `no-build-for-processor`, and those of the layouts.
    """
    environment = environment or {}
    hint = hint or image_hint(image, image_commands or {})
    if runtime and runtime not in local_names():
        raise CallerError(
            "runtime-unknown",
            f"there is no runtime {runtime!r}",
            hint=f"Use one of: {', '.join(local_names())}.",
        )
    commanded = next(one for one in registry.records() if "command" in one.options)
    containers = next(one for one in registry.records() if one.runs_images)
    if hint.image is not None and runtime in ("", containers.name):
        description = ModelDescription(
            runtime=containers.name,
            task=containers.task,
            image=hint.image.id,
            image_resolved=hint.image.resolved,
            engine_program=hint.image.engine,
            lanes=_CONTAINER_LANES,
        )
    elif hint.kind == "process" and runtime in ("", commanded.name):
        description = ModelDescription(
            runtime=commanded.name,
            task=commanded.task,
            command=hint.command,
            mapped_command=True,
        )
    else:
        outermost = root
        root = _of_builds(step_into(root), instruction_set)
        wanted = runtime if registry.find(runtime) is not None else hint.runtime
        trust = Trust(trusted, vouched)
        description, root = _describe(
            root, image, hint, environment, wanted, trust, beside_others=beside_others
        )
        if root == outermost:
            description = triton_models.without_folder_name(description)
        if wanted and description.runtime != wanted:
            raise CallerError(
                "runtime-mismatch",
                f"the artifact is a model for {description.runtime}, and {wanted} was asked for",
                hint="Leave the runtime out, or give an artifact of that kind.",
            )
    description = _of_image(description, requirements_of(image, image_environments or {}))
    return Detected(description=_trusted(description, Trust(trusted, vouched)), root=root)


def _of_image(description: ModelDescription, lines: tuple[str, ...]) -> ModelDescription:
    """With the libraries of the image, for models whose own code or file needs them."""
    record = registry.record(description.runtime)
    takes = "requirements" in record.options and not description.command
    if not lines or not (takes or description.framework):
        return description
    return dataclasses.replace(description, framework=merged(lines, description.framework))


@dataclass(frozen=True, slots=True)
class Trust:
    """Who stands behind an artifact's pickles."""

    operator: bool = False
    maker: bool = False  #: who made the model

    def loads(self, record: RuntimeRecord) -> bool:
        """Whether pickles of this runtime are loaded. The maker's word counts where a sandboxed
        process loads them."""
        return self.operator or (self.maker and bool(record.handler))


def _trusted(description: ModelDescription, trust: Trust) -> ModelDescription:
    """Sets `trusted` and `unconfined` on the description and on all models inside it."""
    models = tuple(
        dataclasses.replace(each, description=_trusted(each.description, trust))
        for each in description.models
    )
    record = registry.record(description.runtime)
    return dataclasses.replace(
        description,
        trusted=trust.loads(record),
        # Our own code loads what a handler reads: it needs nothing outside of its sandbox.
        unconfined=trust.operator and not record.handler,
        models=models,
    )


def _describe(
    root: Path,
    image: str,
    hint: ImageHint,
    environment: Mapping[str, str],
    wanted: str,
    trust: Trust,
    *,
    beside_others: bool = False,
) -> tuple[ModelDescription, Path]:
    if (root / model_yaml.FILE_NAME).is_file():
        described = model_yaml.load(root)
        if registry.record(described.runtime).has(Interface.ENGINE):
            return completed_generation(described, root, environment), root
        completed = _completed(described, root, trust)
        return completed_code(completed, root, hint.toolkit, environment), root
    pipeline = _of_own_layout(root, environment, _wanted(wanted, Interface.PIPELINE))
    if pipeline is not None:
        return _with_models(pipeline, root, trust), root
    if wanted in ("", *registry.names(Interface.ENGINE)):
        language = language_model(root, environment, wanted)
        if language is not None:
            return language, root
    if hint.kind == "generation":
        raise no_language_model(image)
    if hint.kind != "triton":
        code = _of_own_layout(root, environment, registry.records(Interface.PAYLOAD))
        if code is not None:
            return completed_code(code, root, hint.toolkit, environment), root
        weights = without_code(root, hint.toolkit, environment)
        if weights is not None:
            return weights, root
    folder = triton_models.find_model_folder(root, environment)
    if folder is not None:
        entry = triton_models.describe_entry(
            root, folder, runtime=wanted, trusted=trust.operator, beside_others=beside_others
        )
        return entry, folder
    readers = tuple(one for one in _wanted(wanted) if one.reads_files)
    tables = tuple(one for one in readers if one.task != "payload")
    bare = (
        _beside_image(root, image, readers, trust)
        or _bare_model(root, tables, environment, trust)
        or _bare_model(root, readers, environment, trust)
        or _of_own_layout(root, environment, _wanted(wanted), last=True)
    )
    if bare is not None and hint.kind == "unknown" and not is_aws_image(image):
        raise not_mapped(image, f"nothing but the name of {bare.file} says what the artifact is")
    if bare is not None:
        return completed_code(bare, root, hint.toolkit, environment), root
    unknown = layout_unknown(root, trusted=trust.operator or trust.maker)
    if hint.kind == "unknown" and unknown.code == "artifact-layout-unknown":
        raise not_mapped(image, unknown.message)
    raise unknown


def _wanted(wanted: str, *interfaces: Interface) -> tuple[RuntimeRecord, ...]:
    """The runtimes that may load the file: the one named `wanted`, or all of the interfaces."""
    return tuple(one for one in registry.records(*interfaces) if wanted in ("", one.name))


def _of_own_layout(
    root: Path,
    environment: Mapping[str, str],
    records: Iterable[RuntimeRecord],
    *,
    last: bool = False,
) -> ModelDescription | None:
    for record in records:
        layout = record.lone if last else record.layout
        found = layout(root, environment) if layout is not None else None
        if found is not None:
            return found
    return None


def _with_models(description: ModelDescription, root: Path, trust: Trust) -> ModelDescription:
    """A pipeline with the models that its steps name, each found as an artifact of its own."""
    models = models_of(
        root,
        description.file,
        lambda folder: _describe(folder, "", image_hint("", {}), {}, "", trust),
    )
    return dataclasses.replace(description, models=models)


def step_into(root: Path) -> Path:
    """The single folder around everything, as `tar -czf model.tar.gz my_model` makes it, or
    `root`."""
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


def _beside_image(
    root: Path, image: str, records: tuple[RuntimeRecord, ...], trust: Trust
) -> ModelDescription | None:
    """The description where one of AWS's images serves such files in its own way."""
    for record in records:
        if image and record.image_layout is not None:
            found = record.image_layout(root, image, trust.loads(record))
            if found is not None:
                return found
    return None


def _suffixes(records: tuple[RuntimeRecord, ...]) -> Iterator[str | tuple[str, ...]]:
    """Graphs first, by their suffixes; then files that a library alone loads; last those that can
    run code."""
    graphs = [one for one in records if not one.handler]
    yield from dict.fromkeys(suffix for one in graphs for suffix in one.suffixes)
    yield tuple(suffix for one in records if one.handler for suffix in one.suffixes)
    yield tuple(suffix for one in records for suffix in one.pickles)


def _bare_model(
    root: Path,
    records: tuple[RuntimeRecord, ...],
    environment: Mapping[str, str],
    trust: Trust,
) -> ModelDescription | None:
    """The description of a lone model file; the first of `records` that loads it is its runtime."""
    file = find_model_file(
        root, _suffixes(records), lambda path: any(one.reads(path) for one in records)
    )
    if not file and any(".pb" in one.suffixes for one in records):
        file = saved_model(root)
    if not file:
        return None
    record = next(one for one in records if one.reads(root / file))
    facts = record.checked(root, file, trusted=trust.loads(record))
    reason = ""
    if facts.has_strings and not record.takes_strings:
        reason = f"{record.name} does not take {file}: it has string tensors"
        record = next(iter(_with_strings(root / file)), record)
    described = ModelDescription(
        runtime=record.name,
        task=record.task,
        file=file,
        lanes=record.lanes_asked(environment),
        batching=Batching(rows_max=facts.rows_max) if record.task == "tensor" else Batching(),
        framework=facts.framework or record.framework,
        handler=record.handler,
    )
    if "precision" in record.options:
        described = dataclasses.replace(described, precision=PRECISION_AS_MADE)
    if record.beside_tokenizers:
        described = text_model(root, record.name, file) or described
    later = records[records.index(record) + 1 :] if record in records else ()
    return dataclasses.replace(
        described,
        runtime_fallback=next((one.name for one in later if one.reads(root / file)), ""),
        runtime_reason=reason,
    )


def _with_strings(path: Path) -> list[RuntimeRecord]:
    """The runtimes that load a file with string tensors."""
    records = registry.records(Interface.TENSORS)
    return [one for one in records if one.takes_strings and one.reads(path)]


def _completed(description: ModelDescription, root: Path, trust: Trust) -> ModelDescription:
    """Adds what model.yaml left out, and checks that the files it names exist and are whole."""
    record = registry.record(description.runtime)
    trusted = trust.loads(record)
    if description.tokenizer is not None:
        inside(root, description.tokenizer.file, key="model.yaml: tokenizer.file")
    if description.command:
        return description
    if record.has(Interface.PIPELINE):
        file = description.file or record.default_file
        inside(root, file, key="model.yaml: file")
        return _with_models(dataclasses.replace(description, file=file), root, trust)
    if description.generation is not None:
        for key in ("encoder_file", "decoder_file"):
            named = getattr(description.generation, key)
            inside(root, named, key=f"model.yaml: generation.{key}")
            record.checked(root, named, trusted=trusted)
        return dataclasses.replace(description, file=description.generation.decoder_file)
    file = description.file or record.default_file
    file = file or find_model_file(root, _suffixes((record,)), record.recognises)
    if not file.endswith(record.endings):
        endings = " or ".join(record.endings)
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: file is {file!r}" if file else "model.yaml: file is missing",
            hint=f"It must name a file in the artifact that ends in {endings}.",
        )
    inside(root, file, key="model.yaml: file")
    facts = record.checked(root, file, trusted=trusted)
    if facts.has_strings and not record.takes_strings:
        others = " or ".join(one.name for one in _with_strings(root / file))
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: runtime is {record.name!r}, and {file} has string tensors",
            hint=f"Use runtime: {others}.",
        )
    return dataclasses.replace(
        description,
        file=file,
        framework=facts.framework or description.framework or record.framework,
        handler=record.handler or description.handler,
    )
