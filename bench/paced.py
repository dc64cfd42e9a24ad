"""Artifacts of paced engines: a model.yaml with a table of times."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from penstock.core.batching.generation_steps import GenerationSpec


@contextlib.contextmanager
def paced_artifact(
    spec: GenerationSpec, *, prefix_tokens: int = 0, faster: float = 1.0, load_s: float = 0.0
) -> Iterator[Path]:
    """`faster`: every time of the table is so much shorter."""
    pace: dict[str, Any] = {
        "step_s": spec.step_s / faster,
        "sequence_s": spec.sequence_s / faster,
        "prefill_token_s": spec.prefill_token_s / faster,
        "sigma": spec.sigma,
        "prefixes_cached_max": spec.prefixes_cached_max,
        "prefix_tokens": prefix_tokens,
        "load_s": load_s,
    }
    engine = {
        "sequences_max": spec.sequences_max,
        "tokens_batched_max": spec.prefill_tokens_max,
        "pace": pace,
    }
    with tempfile.TemporaryDirectory() as folder:
        described = {"schema": 1, "runtime": "paced", "engine": engine}
        Path(folder, "model.yaml").write_text(yaml.safe_dump(described))
        yield Path(folder)
