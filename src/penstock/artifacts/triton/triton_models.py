"""A Triton model repository on disk: which models are loaded, which versions, which files.

The folder rules are Triton's: a model's folder holds config.pbtxt and version folders whose names
are numbers without leading zeros. Without a config.pbtxt a folder is a model where a version holds
the file that one of the backends takes when none is named; that file then says the rest.

One model of an artifact answers requests. An ensemble needs the models of its steps, and a Python
model may call any model of its repository (Triton's business logic scripting). The files alone
decide which of them are loaded: a Python model whose code never mentions `InferenceRequest` calls
none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.artifacts.description.description import (
    PRECISION_AS_MADE,
    ModelDescription,
    ModelInside,
)
from penstock.artifacts.description.triton_facts import TritonFacts
from penstock.artifacts.files.model_files import inside
from penstock.artifacts.files.paths import shown
from penstock.artifacts.triton.config import ENSEMBLE, TritonConfig, backends, parse_config
from penstock.artifacts.triton.config_json import renamed, whole_config
from penstock.artifacts.triton.ensemble import ModelTensors, check_steps
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import Interface

CONFIG = "config.pbtxt"
DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
_TEXT_BYTES_MAX = 1024 * 1024
_VERSION = re.compile(r"[1-9][0-9]{0,17}\Z")


def find_model_folder(root: Path, environment: Mapping[str, str]) -> Path | None:
    """The folder of the model to serve; None if `root` is no Triton repository.

    Of several it is the one that the environment names, or the only ensemble that is not a step of
    another one. Raises `CallerError` (`triton-model-ambiguous`, `triton-model-missing`).
    """
    if _is_model(root):
        return root
    folders = _folders(root)
    if not folders:
        return None
    names = ", ".join(shown(name) for name in list(folders)[:20])
    wanted = environment.get(DEFAULT_MODEL, "")
    if wanted:
        if wanted not in folders:
            raise CallerError(
                "triton-model-missing",
                f"{DEFAULT_MODEL} is {wanted!r}; the repository holds {names}",
                hint="Set it to one of these.",
            )
        return folders[wanted]
    if len(folders) > 1:
        entry = _outermost_ensemble(folders)
        if entry:
            return folders[entry]
        raise CallerError(
            "triton-model-ambiguous",
            f"the repository holds several models: {names}",
            hint=f"Choose one with {DEFAULT_MODEL} in the model's Environment, or add an ensemble "
            "that calls them.",
        )
    return next(iter(folders.values()))


def models_below(root: Path) -> list[str]:
    """The models of a repository, or nothing where `root` is a model itself."""
    return [] if not root.is_dir() or _is_model(root) else list(_folders(root))


def _outermost_ensemble(folders: Mapping[str, Path]) -> str:
    """The ensemble that uses the other models; "" if there is none, or more than one.

    Reads every configuration, and leaves errors in one to the code that needs that model.
    """
    steps: dict[str, set[str]] = {}
    for name, folder in folders.items():
        with suppress(CallerError):
            config = read_config(folder)
            if config.backend == ENSEMBLE:
                steps[name] = {step.model for step in config.steps}
    inner = set[str]().union(*steps.values())
    outermost = sorted(set(steps) - inner)
    return outermost[0] if len(outermost) == 1 else ""


def read_config(folder: Path) -> TritonConfig:
    """The configuration of the model in `folder`, whose name errors show. Raises CallerError."""
    return parse_config(_config_text(folder), where=f"{shown(folder.name)}/{CONFIG}")


def describe(folder: Path, *, runtime: str, trusted: bool) -> ModelDescription:
    """The description of one model, alone; its paths are relative to `folder`.

    `runtime` may name another one that reads the same file. Raises `CallerError` for a wrong or
    unsupported configuration and for missing or broken files.
    """
    config = parse_config(_config_text(folder))
    if config.backend == ENSEMBLE:
        return _ensemble(folder, config)
    version, *others = _versions(folder, config)
    backend, file = _backend_and_file(folder, version, config)
    files = {other: _backend_and_file(folder, other, config)[1] for other in others}
    chosen = backends()[backend][0]
    other = registry.find(runtime)
    if other is not None and other.has(Interface.TENSORS) and file.endswith(other.suffixes):
        chosen = other
    for number, each in {version: file, **files}.items():
        inside(folder, each, key=f"{CONFIG}, version {number}")
        chosen.checked(folder, each, trusted=trusted)
    tensors = (*config.inputs, *config.outputs)
    if not chosen.takes_strings and any(tensor.dtype == "BYTES" for tensor in tensors):
        raise CallerError(
            "triton-config-unsupported",
            f"{CONFIG}: TYPE_STRING tensors are not served by {chosen.name}",
            hint="Use the backend onnxruntime with an ONNX file.",
        )
    own_code = "triton_python" in chosen.options
    if config.sequences is not None:
        _check_sequences(config, own_code=own_code)
    facts = _facts(folder, config, backend, file)
    return ModelDescription(
        runtime=chosen.name,
        task=chosen.task,
        name=config.name or folder.name,
        file=file,
        version=version,
        inputs=config.inputs,
        outputs=config.outputs,
        labels=_only_labels(facts),
        batching=config.batching,
        sequences=config.sequences,
        lanes=config.lanes,
        triton_python=own_code,
        parameters=config.parameters,
        packed_environment=config.packed_environment if own_code else "",
        precision=PRECISION_AS_MADE if "precision" in chosen.options else "",
        warmup=config.warmup,
        decoupled=config.decoupled,
        other_versions=files,
        triton=facts,
    )


def _check_sequences(config: TritonConfig, *, own_code: bool) -> None:
    """Raises CallerError for what `sequence_batching` can't be together with."""
    sequences = config.sequences
    assert sequences is not None
    twice = sequences.own_inputs & {tensor.name for tensor in config.inputs}
    if twice:
        raise CallerError(
            "triton-config-invalid",
            f"{CONFIG}: the input {min(twice)!r} is also one of sequence_batching",
            hint="The server fills controls and states: take it out of input.",
        )
    if sequences.states and own_code:
        raise CallerError(
            "triton-config-unsupported",
            f"{CONFIG}: sequence_batching.state is not supported: a Python model keeps its state "
            "in its own memory",
            hint="Keep the state in the model, by the correlation id of its requests.",
        )


