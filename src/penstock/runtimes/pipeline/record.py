"""The record of the runtime "pipeline"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.artifacts.description.description import ModelDescription
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

_FILE: Final = "pipeline.yaml"


def _layout(root: Path, environment: Mapping[str, str]) -> ModelDescription | None:
    if not (root / _FILE).is_file():
        return None
    return ModelDescription(runtime=RECORD.name, task=RECORD.task, file=_FILE)


RECORD: Final = RuntimeRecord(
    name="pipeline",
    title="Steps that call endpoints, services, functions and models, or a Triton ensemble",
    loaders={Interface.PIPELINE: "penstock.runtimes.pipeline.runtime:PipelineRuntime.start"},
    memory=MemoryRule(each_bytes=96 * 2**20),
    process_per_lane=True,
    default_file=_FILE,
    layout=_layout,
    options=frozenset({"requirements"}),
)
