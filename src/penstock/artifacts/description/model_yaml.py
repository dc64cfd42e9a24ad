"""model.yaml: the explicit description of a model, every key checked.

The description itself declares what each key may be. This module holds the keys whose units
differ in the file, converts them, and checks which keys exclude or need each other. `yaml_tree`
handles the file as untrusted input.
"""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from msgspec import Meta

from penstock.artifacts.description.description import (
    TASKS,
    WARM_UP_ELEMENTS_MAX,
    WARM_UPS_MAX,
    Batching,
    Embedding,
    EngineKeys,
    EngineOptions,
    Generation,
    Head,
    ModelDescription,
    ModelKeys,
    TensorSpec,
    WarmUp,
)
from penstock.artifacts.description.yaml_tree import (
    FILE_BYTES_MAX,
    artifact_file,
    invalid,
    read_tree,
)
from penstock.artifacts.files.budget import too_large
from penstock.file_schema import Reader, Versioned, one_of
from penstock.runtimes import registry
from penstock.runtimes.environments.requirements import checked_line
from penstock.runtimes.record import Interface, RuntimeRecord

FILE_NAME = "model.yaml"
#: Unicode's: written as it is and not as an escape, it is read as a space
_NEXT_LINE: Final = "\x85"
_ROWS_MAX = 65_536
#: Where a service level chooses the batch size: its upper bound, unless the file gives another.
_LEVEL_ROWS_MAX = 64
_MS_MAX = 3_600_000
_MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingFile:
    """How requests to one copy may be joined. All times in ms, all sizes in rows."""

    #: rows in a batch; 1 = the model batches, one row at a time; 0 = no batch dimension. Left out
    #: it is 1, or 64 beside `latency_ms_p99_max`
    rows_max: Annotated[int, Meta(ge=0, le=_ROWS_MAX)] | None = None
    #: longest time the oldest item waits for others to join
    wait_ms_max: Annotated[float, Meta(ge=0.0, le=_MS_MAX)] = 0.0
    #: sizes to leave at without waiting longer, ascending, up to `rows_max`
    rows_preferred: tuple[Annotated[int, Meta(ge=1, le=_ROWS_MAX)], ...] = ()
    #: rows waiting in one copy before it refuses
    queue_rows_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 2048
    #: an item older than this is refused; left out = only its deadline counts
    queue_wait_ms_max: Annotated[float, Meta(ge=0.001, le=_MS_MAX)] | None = None
    #: padded lengths, ascending; none = no length buckets
    buckets: tuple[Annotated[int, Meta(ge=1, le=1_000_000)], ...] = ()
    #: number of priority levels; 0 is served first
    priorities: Annotated[int, Meta(ge=1, le=100)] = 1
    #: service level; delay and batch size follow from it
    latency_ms_p99_max: Annotated[float, Meta(ge=0.001, le=_MS_MAX)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile(EngineKeys):
    """How a generation engine runs a model. Keys left out are derived from model and machine."""

    cache_mb: Annotated[float, Meta(ge=1, le=2**30)] | None = None  #: memory for keys, values, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile(ModelKeys, Versioned):
    """A model.yaml: what a model is, and how it is served."""

    runtime: Annotated[str, one_of(registry.names)]  #: what loads and runs it
    task: Annotated[str, one_of(TASKS)] = ""  #: left out = the runtime's own task
    batching: BatchingFile | None = None  #: how requests share runs of the model
    engine: EngineFile | None = None  #: task `text-generation` only


def load(root: Path) -> ModelDescription:
    """Reads `root`/model.yaml. Raises `CallerError` (`model-yaml-invalid`)."""
    path = root / FILE_NAME
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise too_large(FILE_NAME, f"{size} bytes", FILE_BYTES_MAX)
    return parse(path.read_bytes())


def parse(content: bytes | str, *, where: str = FILE_NAME) -> ModelDescription:
    """Reads the text of a model.yaml; looks at no other file.

    Raises `CallerError` (`model-yaml-invalid`) with the key's path, the value, what is allowed.
    """
    tree, reader = read_tree(content, where), artifact_file(where)
    if "trusted" in tree:
        allowed = "left out: trust is given by the operator"
        raise reader.wrong("trusted", tree["trusted"], allowed)
    file = reader.read(ModelFile, tree)
    batching = _batching(file.batching, reader)
    _check_tensors(file.inputs, "inputs", batching.rows_max, reader)
    _check_tensors(file.outputs, "outputs", batching.rows_max, reader)
    _check_heads(file.heads, reader)
    _check_warm_ups(file.warmup, reader)
    task = file.task or registry.record(file.runtime).task
    shared = {each.name: getattr(file, each.name) for each in fields(ModelKeys)}
    shared |= {
        "task": task,
        "embedding": file.embedding or (Embedding() if task == "feature-extraction" else None),
        "generation": _generation(file.generation, task),
    }
    description = ModelDescription(**shared, batching=batching, engine=_engine(file.engine, task))
    check_together(description, where)
    return description


def dump(description: ModelDescription) -> str:
    """The model.yaml that `parse` reads back as this description; empty values are left out.

    `trusted` is the operator's and is never written.
    """
    batching, engine = description.batching, description.engine
    shared = {each.name: getattr(description, each.name) for each in fields(ModelKeys)}
    file = ModelFile(
        **shared,
        schema=1,
        batching=BatchingFile(
            rows_max=batching.rows_max,
            wait_ms_max=_to_ms(batching.wait_s_max) or 0,
            rows_preferred=batching.rows_preferred,
            queue_rows_max=batching.queue_rows_max,
            queue_wait_ms_max=_to_ms(batching.queue_wait_s_max),
            buckets=batching.buckets,
            priorities=batching.priorities,
            latency_ms_p99_max=_to_ms(batching.latency_s_p99_max),
        ),
        engine=None
        if engine is None
        else EngineFile(**_engine_keys(engine), cache_mb=engine.cache_bytes / _MB or None),
    )
    tree = {"schema": 1, "name": description.name} | _plain(file)
    if engine is not None:  # 0 means derived, and is no valid value in the file
        keys = tree["engine"].items()
        tree["engine"] = {key: value for key, value in keys if value != 0 or value is False}
    kept = {key: value for key, value in tree.items() if value not in ("", {}, False)}
    text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=100)
    if _NEXT_LINE in text:
        text = yaml.safe_dump(kept, sort_keys=False, width=100)
    return str(text)