def _ensemble(folder: Path, config: TritonConfig) -> ModelDescription:
    """An ensemble has no file; its version folder is empty, so an archive may have dropped it."""
    versions = [int(path.name) for path in folder.iterdir() if _VERSION.match(path.name)]
    facts = _facts(folder, config, ENSEMBLE, "")
    return ModelDescription(
        runtime=registry.names(Interface.PIPELINE)[0],
        task="tensor",
        name=config.name or folder.name,
        version=str(max(versions, default=1)),
        inputs=config.inputs,
        outputs=config.outputs,
        labels=_only_labels(facts),
        batching=config.batching,
        parameters=config.parameters,
        ensemble=config.steps,
        triton=facts,
    )


def _facts(folder: Path, config: TritonConfig, backend: str, file: str) -> TritonFacts:
    return TritonFacts(
        config=whole_config(
            config.whole, name=config.name or folder.name, backend=backend, file=file
        ),
        named=bool(config.name),
        reshapes=config.reshapes,
        optional=config.optional,
        labels={
            output: _labels(folder, label_file) for output, label_file in config.label_files.items()
        },
    )


def _only_labels(facts: TritonFacts) -> tuple[str, ...]:
    """Labels of the model's one classification; with two label files there would be two."""
    (labels,) = facts.labels.values() if len(facts.labels) == 1 else ((),)
    return tuple(label for label in labels if label)


def _versions(folder: Path, config: TritonConfig) -> list[str]:
    """The versions that are served, the highest first."""
    versions = {
        int(path.name) for path in folder.iterdir() if path.is_dir() and _VERSION.match(path.name)
    }
    allowed = config.versions
    served = versions & set(allowed) if allowed else versions
    if not served:
        wanted = f"versions {', '.join(map(str, allowed))}" if allowed else "a version folder"
        found = ", ".join(map(str, sorted(versions))) or "none"
        raise CallerError(
            "artifact-incomplete",
            f"{CONFIG} asks for {wanted}; the model's folder has {found}",
            hint="Put the model file into a folder named by its version, such as 1/model.onnx.",
        )
    highest = sorted(served, reverse=True)
    return [str(version) for version in highest[: config.versions_max or None]]


