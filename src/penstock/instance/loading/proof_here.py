"""The test of a compiled artifact on this processor (`core.builds`): run once, result remembered.

The test runs a few small batches through the runtime that was just loaded. Its result is stored in
the cache beside the compiled blobs, by artifact, instruction set and library version. It never
prevents loading: an endpoint whose answers differ a little more than promised goes on, and reports
it, because a machine of another kind must not cause an outage.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.contract import Tolerance
from penstock.compile.graphs.graph import Arrays
from penstock.compile.proof.samples import FILE, compare_samples, read_samples
from penstock.compile.report import REPORT, read_report
from penstock.core.models.instruction_sets import NOT_PROVED, Proof, needs_check, proof
from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext, TensorRuntime
from penstock.runtimes.processor import instruction_set_here

_LOG = logging.getLogger(__name__)

Run = Callable[[Arrays], Arrays]


def proof_here(context: LoadContext, runtime: TensorRuntime | None = None) -> Proof | None:
    """None for artifacts that `penstock compile` did not make for CPUs. Without a runtime no test
    is run: models that generate text have no samples. The first call blocks for some milliseconds:
    make it on a thread, before the lane has work."""
    if not registry.record(context.description.runtime).compiled_for_cpus:
        return None
    report = read_report(context.model_dir)
    if not isinstance(report, dict) or "parity" not in report:
        return None
    run = partial(runtime.run, 0) if runtime is not None else None
    found = _proof(context, report, run)
    where = f"{context.endpoint_name}/{context.variant_name}"
    if found.state == NOT_PROVED:
        _LOG.warning(
            "%s: proved on %s, and NOT equal to its source on this processor (%s): %s. Compile it "
            "on a machine of this kind.",
            where, found.proved_on, found.instruction_set, found.detail,
        )  # fmt: skip
    else:
        _LOG.info(
            "%s: %s (compiled on %s, here %s)%s", where, found.state, found.proved_on or "?",
            found.instruction_set, f": {found.detail}" if found.detail else "",
        )  # fmt: skip
    return found


def _proof(context: LoadContext, report: dict[str, Any], run: Run | None) -> Proof:
    here, proved_on = instruction_set_here().name, str(report.get("instruction_set") or "")
    if not needs_check(proved_on, here):
        return proof(proved_on, here, None)
    marker = _marker(context, here)
    failures = _remembered(marker)
    unasked = ""
    if failures is None and run is not None:
        try:
            failures = _asked(context.model_dir, context.description, report, run)
        except ModelError as error:
            unasked = error.message
        if failures is not None:
            _remember(marker, failures)
    unasked = unasked or "the artifact brings no samples along"
    return proof(proved_on, here, failures, unasked=unasked)


def _asked(
    root: Path, description: ModelDescription, report: dict[str, Any], run: Run
) -> tuple[str, ...] | None:
    """The results outside of the compile's tolerance; None: there is nothing to test.

    Raises ModelError (`proof-unreadable`).
    """
    samples = read_samples(root)
    if not samples:
        return None
    try:
        limits = report["parity"]["tolerance"]
        tolerance = Tolerance(
            difference_max=float(limits["difference_max"]),
            difference_mean=float(limits["difference_mean"]),
            agreement_min=float(limits["agreement_min"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ModelError("proof-unreadable", f"{REPORT} has no tolerance") from None
    try:
        ours = [run(inputs) for inputs, _ in samples]
        return compare_samples(samples, ours, description, tolerance).failures()
    except ModelError as error:
        return (f"the samples can't be run: {error.message}",)
    except (KeyError, IndexError, ValueError) as error:
        raise ModelError("proof-unreadable", f"{FILE} is not of this model: {error}") from None


def _marker(context: LoadContext, here: str) -> Path | None:
    """Artifacts never change in their cache: path, size and time identify the content."""
    if context.cache_dir is None:
        return None
    record = registry.record(context.description.runtime)
    facts = [here, importlib.metadata.version(record.library)]
    for name in (context.description.file, REPORT, FILE):
        path = context.model_dir / name
        with suppress(OSError):
            status = path.stat()
            facts += [str(path), str(status.st_size), str(status.st_mtime_ns)]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return context.cache_dir / "proved" / key


def _remembered(marker: Path | None) -> tuple[str, ...] | None:
    """A marker that can't be read counts as missing: the test is run again."""
    try:
        told = json.loads(marker.read_bytes()) if marker is not None else None
    except (OSError, ValueError):
        return None
    return tuple(map(str, told)) if isinstance(told, list) else None


def _remember(marker: Path | None, failures: tuple[str, ...]) -> None:
    if marker is None:
        return
    with suppress(OSError):  # the disk is full: the next load runs the test again
        marker.parent.mkdir(parents=True, exist_ok=True)
        made = marker.with_name(f".{marker.name}.{secrets.token_hex(4)}")
        made.write_text(json.dumps(failures))
        os.replace(made, marker)
