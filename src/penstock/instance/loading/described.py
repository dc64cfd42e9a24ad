"""Batch bounds and the description for gateways, from a model's description and its tensors.

Pure: it loads and starts nothing.

An artifact's compile report has run times, which are the batcher's first estimates. With them a
service level holds from the first request on; later the copy's own measurements replace them
(`core.batching.run_times`). An unusable report never prevents loading: it counts as missing.

An estimate must not be too long. A request whose deadline can't be met by the estimate is refused,
and if all are refused, no run can correct it. So times are used only on the processor on which they
were measured. For another number of threads they are estimated from below: unchanged for fewer
threads, and reduced in proportion for more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import Batching, ModelDescription, TensorSpec
from penstock.compile.report import read_report
from penstock.core.batching.batcher import BatchSpec, LevelPolicy
from penstock.core.batching.run_here import RUN_HERE_S_MAX
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext
from penstock.runtimes.processor import instruction_set_here, processor

RunsMeasured = tuple[tuple[int, int, float], ...]


def runs_measured(model_dir: Path, batching: Batching, *, threads: int) -> RunsMeasured:
    """(rows, length, run s) of the report beside the model, as `BatchSpec` takes them.

    `threads` are those of a lane. Reads a small file.
    """
    report = read_report(model_dir)
    try:
        here = instruction_set_here().name
        if report["processor"] != processor() or report.get("instruction_set", here) != here:
            return ()
        scale = min(1.0, report["threads"] / threads)
        found = [
            (int(each["rows"]), int(each["tokens"]), float(each["after_ms"]) / 1e3 * scale)
            for each in report["timings"]
        ]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return ()
    longest = batching.buckets[-1] if batching.buckets else 0
    return tuple(
        (rows, length if batching.buckets else 0, run_s)
        for rows, length, run_s in found
        if 1 <= rows <= max(1, batching.rows_max)
        and (length <= longest or not batching.buckets)
        and 0.0 < run_s < math.inf
    )


def batch_spec(
    batching: Batching,
    lanes: int,
    *,
    threads: bool = False,
    here: bool = False,
    seeds: RunsMeasured = (),
) -> BatchSpec:
    """0 rows (no batch dimension) means batches of one request. `here`: short runs may take place
    on the event loop.

    A lane that is a thread gets its next full batch in advance: passing it over takes longer than
    the pause between two runs allows. Not with several lanes, where it could wait behind the slower
    one, and not with priorities, where it could not be overtaken.
    """
    rows_max = max(1, batching.rows_max)
    ahead = threads and lanes == 1 and rows_max > 1 and batching.priorities == 1
    return BatchSpec(
        rows_max=rows_max,
        wait_s_max=batching.wait_s_max,
        lanes=lanes,
        queue_rows_max=max(rows_max, batching.queue_rows_max),
        queue_wait_s_max=batching.queue_wait_s_max,
        timeout_override=batching.timeout_override,
        preserves_order=batching.preserves_order,
        rows_preferred=tuple(rows for rows in batching.rows_preferred if 1 <= rows <= rows_max),
        buckets=batching.buckets,
        batches_ahead=int(ahead),
        priorities=batching.priorities,
        levels=_levels(batching),
        latency_s_p99_max=batching.latency_s_p99_max,
        run_here_s_max=RUN_HERE_S_MAX if here else 0.0,
        runs_measured=seeds,
    )


def _levels(batching: Batching) -> tuple[LevelPolicy, ...]:
    """As many as the spec has: a level that gave way to others is one more, without bounds."""
    levels = batching.levels
    return levels and (levels + (LevelPolicy(),) * batching.priorities)[: batching.priorities]


def slots_spec(batching: Batching, slots: int) -> BatchSpec:
    """One request per slot. The engine may join them; here they wait for a slot."""
    return BatchSpec(
        rows_max=1,
        lanes=slots,
        queue_rows_max=max(1, batching.queue_rows_max),
        queue_wait_s_max=batching.queue_wait_s_max,
        priorities=batching.priorities,
    )


def possible(batching: Batching, inputs: tuple[TensorSpec, ...]) -> Batching:
    """`batching` with no more rows than the graph's fixed batch size."""
    fixed = [spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] > 0]
    if batching.rows_max > 0 and fixed and min(fixed) < batching.rows_max:
        return dataclasses.replace(batching, rows_max=min(fixed))
    return batching