def _batching(file: BatchingFile | None, reader: Reader) -> Batching:
    if file is None:
        return Batching()
    level_ms = file.latency_ms_p99_max
    rows_max = file.rows_max
    if rows_max is None:
        rows_max = Batching().rows_max if level_ms is None else _LEVEL_ROWS_MAX
    for at, rows in enumerate(file.rows_preferred):
        if rows > max(1, rows_max):
            allowed = f"an integer from 1 to {max(1, rows_max)}"
            raise reader.wrong(f"batching.rows_preferred[{at}]", rows, allowed)
    reader.ascending("batching.rows_preferred", file.rows_preferred)
    reader.ascending("batching.buckets", file.buckets)
    if rows_max == 0 and file.wait_ms_max > 0:
        allowed = "0 where rows_max is 0: nothing is joined"
        raise reader.wrong("batching.wait_ms_max", file.wait_ms_max, allowed)
    wait_ms = file.queue_wait_ms_max
    return Batching(
        rows_max=rows_max,
        wait_s_max=file.wait_ms_max / 1000,
        rows_preferred=file.rows_preferred,
        queue_rows_max=file.queue_rows_max,
        queue_wait_s_max=None if wait_ms is None else wait_ms / 1000,
        timeout_override=wait_ms is not None,
        buckets=file.buckets,
        priorities=file.priorities,
        latency_s_p99_max=None if level_ms is None else level_ms / 1000,
    )


def _generation(file: Generation | None, task: str) -> Generation | None:
    if file is None:
        return Generation() if task == "text2text-generation" else None
    return file if file.eos_ids else replace(file, eos_ids=Generation().eos_ids)


def _engine(file: EngineFile | None, task: str) -> EngineOptions | None:
    if file is None:
        return EngineOptions() if task == "text-generation" else None
    return EngineOptions(**_engine_keys(file), cache_bytes=int((file.cache_mb or 0) * _MB))


def _engine_keys(engine: EngineKeys) -> dict[str, Any]:
    return {each.name: getattr(engine, each.name) for each in fields(EngineKeys)}


