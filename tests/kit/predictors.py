"""Models that come as files of a library: the files, each library's own answers, and a copy to ask.

The files are written once per run, by the libraries themselves, in the environment `predictors`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.environments import python_of

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.detection.detect import detect
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.instance.copy import CopyCall
from penstock.instance.loading.loaded import Loaded
from penstock.instance.loading.start import start_one
from penstock.runtimes.base import LoadContext
from penstock.wire import frames
from penstock.wire.frames import RequestMeta

MAKER = Path(__file__).resolve().parents[1] / "runtimes" / "predictors" / "make_files.py"


@functools.cache
def files() -> Path:
    """A folder for each model, and `answers.json`."""
    root = Path(tempfile.mkdtemp(prefix="penstock-predictors-"))
    made = subprocess.run(
        [str(python_of("predictors")), str(MAKER), str(root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    return root


@functools.cache
def answers() -> dict[str, dict[str, Any]]:
    """What each library answers: name -> rows, predict, predict_proba, columns."""
    told: dict[str, dict[str, Any]] = json.loads((files() / "answers.json").read_text())
    return told


class IgnoredEvents:
    """A lane listener that hears nothing."""

    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None: ...


class AskedModel:
    """A loaded model, asked past all front doors."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._copy = loaded.copy(0, clock=SystemClock(), call_at=lambda at, call: _Never())

    def loaded_inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that its metadata lists."""
        engine: Any = self.loaded.work
        inputs: tuple[TensorSpec, ...] = engine.engine.model.inputs
        return inputs

    async def ask(self, body: Any, content_type: str = "application/json", **meta: Any) -> Any:
        """The answer's body: parsed where it was asked in JSON. Raises the model's error."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        call = CopyCall()
        encoded = frames.encode_request_meta(RequestMeta(content_type, **meta))
        call.begin(self._copy, 1, encoded, data)
        outcome = await call.outcome
        if isinstance(outcome, PenstockError):
            raise outcome
        assert isinstance(outcome, bytes), outcome
        plain = content_type == "application/json" and meta.get("accept") in (
            None,
            "application/json",
        )
        return json.loads(outcome) if plain and outcome[:1] in b"{[" else outcome


class _Never:
    def cancel(self) -> None: ...


@asynccontextmanager
async def served(
    folder: Path,
    *,
    image: str = "",
    vouched: bool = False,
    environment: dict[str, str] | None = None,
    offline: bool = False,
    python: str = "",
) -> AsyncIterator[AskedModel]:
    """The model of a folder in a worker of its own, behind its walls."""
    found = detect(folder, image=image, vouched=vouched, environment=environment or {})
    context = LoadContext(
        model_dir=found.root, description=found.description, endpoint_name="m",
        variant_name="v", cores=1.0, memory_bytes_max=0, environment=environment or {},
        interpreter=python or str(python_of("predictors")), offline=offline,
        startup_timeout_s=100.0,
    )  # fmt: skip
    loaded = await start_one(dataclasses.replace(context), IgnoredEvents())
    try:
        yield AskedModel(loaded)
    finally:
        await loaded.close()
