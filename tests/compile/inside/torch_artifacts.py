"""Artifacts of runtime `torch` as an instance would load them, and archives that were tampered."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models
import torch

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import Batching, Tokenizer
from penstock.artifacts.detection.detect import detect
from penstock.compile.contract import Options
from penstock.compile.encoder.encoder import encoder_graph
from penstock.compile.encoder.encoder_plan import plan_encoder
from penstock.compile.graphs.lowering import lower_exported
from penstock.compile.targets import TARGETS
from penstock.runtimes.base import LoadContext


def context(root: Path, **more: Any) -> LoadContext:
    """`more` are fields of the description, or `log`."""
    log = more.pop("log", lambda line: None)
    detected = detect(root, trusted=more.get("trusted", False))
    return LoadContext(
        model_dir=detected.root,
        description=dataclasses.replace(detected.description, **more),
        endpoint_name="e",
        variant_name="v",
        cores=1.0,
        memory_bytes_max=0,
        log=log,
    )


def encoder(root: Path, source: Path, target: str, **more: Any) -> Any:
    """A saved encoder as the artifact of a GPU target, proven on no GPU: it runs on the CPU."""
    root.mkdir()
    plan = plan_encoder(source, Options(target=target))
    graph = encoder_graph(plan, trust=False)
    lowered = lower_exported(graph, TARGETS[target], root, device="cpu")
    from penstock.artifacts.description.description import ModelDescription

    description = ModelDescription(
        runtime=lowered.runtime,
        task=plan.task,
        file=lowered.file,
        inputs=graph.inputs,
        outputs=graph.outputs,
        labels=plan.labels,
        tokenizer=Tokenizer(tokens_max=plan.tokens_max),
        batching=Batching(rows_max=8, buckets=(8, 16, 32)),
        precision=lowered.precision,
        parameters={key: str(value) for key, value in lowered.choices.items()},
        **more,
    )
    tiny_models.word_pieces().save(str(root / "tokenizer.json"))
    (root / model_yaml.FILE_NAME).write_text(model_yaml.dump(description))
    return graph


class Scaled(torch.nn.Module):
    """A linear layer whose answer the tests know: y = 2 x."""

    def forward(self, x: Any) -> Any:
        return x * 2.0


def export(path: Path, module: Any = None, example: Any = None, **free: Any) -> None:
    if module is None and example is None and not free:
        path.write_bytes(_scaled())
        return
    _export(path, module or Scaled(), torch.ones(3, 4) if example is None else example, free)


@functools.cache
def _scaled() -> bytes:
    """Exported once: most tests are of what becomes of its file."""
    made = io.BytesIO()
    _export(made, Scaled(), torch.ones(3, 4), {})
    return made.getvalue()


def _export(file: Any, module: Any, example: Any, free: dict[str, Any]) -> None:
    shapes = free or {"x": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    torch.export.save(program, file if isinstance(file, io.BytesIO) else str(file))


def tampered(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """`change` is given the archive's parts, by their names inside its one folder."""
    with zipfile.ZipFile(path) as archive:
        names = {name.partition("/")[2]: name for name in archive.namelist()}
        parts = {part: archive.read(name) for part, name in names.items()}
    folder = next(iter(names.values())).partition("/")[0]
    change(parts)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for part, content in parts.items():
            archive.writestr(f"{folder}/{part}", content)
    path.write_bytes(made.getvalue())


def in_program(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
    """A change to the program's JSON."""

    def apply(parts: dict[str, bytes]) -> None:
        program = json.loads(parts["models/model.json"])
        change(program)
        parts["models/model.json"] = json.dumps(program).encode()

    return apply