def _check_tensors(
    tensors: tuple[TensorSpec, ...], path: str, rows_max: int, reader: Reader
) -> None:
    # A model of one row at a time may have a fixed 1 as its batch dimension.
    batch = (-1, 1) if rows_max == 1 else (-1,)
    names: set[str] = set()
    for at, tensor in enumerate(tensors):
        if tensor.name in names:
            allowed = "a name that no other tensor of the list has"
            raise reader.wrong(f"{path}[{at}].name", tensor.name, allowed)
        names.add(tensor.name)
        if rows_max > 0 and (not tensor.shape or tensor.shape[0] not in batch):
            raise reader.wrong(
                f"{path}[{at}].shape",
                list(tensor.shape),
                "a shape that begins with -1, the batch, or batching.rows_max: 0 for a model "
                "without a batch dimension",
            )


def _check_heads(heads: tuple[Head, ...], reader: Reader) -> None:
    names: set[str] = set()
    for at, head in enumerate(heads):
        if head.name in names:
            raise reader.wrong(f"heads[{at}].name", head.name, "a name that no other head has")
        names.add(head.name)
        if bool(head.labels) != (head.task == "classification"):
            allowed = "class names of a classification head, and only there"
            raise reader.wrong(f"heads[{at}].labels", list(head.labels), allowed)


def _check_warm_ups(requests: tuple[WarmUp, ...], reader: Reader) -> None:
    if len(requests) > WARM_UPS_MAX:
        raise reader.wrong("warmup", f"{len(requests)} requests", f"at most {WARM_UPS_MAX}")
    for at, request in enumerate(requests):
        path = f"warmup[{at}]"
        given = [name for name in ("body", "file", "tensors") if getattr(request, name)]
        if len(given) != 1:
            allowed = "one of body, file and tensors: that one alone"
            raise reader.wrong(f"{path}.body", given, allowed)
        if request.tensors and request.content_type:
            allowed = "left out where tensors are given"
            raise reader.wrong(f"{path}.content_type", request.content_type, allowed)
        if sum(math.prod(each.shape) for each in request.tensors) > WARM_UP_ELEMENTS_MAX:
            allowed = f"of {WARM_UP_ELEMENTS_MAX} elements at most"
            raise reader.wrong(f"{path}.tensors", "too large", allowed)


def _plain(value: Any) -> Any:
    """A section of a file as plain values, without optional keys that are empty."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if not is_dataclass(value):
        return value
    return {
        each.name: _plain(own)
        for each in fields(value)
        if (own := getattr(value, each.name)) not in ("", None, (), {})
        or (each.default is MISSING and each.default_factory is MISSING)
    }


def _to_ms(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    milliseconds = round(seconds * 1000, 6)
    return int(milliseconds) if milliseconds == int(milliseconds) else milliseconds


TEXT_TASKS = tuple(task for task in TASKS if task not in ("tensor", "text-generation", "payload"))
_CLASSIFYING = ("text-classification", "pair-classification")
_PACE = "engine.pace"
_REPEATABLE = "engine.repeatable"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_together(description: ModelDescription, where: str) -> None:
    """Refuses keys that are valid by themselves and contradict each other."""
    runtime, task = description.runtime, description.task
    record = registry.record(runtime)
    own_code = record.task == "payload"
    if (task == "payload") != own_code:
        allowed = (
            "payload (the model's own code answers)"
            if own_code
            else f"one of {', '.join(name for name in TASKS if name != 'payload')}"
        )
        raise invalid(where, "task", task, f"{allowed} with runtime: {runtime}")
    _check_task(description, record, where)
    _check_options(description, record, where)
    tensors = (*description.inputs, *description.outputs)
    if not record.takes_strings and any(tensor.dtype == "BYTES" for tensor in tensors):
        others = [one.name for one in registry.records(Interface.TENSORS) if one.takes_strings]
        allowed = f"{' or '.join(others)} for tensors of dtype BYTES"
        raise invalid(where, "runtime", runtime, allowed)
    _check_environment(description, record, where)
    for name in description.environment:
        if not _VARIABLE.match(name):
            raise invalid(where, "environment", name, "names of letters, digits and underscores")
    if "command" in record.options and description.file:
        raise invalid(where, "file", description.file, f"left out for runtime: {runtime}")


_PYTHON = re.compile(r"3\.[0-9]{1,2}(?:\.[0-9]{1,2})?")


def _check_environment(description: ModelDescription, record: RuntimeRecord, where: str) -> None:
    """Keys that give the model's processes an environment of their own."""
    for key in ("requirements", "packed_environment", "python"):
        value = getattr(description, key)
        if value and "requirements" not in record.options:
            shown = list(value) if key == "requirements" else value
            raise invalid(where, key, shown, f"given for runtime: {_takers('requirements')} only")
    if description.packed_environment and (description.requirements or description.python):
        raise invalid(
            where,
            "packed_environment",
            description.packed_environment,
            "given without requirements and python: it has its own",
        )
    for at, line in enumerate(description.requirements):
        try:
            checked_line(line)
        except ValueError as error:
            raise invalid(where, f"requirements[{at}]", line, str(error)) from None
    if description.python and not _PYTHON.fullmatch(description.python):
        allowed = 'a version such as "3.12", in quotes'
        raise invalid(where, "python", description.python, allowed)