def check_names(
    description: ModelDescription,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> None:
    """Checks that the description and the file name the same tensors."""
    for kind, described, actual in (
        ("input", description.inputs, inputs),
        ("output", description.outputs, outputs),
    ):
        names = {spec.name for spec in actual}
        for spec in described:
            if spec.name not in names:
                raise ModelError(
                    "tensor-mismatch",
                    f"the description names {kind} {spec.name!r}, {description.file} has "
                    f"{', '.join(sorted(names))}",
                    hint="Correct the name in model.yaml or config.pbtxt.",
                )


def answered_tensors(
    description: ModelDescription,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """(inputs, outputs) of requests: all, but for those by which a sequence is controlled and its
    state kept. Raises ModelError where the file does not have these as described."""
    sequences = description.sequences
    if sequences is None:
        return inputs, outputs
    known = {spec.name: spec for spec in inputs}
    given = {spec.name: spec for spec in outputs}
    own = [(known, "input", one.name, one.dtype) for one in sequences.controls]
    for state in sequences.states:
        own.append((known, "input", state.input, state.dtype))
        own.append((given, "output", state.output, state.dtype))
    for specs, kind, name, dtype in own:
        if name not in specs or specs[name].dtype != dtype:
            found = specs[name].dtype if name in specs else "no such tensor"
            raise ModelError(
                "tensor-mismatch",
                f"sequence_batching names {kind} {name!r} of {dtype}, {description.file} has "
                f"{found}",
                hint="Correct sequence_batching in config.pbtxt.",
            )
    shown = {spec.name for spec in description.outputs}
    hidden = {one.output for one in sequences.states} - shown
    return (
        tuple(spec for spec in inputs if spec.name not in sequences.own_inputs),
        tuple(spec for spec in outputs if spec.name not in hidden),
    )


def told_tensors(runtime: Any) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """(inputs, outputs) that a worker told of the model that it loaded."""
    inputs, outputs = (
        tuple(
            TensorSpec(name=name, dtype=dtype, shape=tuple(shape))
            for name, dtype, shape in runtime.about[key]
        )
        for key in ("inputs", "outputs")
    )
    return inputs, outputs


def codec_model(
    context: LoadContext,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    batched: bool = True,
    columns: Mapping[str, tuple[str, ...]] | None = None,
) -> CodecModel:
    """The codecs' view of its tensors. `batched`: their first dimension may be that of rows."""
    description = context.description
    return CodecModel(
        name=context.endpoint_name,
        version=description.version,
        inputs=inputs,
        outputs=outputs,
        batched=batched and description.batching.rows_max > 0,
        columns=columns or {},
        labels=description.triton.labels if description.triton is not None else {},
        optional=description.triton.optional if description.triton is not None else frozenset(),
    )


def described(
    context: LoadContext,
    model: CodecModel,
    spec: BatchSpec,
    batching: Batching,
    labels: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The model's routing facts and its tensors, JSON-ready."""
    description = context.description
    record = registry.record(description.runtime)

    def tensor(spec: TensorSpec) -> dict[str, Any]:
        shape = list(spec.shape)
        if model.batched and shape:
            shape[0] = -1
        return {"name": spec.name, "datatype": spec.dtype, "shape": shape}

    sequences = description.sequences
    told = {"sequence_idle_s": sequences.idle_s_max} if sequences is not None else {}
    return {
        **told,
        "runtime": record.name,
        "runtime_reason": description.runtime_reason,
        "task": description.task,
        "platform": record.platform or record.name,
        "name": description.name,
        "versions": [description.version],
        "inputs": [tensor(each) for each in model.inputs],
        "outputs": [tensor(each) for each in model.outputs],
        "labels": list(labels),
        "rows_max": batching.rows_max,
        "lanes": spec.lanes,
        "lane_rows_max": spec.rows_max,
        "outstanding_max": spec.queue_rows_max + spec.lanes * spec.rows_max,
        "batching": dataclasses.asdict(batching),
        "config": description.triton.config if description.triton is not None else {},
    }
