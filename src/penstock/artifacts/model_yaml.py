"""model.yaml: the explicit description of a model, checked to the last key.

The file is untrusted: it is read with a bound on its size and depth, without aliases (they can grow
a small file into a huge tree), without tags other than YAML's plain ones, and without repeated
keys. Every mistake names the key's path, the value and what is allowed. `dump` writes the same
form.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from penstock.artifacts.budget import too_large
from penstock.artifacts.description import (
    DTYPES,
    RUNTIMES,
    TASKS,
    Batching,
    Embedding,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.artifacts.yaml_keys import TEXT_CHARS_MAX, Keys, invalid
from penstock.errors import CallerError

FILE_NAME = "model.yaml"
FILE_BYTES_MAX = 1024 * 1024  #: room for tens of thousands of labels
_DEPTH_MAX = 16
_POOLINGS = ("mean", "cls")
_PRECISIONS = ("", "f32", "bf16", "f16")
_TEXT_TASKS = ("text-classification", "feature-extraction")
_OWN_CODE = ("python", "process")
_ROWS_MAX = 65_536
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MS_MAX = 3_600_000


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
    top = Keys(_tree(content, where), where=where)
    top.integer("schema", 1, low=1, high=1, required=True)
    runtime = top.choice("runtime", RUNTIMES, required=True)
    own_code = runtime in _OWN_CODE
    task = top.choice("task", TASKS, default="payload" if own_code else "tensor")
    batching = _batching(top.section("batching"))
    description = ModelDescription(
        runtime=runtime,
        task=task,
        name=top.text("name"),
        file=top.path("file"),
        version=top.text("version", "1"),
        inputs=_tensors(top, "inputs", batching.rows_max),
        outputs=_tensors(top, "outputs", batching.rows_max),
        labels=top.texts("labels"),
        tokenizer=_tokenizer(top.section("tokenizer")),
        embedding=_embedding(top.section("embedding"), task),
        batching=batching,
        lanes=top.integer("lanes", 1, low=1, high=1024),
        threads_per_lane=top.integer("threads_per_lane", 0, low=0, high=1024),
        command=top.texts("command"),
        triton_python=top.flag("triton_python", default=False),
        parameters=top.text_map("parameters"),
        environment=top.text_map("environment"),
        precision=top.choice("precision", _PRECISIONS, default=""),
    )
    top.done()
    _check_together(description, where)
    return description


def dump(description: ModelDescription) -> str:
    """The model.yaml that `parse` reads back as this description; defaults are left out.

    `trusted` is the operator's and is never written.
    """
    batching = description.batching
    fields: dict[str, Any] = {
        "schema": 1,
        "name": description.name,
        "runtime": description.runtime,
        "task": description.task,
        "file": description.file,
        "version": description.version,
        "inputs": [_dump_tensor(tensor) for tensor in description.inputs],
        "outputs": [_dump_tensor(tensor) for tensor in description.outputs],
        "labels": list(description.labels),
        "tokenizer": _slots(description.tokenizer),
        "embedding": _slots(description.embedding),
        "batching": {
            "rows_max": batching.rows_max,
            "wait_ms_max": _to_ms(batching.wait_s_max),
            "rows_preferred": list(batching.rows_preferred),
            "queue_rows_max": batching.queue_rows_max,
            "queue_wait_ms_max": _to_ms(batching.queue_wait_s_max),
            "buckets": list(batching.buckets),
            "priorities": batching.priorities,
        },
        "lanes": description.lanes,
        "threads_per_lane": description.threads_per_lane,
        "command": list(description.command),
        "triton_python": description.triton_python,
        "parameters": dict(description.parameters),
        "environment": dict(description.environment),
        "precision": description.precision,
    }
    fields["batching"] = {
        key: value for key, value in fields["batching"].items() if value not in (None, [])
    }
    kept = {key: value for key, value in fields.items() if value not in ("", None, [], {}, False)}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=100)


def _tensors(top: Keys, name: str, rows_max: int) -> tuple[TensorSpec, ...]:
    tensors: list[TensorSpec] = []
    for item in top.sections(name):
        tensor = TensorSpec(
            name=item.text("name", required=True),
            dtype=item.choice("dtype", DTYPES, required=True),
            shape=item.integers("shape", low=-1, high=2**40, required=True),
        )
        item.done()
        if any(tensor.name == other.name for other in tensors):
            raise item.wrong("name", tensor.name, "a name that no other tensor of the list has")
        # One row at a time may be written into the model file as a fixed 1.
        batch = (-1, 1) if rows_max == 1 else (-1,)
        if rows_max > 0 and (not tensor.shape or tensor.shape[0] not in batch):
            raise item.wrong(
                "shape",
                list(tensor.shape),
                "a shape that begins with -1, the batch, or batching.rows_max: 0 for a model "
                "without a batch dimension",
            )
        tensors.append(tensor)
    return tuple(tensors)


def _tokenizer(section: Keys | None) -> Tokenizer | None:
    if section is None:
        return None
    tokenizer = Tokenizer(
        file=section.path("file", Tokenizer().file),
        tokens_max=section.integer("tokens_max", Tokenizer().tokens_max, low=1, high=1_000_000),
        pad_id=section.integer("pad_id", Tokenizer().pad_id, low=0, high=2**31 - 1),
    )
    section.done()
    return tokenizer


def _embedding(section: Keys | None, task: str) -> Embedding | None:
    if section is None:
        return Embedding() if task == "feature-extraction" else None
    embedding = Embedding(
        pooling=section.choice("pooling", _POOLINGS, default=Embedding().pooling),
        normalize=section.flag("normalize", default=Embedding().normalize),
    )
    section.done()
    return embedding


def _batching(section: Keys | None) -> Batching:
    if section is None:
        return Batching()
    default = Batching()
    rows_max = section.integer("rows_max", default.rows_max, low=0, high=_ROWS_MAX)
    wait_ms = section.number("wait_ms_max", low=0, high=_MS_MAX)
    queue_wait_ms = section.number("queue_wait_ms_max", low=0.001, high=_MS_MAX)
    batching = Batching(
        rows_max=rows_max,
        wait_s_max=default.wait_s_max if wait_ms is None else wait_ms / 1000,
        rows_preferred=section.ascending("rows_preferred", high=max(1, rows_max)),
        queue_rows_max=section.integer(
            "queue_rows_max", default.queue_rows_max, low=1, high=10_000_000
        ),
        queue_wait_s_max=None if queue_wait_ms is None else queue_wait_ms / 1000,
        buckets=section.ascending("buckets", high=1_000_000),
        priorities=section.integer("priorities", default.priorities, low=1, high=100),
    )
    if rows_max == 0 and batching.wait_s_max > 0:
        raise section.wrong("wait_ms_max", wait_ms, "0 where rows_max is 0: nothing is joined")
    section.done()
    return batching


def _check_together(description: ModelDescription, where: str) -> None:
    """Keys that are right by themselves and wrong beside each other."""
    runtime, task = description.runtime, description.task
    if (task == "payload") != (runtime in _OWN_CODE):
        allowed = (
            "payload (the model's own code answers)"
            if runtime in _OWN_CODE
            else f"one of {', '.join(name for name in TASKS if name != 'payload')}"
        )
        raise invalid(where, "task", task, f"{allowed} with runtime: {runtime}")
    if task in _TEXT_TASKS and description.tokenizer is None:
        raise invalid(where, "tokenizer", None, f"given for task: {task}")
    if task not in _TEXT_TASKS and description.tokenizer is not None:
        raise invalid(where, "tokenizer", "a section", f"left out for task: {task}")
    if task == "text-classification" and not description.labels:
        raise invalid(where, "labels", [], f"a list of class names for task: {task}")
    if task != "feature-extraction" and description.embedding is not None:
        raise invalid(where, "embedding", "a section", "given for task: feature-extraction only")
    if (runtime == "process") != bool(description.command):
        raise invalid(
            where,
            "command",
            list(description.command),
            "given for runtime: process, and only there",
        )
    if description.triton_python and runtime != "python":
        raise invalid(where, "triton_python", True, "given for runtime: python only")
    if description.precision and runtime != "openvino":
        raise invalid(where, "precision", description.precision, "given for runtime: openvino only")
    tensors = (*description.inputs, *description.outputs)
    if runtime == "openvino" and any(tensor.dtype == "BYTES" for tensor in tensors):
        raise invalid(where, "runtime", runtime, "onnxruntime for tensors of dtype BYTES")
    for name in description.environment:
        if not _VARIABLE.match(name):
            raise invalid(where, "environment", name, "names of letters, digits and underscores")
    if runtime == "process" and description.file:
        raise invalid(where, "file", description.file, "left out for runtime: process")


def _tree(content: bytes | str, where: str) -> dict[str, Any]:
    if len(content) > FILE_BYTES_MAX:
        raise too_large(where, f"{len(content)} bytes", FILE_BYTES_MAX)
    try:
        _refuse_deep_or_aliased(content)
        tree = yaml.load(content, Loader=_Loader)  # noqa: S506 - derived from the safe loader
    except CallerError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        cause = " ".join(str(error).split())[:300]
        raise CallerError(
            "model-yaml-invalid", f"{where}: {cause}", hint="Check the YAML of the file."
        ) from error
    if not isinstance(tree, dict):
        raise invalid(where, "", tree, "a mapping that begins with `schema: 1`")
    return tree


def _refuse_deep_or_aliased(content: bytes | str) -> None:
    depth = 0
    for event in yaml.parse(content, Loader=_BASE_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"aliases are not allowed ({_line(event.start_mark)})")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > TEXT_CHARS_MAX:
            line = _line(event.start_mark)
            raise yaml.YAMLError(f"a value of more than {TEXT_CHARS_MAX} characters ({line})")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > _DEPTH_MAX:
                raise yaml.YAMLError(f"nested deeper than {_DEPTH_MAX} levels")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1


#: libyaml's parser where PyYAML was built with it: ten times faster on long label lists.
_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """The safe loader, which refuses a key given twice where YAML's takes the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                line = _line(key_node.start_mark)
                raise yaml.YAMLError(f"a key of type {type(key).__name__}; quote it ({line})")
            if key in keys:
                line = _line(key_node.start_mark)
                raise yaml.YAMLError(f"the key {key!a} is given twice ({line})")
            keys.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _line(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}"


def _dump_tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _slots(part: Tokenizer | Embedding | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {name: getattr(part, name) for name in type(part).__slots__}


def _to_ms(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    milliseconds = round(seconds * 1000, 6)
    return int(milliseconds) if milliseconds == int(milliseconds) else milliseconds
