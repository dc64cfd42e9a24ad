"""The record of the runtime "container"."""

from __future__ import annotations

from typing import Final

from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="container",
    title="A container image by SageMaker's contract: GET /ping and POST /invocations",
    loaders={Interface.PAYLOAD: "penstock.runtimes.foreign.runtime:load"},
    server="penstock.runtimes.container.server:ContainerServer",
    memory=MemoryRule(fixed_bytes=512 * 2**20, factor=2.0),
    weight_files=("**/*",),
    platform="custom",
    shared="server",
    runs_images=True,
)