def _takers(key: str) -> str:
    return ", ".join(one.name for one in registry.records() if key in one.options)


def _check_options(description: ModelDescription, record: RuntimeRecord, where: str) -> None:
    """Refuses keys that the runtime does not take. A runtime that takes a command must have one."""
    if ("command" in record.options) != bool(description.command):
        allowed = f"given for runtime: {_takers('command')}, and only there"
        raise invalid(where, "command", list(description.command), allowed)
    for key in ("triton_python", "precision", "health", "predict"):
        value = getattr(description, key)
        if value and key not in record.options:
            raise invalid(where, key, value, f"given for runtime: {_takers(key)} only")
    if description.pinned and not record.in_threads:
        threads = ", ".join(one.name for one in registry.records() if one.in_threads)
        raise invalid(where, "pinned", True, f"given for runtime: {threads} only")


def _check_task(description: ModelDescription, record: RuntimeRecord, where: str) -> None:
    runtime, task = record.name, description.task
    generates = record.has(Interface.ENGINE)
    if (task == "text-generation") != generates:
        allowed = "text-generation" if generates else "another one"
        raise invalid(where, "task", task, f"{allowed} with runtime: {runtime}")
    if task != "text-generation" and description.engine is not None:
        raise invalid(where, "engine", "a section", "given for task: text-generation only")
    if description.engine is not None:
        _check_engine(record, description.engine, where)
    writes = task == "text2text-generation"
    needed = Interface.SEQ2SEQ if writes else Interface.TENSORS
    predicts = task == "tensor" and record.predicts
    if task not in ("payload", "text-generation") and not record.has(needed) and not predicts:
        # Those that do nothing else first.
        writers = sorted(registry.records(Interface.SEQ2SEQ), key=lambda one: len(one.loaders))
        allowed = (
            " or ".join(one.name for one in writers)
            if writes
            else "another one, or task: text2text-generation,"
        )
        raise invalid(where, "runtime", runtime, f"{allowed} for task: {task}")
    if task in TEXT_TASKS and description.tokenizer is None:
        raise invalid(where, "tokenizer", None, f"given for task: {task}")
    if task not in TEXT_TASKS and description.tokenizer is not None:
        raise invalid(where, "tokenizer", "a section", f"left out for task: {task}")
    if task in _CLASSIFYING and not description.labels:
        raise invalid(where, "labels", [], f"a list of class names for task: {task}")
    if task == "multi-head" and description.labels:
        shown = list(description.labels)
        raise invalid(
            where, "labels", shown, "left out for task: multi-head: each head has its own"
        )
    if (task == "multi-head") != bool(description.heads):
        shown = [head.name for head in description.heads]
        raise invalid(where, "heads", shown, "given for task: multi-head, and only there")
    if task not in ("feature-extraction", "multi-head") and description.embedding is not None:
        allowed = "given for task: feature-extraction only, or multi-head"
        raise invalid(where, "embedding", "a section", allowed)
    if not writes and description.generation is not None:
        raise invalid(where, "generation", "a section", "given for task: text2text-generation only")


def _check_engine(record: RuntimeRecord, engine: EngineOptions, where: str) -> None:
    """An engine with a table of times needs no model, and would ignore keys about one."""
    if engine.repeatable and _REPEATABLE not in record.options:
        allowed = f"left out, or given for runtime: {_takers(_REPEATABLE)}"
        raise invalid(where, _REPEATABLE, True, allowed)
    if _PACE not in record.options:
        if engine.pace is not None:
            allowed = f"given for runtime: {_takers(_PACE)} only"
            raise invalid(where, _PACE, "a section", allowed)
        return
    for name in ("cache_bytes", "chat_template", "python", "options"):
        if getattr(engine, name):
            key = "cache_mb" if name == "cache_bytes" else name
            shown = getattr(engine, name)
            raise invalid(where, f"engine.{key}", shown, f"left out for runtime: {record.name}")
