"""Which keys of a model.yaml exclude or need each other."""

from __future__ import annotations

import re

from penstock.artifacts.description.description import TASKS, EngineOptions, ModelDescription
from penstock.artifacts.description.yaml_tree import invalid
from penstock.runtimes import registry
from penstock.runtimes.record import Interface, RuntimeRecord

TEXT_TASKS = (
    "text-classification",
    "pair-classification",
    "text-regression",
    "feature-extraction",
    "multi-head",
    "text2text-generation",
)
_CLASSIFYING = ("text-classification", "pair-classification")
_PACE = "engine.pace"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_together(description: ModelDescription, where: str) -> None:
    """Refuses keys that are valid by themselves and contradict each other."""
    runtime, task = description.runtime, description.task
    record = registry.record(runtime)
    own_code = record.has(Interface.PAYLOAD, Interface.PIPELINE)
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
    for name in description.environment:
        if not _VARIABLE.match(name):
            raise invalid(where, "environment", name, "names of letters, digits and underscores")
    if "command" in record.options and description.file:
        raise invalid(where, "file", description.file, f"left out for runtime: {runtime}")


def _takers(key: str) -> str:
    return ", ".join(one.name for one in registry.records() if key in one.options)


def _check_options(description: ModelDescription, record: RuntimeRecord, where: str) -> None:
    """Refuses keys that the runtime does not take. A runtime that takes a command must have one."""
    if ("command" in record.options) != bool(description.command):
        allowed = f"given for runtime: {_takers('command')}, and only there"
        raise invalid(where, "command", list(description.command), allowed)
    for key in ("triton_python", "precision"):
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
    if task not in ("payload", "text-generation") and not record.has(needed):
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
