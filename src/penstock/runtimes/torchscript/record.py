"""The record of the runtime "torchscript", and its detection of what torch.jit.save wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.detection.torch_files import TORCHSCRIPT, kind_of
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.python import toolkit_variables
from penstock.runtimes.record import Interface, RuntimeRecord


def _is_torchscript(path: Path) -> bool:
    return kind_of(path) == TORCHSCRIPT


RECORD: Final = RuntimeRecord(
    name="torchscript",
    title="TorchScript files (torch.jit.save), by PyTorch in a worker process",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=2.0, each_bytes=384 * 2**20),
    process_per_lane=True,
    extra="torch",
    understood="a TorchScript file (*.pt, *.pth, *.ts)",
    suffixes=(".pt", ".pth", ".ts", ".torchscript"),
    recognises=_is_torchscript,
    framework=("torch",),
    handler="penstock.runtimes.torchscript.handler",
    handlers={"pytorch": "penstock.runtimes.toolkits.pytorch"},
    lanes_asked=toolkit_variables.lanes_asked,
)
