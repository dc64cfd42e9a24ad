"""model.yaml: the explicit description of a model, checked to the last key.

Every mistake names the key's path, the value and what is allowed. `dump` writes the same form. That
the file is untrusted is `yaml_tree`'s business; which keys fit together is `model_rules`'.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from penstock.artifacts.description import pace_yaml, warm_up_yaml
from penstock.artifacts.description.description import (
    DTYPES,
    HEAD_TASKS,
    RUNTIMES,
    TASKS,
    Batching,
    Embedding,
    EngineOptions,
    Generation,
    Head,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.artifacts.description.model_rules import GENERATION_RUNTIMES, OWN_CODE, check_together
from penstock.artifacts.description.yaml_keys import Keys
from penstock.artifacts.description.yaml_tree import FILE_BYTES_MAX, read_tree
from penstock.artifacts.files.budget import too_large

FILE_NAME = "model.yaml"
_POOLINGS = ("mean", "cls")
_PRECISIONS = ("", "f32", "bf16", "f16")
_ROWS_MAX = 65_536
#: A service level chooses the size of batches; up to here, unless the file says less or more.
_LEVEL_ROWS_MAX = 64
_MS_MAX = 3_600_000
_ID_MAX = 2**31 - 1
_MB = 1 << 20
#: Part of tensor names of the Open Inference Protocol, after which a full stop follows.
HEAD_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


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
    top = Keys(read_tree(content, where), where=where)
    top.integer("schema", 1, low=1, high=1, required=True)
    runtime = top.choice("runtime", RUNTIMES, required=True)
    task = top.choice("task", TASKS, default=_task_of(runtime))
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
        heads=_heads(top),
        generation=_generation(top.section("generation"), task),
        engine=_engine(top.section("engine"), task),
        batching=batching,
        lanes=top.integer("lanes", 1, low=1, high=1024),
        threads_per_lane=top.integer("threads_per_lane", 0, low=0, high=1024),
        pinned=top.flag("pinned", default=False),
        command=top.texts("command"),
        triton_python=top.flag("triton_python", default=False),
        parameters=top.text_map("parameters"),
        environment=top.text_map("environment"),
        precision=top.choice("precision", _PRECISIONS, default=""),
        warmup=warm_up_yaml.parse(top),
    )
    top.done()
    check_together(description, where)
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
        "heads": [_slots(head) for head in description.heads],
        "generation": _slots(description.generation),
        "engine": _dump_engine(description.engine),
        "batching": {
            "rows_max": batching.rows_max,
            "wait_ms_max": _to_ms(batching.wait_s_max),
            "rows_preferred": list(batching.rows_preferred),
            "queue_rows_max": batching.queue_rows_max,
            "queue_wait_ms_max": _to_ms(batching.queue_wait_s_max),
            "buckets": list(batching.buckets),
            "priorities": batching.priorities,
            "latency_ms_p99_max": _to_ms(batching.latency_s_p99_max),
        },
        "lanes": description.lanes,
        "threads_per_lane": description.threads_per_lane,
        "pinned": description.pinned,
        "command": list(description.command),
        "triton_python": description.triton_python,
        "parameters": dict(description.parameters),
        "environment": dict(description.environment),
        "precision": description.precision,
        "warmup": [warm_up_yaml.dump(each) for each in description.warmup],
    }
    fields["batching"] = {
        key: value for key, value in fields["batching"].items() if value not in (None, [])
    }
    kept = {key: value for key, value in fields.items() if value not in ("", None, [], {}, False)}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=100)


def _tensors(top: Keys, name: str, rows_max: int) -> tuple[TensorSpec, ...]:
    tensors: list[TensorSpec] = []
    names: set[str] = set()
    for item in top.sections(name):
        tensor = TensorSpec(
            name=item.text("name", required=True),
            dtype=item.choice("dtype", DTYPES, required=True),
            shape=item.integers("shape", low=-1, high=2**40, required=True),
        )
        item.done()
        if tensor.name in names:
            raise item.wrong("name", tensor.name, "a name that no other tensor of the list has")
        names.add(tensor.name)
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
        pad_id=section.integer("pad_id", Tokenizer().pad_id, low=0, high=_ID_MAX),
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


def _heads(top: Keys) -> tuple[Head, ...]:
    heads: list[Head] = []
    names: set[str] = set()
    for item in top.sections("heads"):
        head = Head(
            name=item.text("name", required=True),
            task=item.choice("task", HEAD_TASKS, required=True),
            output=item.text("output", required=True),
            labels=item.texts("labels"),
        )
        item.done()
        if not HEAD_NAME.match(head.name):
            raise item.wrong("name", head.name, "up to 64 letters, digits, hyphens, underscores")
        if head.name in names:
            raise item.wrong("name", head.name, "a name that no other head has")
        names.add(head.name)
        if bool(head.labels) != (head.task == "classification"):
            raise item.wrong(
                "labels", list(head.labels), "class names of a classification head, and only there"
            )
        heads.append(head)
    return tuple(heads)


def _generation(section: Keys | None, task: str) -> Generation | None:
    if section is None:
        return Generation() if task == "text2text-generation" else None
    default = Generation()
    generation = Generation(
        encoder_file=section.path("encoder_file", default.encoder_file),
        decoder_file=section.path("decoder_file", default.decoder_file),
        eos_ids=section.integers("eos_ids", low=0, high=_ID_MAX) or default.eos_ids,
        decoder_start_id=section.integer(
            "decoder_start_id", default.decoder_start_id, low=0, high=_ID_MAX
        ),
        tokens_new_max=section.integer(
            "tokens_new_max", default.tokens_new_max, low=1, high=1_000_000
        ),
        beams_max=section.integer("beams_max", default.beams_max, low=1, high=64),
    )
    section.done()
    return generation


def _engine(section: Keys | None, task: str) -> EngineOptions | None:
    if section is None:
        return EngineOptions() if task == "text-generation" else None
    default = EngineOptions()
    cache_mb = section.number("cache_mb", low=1, high=2**30)
    engine = EngineOptions(
        context_tokens_max=section.integer("context_tokens_max", 0, low=1, high=100_000_000),
        sequences_max=section.integer("sequences_max", default.sequences_max, low=1, high=4096),
        tokens_batched_max=section.integer(
            "tokens_batched_max", default.tokens_batched_max, low=1, high=10_000_000
        ),
        chunked_prefill=section.flag("chunked_prefill", default=default.chunked_prefill),
        prefix_caching=section.flag("prefix_caching", default=default.prefix_caching),
        cache_bytes=0 if cache_mb is None else int(cache_mb * _MB),
        chat_template=section.path("chat_template"),
        python=section.text("python"),
        options=section.text_map("options"),
        pace=pace_yaml.parse(section),
    )
    section.done()
    return engine


def _dump_engine(engine: EngineOptions | None) -> dict[str, Any] | None:
    if engine is None:
        return None
    values = _slots(engine) or {}
    cache_bytes = values.pop("cache_bytes")
    if cache_bytes:
        values["cache_mb"] = cache_bytes / _MB
    if engine.pace is not None:
        values[pace_yaml.KEY] = pace_yaml.dump(engine.pace)
    return {name: value for name, value in values.items() if value is False or value}


def _batching(section: Keys | None) -> Batching:
    if section is None:
        return Batching()
    default = Batching()
    wait_ms = section.number("wait_ms_max", low=0, high=_MS_MAX)
    queue_wait_ms = section.number("queue_wait_ms_max", low=0.001, high=_MS_MAX)
    latency_ms = section.number("latency_ms_p99_max", low=0.001, high=_MS_MAX)
    rows_default = default.rows_max if latency_ms is None else _LEVEL_ROWS_MAX
    rows_max = section.integer("rows_max", rows_default, low=0, high=_ROWS_MAX)
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
        latency_s_p99_max=None if latency_ms is None else latency_ms / 1000,
    )
    if rows_max == 0 and batching.wait_s_max > 0:
        raise section.wrong("wait_ms_max", wait_ms, "0 where rows_max is 0: nothing is joined")
    section.done()
    return batching


def _task_of(runtime: str) -> str:
    if runtime in OWN_CODE:
        return "payload"
    if runtime in GENERATION_RUNTIMES:
        return "text-generation"
    return "text2text-generation" if runtime == "seq2seq" else "tensor"


def _dump_tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _slots(
    part: Tokenizer | Embedding | Head | Generation | EngineOptions | None,
) -> dict[str, Any] | None:
    if part is None:
        return None
    values = {name: getattr(part, name) for name in type(part).__slots__}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != ()
    }


def _to_ms(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    milliseconds = round(seconds * 1000, 6)
    return int(milliseconds) if milliseconds == int(milliseconds) else milliseconds
