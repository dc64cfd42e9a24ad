"""The record of the runtime "python", and its detection of the layout of SageMaker's toolkits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.files.model_files import inside
from penstock.core.models.memory_need import MemoryRule
from penstock.errors import CallerError
from penstock.runtimes.record import Interface, RuntimeRecord

_CODE: Final = "code/inference.py"
_WORKERS_MAX = 64


def _layout(root: Path, environment: Mapping[str, str]) -> ModelDescription | None:
    """Raises CallerError (`artifact-incomplete`, `environment-invalid`)."""
    file = _code_file(root, environment)
    if not file:
        return None
    workers = environment.get("SAGEMAKER_MODEL_SERVER_WORKERS", "")
    digits = workers.isascii() and workers.isdigit() and len(workers) <= len(str(_WORKERS_MAX))
    if workers and not (digits and 1 <= int(workers) <= _WORKERS_MAX):
        raise CallerError(
            "environment-invalid",
            f"SAGEMAKER_MODEL_SERVER_WORKERS is {workers[:20]!r}",
            hint=f"It must be a number from 1 to {_WORKERS_MAX}.",
        )
    lanes = int(workers) if workers else 1
    return ModelDescription(runtime=RECORD.name, task=RECORD.task, file=file, lanes=lanes)


def _code_file(root: Path, environment: Mapping[str, str]) -> str:
    """The code file in code/; SAGEMAKER_PROGRAM may name another one."""
    program = environment.get("SAGEMAKER_PROGRAM", "")
    if not program:
        return _CODE if (root / _CODE).is_file() else ""
    file = f"code/{program}"
    inside(root, file, key="SAGEMAKER_PROGRAM")
    return file


RECORD: Final = RuntimeRecord(
    name="python",
    title="The model's own Python code: SageMaker's functions, or a TritonPythonModel",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=2.0, each_bytes=96 * 2**20),
    weight_files=("**/*",),  # code may read anything
    process_per_lane=True,
    understood=_CODE,
    suffixes=(".py",),
    default_file=_CODE,
    layout=_layout,
    triton={"python": "model.py"},
    options=frozenset({"triton_python", "requirements"}),
    shared="workers",
)
