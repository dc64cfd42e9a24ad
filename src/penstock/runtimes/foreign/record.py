"""The record of the runtime "process"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.detection.server_code import not_clear, only_server, web_apps
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord


def _lone(root: Path, environment: Mapping[str, str]) -> ModelDescription | None:
    """Raises CallerError (`artifact-layout-unknown`) for a server whose command or paths are not
    clear."""
    apps = web_apps(root)
    if len(apps) == 1 and only_server(apps[0]):
        [app] = apps
        return ModelDescription(
            runtime=RECORD.name,
            task=RECORD.task,
            command=app.command,
            health=app.health,
            predict=app.predict,
        )
    if (error := not_clear(root, apps)) is not None:
        raise error
    return None


RECORD: Final = RuntimeRecord(
    name="process",
    title="Any program that answers HTTP: a path that says it is ready, and one for requests",
    loaders={Interface.PAYLOAD: "penstock.runtimes.foreign.runtime:load"},
    server="penstock.runtimes.foreign.server:ForeignServer",
    memory=MemoryRule(fixed_bytes=512 * 2**20, factor=2.0),
    weight_files=("**/*",),
    understood="a folder of a FastAPI, Starlette, Quart, Litestar or Flask application",
    lone=_lone,
    platform="custom",
    options=frozenset({"command", "health", "predict", "requirements"}),
    shared="server",
    over_network=True,
)
