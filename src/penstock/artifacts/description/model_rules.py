"""Keys of a model.yaml that are right by themselves and wrong beside each other."""

from __future__ import annotations

import re

from penstock.artifacts.description.description import TASKS, EngineOptions, ModelDescription
from penstock.artifacts.description.yaml_tree import invalid

OWN_CODE = ("python", "process", "pipeline")
TEXT_TASKS = (
    "text-classification",
    "pair-classification",
    "text-regression",
    "feature-extraction",
    "multi-head",
    "text2text-generation",
)
GENERATION_RUNTIMES = ("openvino_genai", "vllm", "paced")
_CLASSIFYING = ("text-classification", "pair-classification")
#: Their lanes are threads of the instance.
_WITH_LANE_THREADS = ("openvino", "onnxruntime", "torch", "seq2seq")
_WITH_PRECISION = ("openvino_genai", "openvino", "torch", "seq2seq")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_together(description: ModelDescription, where: str) -> None:
    """Keys that are right by themselves and wrong beside each other."""
    runtime, task = description.runtime, description.task
    if (task == "payload") != (runtime in OWN_CODE):
        allowed = (
            "payload (the model's own code answers)"
            if runtime in OWN_CODE
            else f"one of {', '.join(name for name in TASKS if name != 'payload')}"
        )
        raise invalid(where, "task", task, f"{allowed} with runtime: {runtime}")
    _check_task(description, where)
    if (runtime == "process") != bool(description.command):
        raise invalid(
            where,
            "command",
            list(description.command),
            "given for runtime: process, and only there",
        )
    if description.triton_python and runtime != "python":
        raise invalid(where, "triton_python", True, "given for runtime: python only")
    if description.precision and runtime not in _WITH_PRECISION:
        allowed = f"given for runtime: {', '.join(_WITH_PRECISION)} only"
        raise invalid(where, "precision", description.precision, allowed)
    if description.pinned and runtime not in _WITH_LANE_THREADS:
        allowed = f"given for runtime: {', '.join(_WITH_LANE_THREADS)} only"
        raise invalid(where, "pinned", True, allowed)
    tensors = (*description.inputs, *description.outputs)
    if runtime in ("openvino", "torch") and any(tensor.dtype == "BYTES" for tensor in tensors):
        raise invalid(where, "runtime", runtime, "onnxruntime for tensors of dtype BYTES")
    for name in description.environment:
        if not _VARIABLE.match(name):
            raise invalid(where, "environment", name, "names of letters, digits and underscores")
    if runtime == "process" and description.file:
        raise invalid(where, "file", description.file, "left out for runtime: process")


def _check_task(description: ModelDescription, where: str) -> None:
    runtime, task = description.runtime, description.task
    if (task == "text-generation") != (runtime in GENERATION_RUNTIMES):
        allowed = "text-generation" if runtime in GENERATION_RUNTIMES else "another one"
        raise invalid(where, "task", task, f"{allowed} with runtime: {runtime}")
    if task != "text-generation" and description.engine is not None:
        raise invalid(where, "engine", "a section", "given for task: text-generation only")
    if description.engine is not None:
        _check_engine(runtime, description.engine, where)
    writes = task == "text2text-generation"
    if writes != (runtime == "seq2seq") and not (writes and runtime == "torch"):
        allowed = "seq2seq or torch" if writes else "another one, or task: text2text-generation,"
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


def _check_engine(runtime: str, engine: EngineOptions, where: str) -> None:
    """A paced engine has its table instead of a model; keys of real ones would say nothing."""
    if runtime != "paced":
        if engine.pace is not None:
            raise invalid(where, "engine.pace", "a section", "given for runtime: paced only")
        return
    for name in ("cache_bytes", "chat_template", "python", "options"):
        if getattr(engine, name):
            key = "cache_mb" if name == "cache_bytes" else name
            shown = getattr(engine, name)
            raise invalid(where, f"engine.{key}", shown, "left out for runtime: paced")
