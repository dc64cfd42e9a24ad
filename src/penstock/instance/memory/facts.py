"""The facts for the estimate of a model's memory, and records of earlier loads.

The estimate follows from the runtime and the files with the model's weights. Other files of an
artifact do not count: a folder may have one model in several precisions, and its sources. Code may
read any file, so with code all files count.

Records of earlier loads on this machine are beside the artifacts in the cache:

    <cache>/memory/<key>.json           of an instance with this model alone
    <cache>/memory-beside/<key>.json    of this model beside others

The key covers all that matters: content, settings, share. A record helps but is never required: an
unreadable one counts as missing. Several instances may write the same record; each replaces it as a
whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.files.model_files import SAVED_MODEL
from penstock.core.models.memory_need import MemoryObserved, MemoryRule, ModelFacts
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext
from penstock.runtimes.generation.runtime import cache_bytes


def facts_of(context: LoadContext) -> ModelFacts:
    """Looks at sizes only; includes the models of the artifact that are loaded beside it."""
    description = context.description
    versions = (
        _facts_of_one(
            dataclasses.replace(context, description=dataclasses.replace(description, file=file))
        )
        for file in description.other_versions.values()
    )
    inside = (
        _facts_of_one(
            dataclasses.replace(
                context,
                model_dir=(context.model_dir / each.folder).resolve(),
                description=each.description,
            )
        )
        for each in context.description.models
    )
    return dataclasses.replace(_facts_of_one(context), inside=(*versions, *inside))


def facts_of_all(contexts: Sequence[LoadContext]) -> ModelFacts:
    """The same for several models of one instance: the others are loaded beside the first."""
    first, *others = map(facts_of, contexts)
    beside = (
        each for other in others for each in (dataclasses.replace(other, inside=()), *other.inside)
    )
    return dataclasses.replace(first, inside=(*first.inside, *beside))


def _facts_of_one(context: LoadContext) -> ModelFacts:
    description = context.description
    if description.ensemble:  # it only passes tensors on; its models count for themselves
        return ModelFacts(library="ensemble", rule=MemoryRule(), file_bytes=0)
    record = registry.record(description.runtime)
    return ModelFacts(
        library=record.name,
        rule=record.memory_of.get(Path(description.file).suffix, record.memory),
        file_bytes=_bytes(_weight_files(context.model_dir, description, record.weight_files)),
        processes=max(description.lanes, 1) if record.process_per_lane else 1,
        cache_bytes=cache_bytes(context) if record.engine.cache_at_start else 0,
        accelerated=context.accelerators > 0 and record.on_accelerators,
    )


def _weight_files(
    root: Path, description: ModelDescription, patterns: tuple[str, ...] | None
) -> Iterator[Path]:
    if patterns is not None:
        for pattern in patterns:
            yield from root.glob(pattern)
        return
    generation = description.generation
    names = {generation.encoder_file, generation.decoder_file} if generation else {description.file}
    for name in sorted(names - {""}):
        yield from _with_data(root / name)


def _with_data(file: Path) -> Iterator[Path]:
    """A graph and its data files: model.bin for IR, model.onnx.data and model.onnx_data for ONNX,
    variables/ for a SavedModel."""
    with suppress(OSError):
        for one in file.parent.iterdir():
            if one.name.startswith(file.name) or one.name == file.with_suffix(".bin").name:
                yield one
        if file.name == SAVED_MODEL:
            yield from (file.parent / "variables").iterdir()


def _bytes(files: Iterable[Path]) -> int:
    total = 0
    for file in set(files):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def record_path(
    cache_dir: Path, digest: str, context: LoadContext, *, folder: str = "memory"
) -> Path:
    """Path of the record of this model with these settings."""
    facts = (
        digest,
        repr(context.description),
        sorted(context.environment.items()),
        context.cores,
        context.memory_bytes_max,
        context.accelerators,
    )
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    return cache_dir / folder / f"{key}.json"


def read(path: Path) -> MemoryObserved | None:
    try:
        fields = json.loads(path.read_text())
        return MemoryObserved(
            load_bytes_max=int(fields["load_bytes_max"]),
            own_bytes_max=int(fields["own_bytes_max"]),
            ran=bool(fields["ran"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, seen: MemoryObserved) -> None:
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(dataclasses.asdict(seen)))
        made.replace(path)