def _backend_and_file(folder: Path, version: str, config: TritonConfig) -> tuple[str, str]:
    known = backends()
    if config.backend:
        name = config.file or known[config.backend][1]
        return config.backend, _in_own_folder(folder, f"{version}/{name}")
    for backend, (record, usual) in known.items():
        name = config.file or usual
        if name.endswith(record.suffixes) and (folder / version / name).exists():
            return backend, _in_own_folder(folder, f"{version}/{name}")
    *others, last = dict.fromkeys(usual for _, usual in known.values())
    raise CallerError(
        "artifact-incomplete",
        f"{CONFIG} names no backend, and version {version} holds no {', '.join(others)} or {last}",
        hint="Name the backend and, if the file is called otherwise, default_model_filename.",
    )


def _in_own_folder(folder: Path, file: str) -> str:
    """Where ONNX with external weights lies in a folder with the file's name, the file inside."""
    if (folder / file).is_dir():
        return f"{file}/{file.rsplit('/', 1)[-1]}"
    return file


def _labels(folder: Path, name: str) -> tuple[str, ...]:
    """A line is the name of the class of its number, so a line in between may be empty."""
    text = _read_text(inside(folder, name, key=f"{CONFIG}, label_filename"))
    return tuple(line.strip() for line in text.rstrip().splitlines())


def _is_model(folder: Path) -> bool:
    if (folder / CONFIG).is_file():
        return True
    usual = {file for _, file in backends().values()}
    versions = (path for path in folder.iterdir() if _VERSION.match(path.name) and path.is_dir())
    return any((version / file).exists() for version in versions for file in usual)


def _config_text(folder: Path) -> str:
    path = folder / CONFIG
    return _read_text(path) if path.is_file() else ""


def _read_text(path: Path) -> str:
    size = path.stat().st_size
    try:
        if size > _TEXT_BYTES_MAX:
            raise ValueError(f"larger than {_TEXT_BYTES_MAX} bytes")
        return path.read_bytes().decode()
    except ValueError as error:
        raise CallerError(
            "triton-config-invalid",
            f"{path.name}: not a text file: {error}",
            hint="It must be UTF-8 text of reasonable size.",
        ) from error


#: Code that calls another model, or loads one, mentions one of these names.
_CALLS = re.compile(rb"InferenceRequest|is_model_ready|unload_model|pb_utils\.load_model")


def describe_entry(
    root: Path, folder: Path, *, runtime: str, trusted: bool, beside_others: bool = False
) -> ModelDescription:
    """The model in `folder`, with the models of the repository `root` that it calls or may call.

    If `folder` is `root`, the artifact is one model without a repository around it.
    `beside_others`: the artifact lies in a repository, and each model of that is an artifact of its
    own: then a lone ensemble is not checked (`check_beside_others`). Raises `CallerError` as
    `describe` does, and `triton-ensemble-invalid`.
    """
    folders = {} if folder == root else _folders(root)
    entry = describe(folder, runtime=runtime, trusted=trusted)
    if beside_others and len(folders) < 2:
        return dataclasses.replace(entry, calls_models=_calls(folder, entry))
    if not entry.ensemble and not (folders and _calls(folder, entry)):
        return entry
    if folder == root:  # here its folder has a name of the cache's, which nobody knows
        models = ", ".join(dict.fromkeys(shown(step.model) for step in entry.ensemble))
        raise CallerError(
            "triton-ensemble-invalid",
            f"{CONFIG}: the models of the ensemble's steps, {models}, are not in the artifact",
            hint="Deploy the folder that holds the ensemble and these models, as one model.",
        )
    entry = _named(entry, folder)
    known = _reached(entry, folder, folders, lambda other: _described(other, runtime, trusted))
    tensors = {name: tensors_of(model) for name, model in known.items()}
    for name, model in known.items():
        if model.ensemble:
            check_ensemble(model, tensors, where=f"{name}/{CONFIG}")
    del known[folder.name]
    _refuse_stateful(folder.name, known)
    inside = (
        ModelInside(name=name, folder=f"../{name}", description=known[name])
        for name in sorted(known)
    )
    return dataclasses.replace(entry, models=tuple(inside))


def check_beside_others(
    entry: ModelDescription, described: Callable[[str], ModelDescription | None]
) -> list[str]:
    """Checks an ensemble whose steps are artifacts beside its own. `described` finds a model by
    the name that its steps give; None: there is none. Returns the models of all steps.

    Raises `CallerError` (`triton-ensemble-invalid`), and what `described` raises.
    """
    known = {entry.name: entry}
    waiting = [entry]
    while waiting:
        for step in waiting.pop().ensemble:
            found = described(step.model) if step.model not in known else None
            if found is not None:
                known[step.model] = found
                waiting.append(found)
    _refuse_circles(known)
    tensors = {name: tensors_of(model) for name, model in known.items()}
    for name, model in known.items():
        if model.ensemble:
            check_ensemble(model, tensors, where=f"{name}/{CONFIG}")
    del known[entry.name]
    _refuse_stateful(entry.name, known)
    return sorted(known)


def without_folder_name(model: ModelDescription) -> ModelDescription:
    """The model of an artifact without a folder of its own, whose name is then the endpoint's,
    unless its configuration says one."""
    if model.triton is None or model.triton.named:
        return model
    return named(model, "")


def named(model: ModelDescription, name: str) -> ModelDescription:
    facts = model.triton
    if facts is not None:
        facts = dataclasses.replace(facts, config=renamed(facts.config, name))
    return dataclasses.replace(model, name=name, triton=facts)


def tensors_of(model: ModelDescription) -> ModelTensors:
    return ModelTensors(
        inputs=model.inputs,
        outputs=model.outputs,
        versions=tuple(int(version) for version in (model.version, *model.other_versions)),
        rows_max=model.batching.rows_max,
        optional=model.triton.optional if model.triton is not None else frozenset(),
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
    inside = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    return {path.name: path for path in inside if _is_model(path)}


def _calls(folder: Path, model: ModelDescription) -> bool:
    """Whether a Python model may call others: one of its files mentions the class."""
    if not model.triton_python:
        return False
    return any(_CALLS.search(path.read_bytes()) for path in folder.rglob("*.py") if path.is_file())


def _reached(
    entry: ModelDescription,
    folder: Path,
    folders: Mapping[str, Path],
    described: Callable[[Path], ModelDescription],
) -> dict[str, ModelDescription]:
    """Every model that a request to `entry` may reach, `entry` included."""
    known = {folder.name: entry}
    waiting = [folder.name]
    while waiting:
        name = waiting.pop()
        model = known[name]
        wanted = set(folders) if model.calls_models else {step.model for step in model.ensemble}
        for other in sorted(wanted - set(known)):
            if other in folders:  # if it is missing, the check of the ensemble says where
                known[other] = described(folders[other])
                waiting.append(other)
    _refuse_circles(known)
    return known


def _described(folder: Path, runtime: str, trusted: bool) -> ModelDescription:
    try:
        return _named(describe(folder, runtime=runtime, trusted=trusted), folder)
    except CallerError as error:
        raise CallerError(
            error.code, f"model {shown(folder.name)}: {error.message}", hint=error.hint
        ) from None


def _named(model: ModelDescription, folder: Path) -> ModelDescription:
    """Models call each other by folder name. Raises CallerError for one with another name."""
    if model.name != folder.name:
        raise CallerError(
            "triton-config-invalid",
            f"{CONFIG}: name is {model.name!r}, and its folder is {shown(folder.name)}",
            hint="Leave name out, or let it be the folder's.",
        )
    return dataclasses.replace(model, calls_models=_calls(folder, model))


def _refuse_stateful(caller: str, known: Mapping[str, ModelDescription]) -> None:
    for name, model in known.items():
        if model.sequences is not None:
            raise CallerError(
                "triton-config-unsupported",
                f"{name}/{CONFIG}: sequence_batching is not supported for a model that "
                f"{caller!r} calls: its sequences are those of its own callers",
                hint="Serve the stateful model as an endpoint of its own.",
            )


def _refuse_circles(known: Mapping[str, ModelDescription]) -> None:
    """Refuses an ensemble that is a step of itself, directly or not: a request would never end."""
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
