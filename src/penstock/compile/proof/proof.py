"""The half of every compile that is the same for all graphs: lower, compare, measure, describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.compile.contract import Compiled, Options, Say, Timing
from penstock.compile.graphs.graph import Arrays, SourceGraph
from penstock.compile.graphs.lowering import lower
from penstock.compile.proof.artifact import Artifact, open_artifact
from penstock.compile.proof.measure import cores, measured, shapes_for
from penstock.compile.proof.parity import compare
from penstock.compile.proof.proof_samples import write_samples
from penstock.compile.proof.samples import Samples
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError

#: Rows and tokens -> inputs of that shape, where the model takes texts.
Filled = Callable[[int, int], Arrays]


def prove(
    graph: SourceGraph,
    description: ModelDescription,
    samples: Samples,
    staging: Path,
    options: Options,
    target: CompileTarget,
    say: Say,
    *,
    filled: Filled | None,
) -> Compiled:
    """Writes the model file and says how its answers and its speed compare with the source's.

    Answers are computed from the file as it was written, by the runtime that will serve it.
    """
    reference = [graph.run(batch) for batch in samples.parity]
    if any(not np.isfinite(a).all() for each in reference for a in each.values()):
        raise CallerError(
            "source-not-finite",
            "the source itself answers infinities or NaN to the sample inputs",
            hint="Its weights are damaged, or the samples are outside of what it takes.",
        )
    say(f"converting for {target.name}")
    calibration = samples.calibration if options.activations else ()
    lowered = lower(graph, target, staging, calibration)
    described = dataclasses.replace(
        description,
        runtime=lowered.runtime,
        file=lowered.file,
        precision=lowered.precision,
        parameters={
            **description.parameters,
            **{key: str(value) for key, value in lowered.choices.items() if key == "torch_device"},
        },
    )
    threads = options.threads or cores()
    artifact = open_artifact(staging, described, threads=threads)
    try:
        say(f"comparing with {graph.framework}")
        ours = [artifact.run(batch) for batch in samples.parity]
        parity = compare(reference, ours, described, target.tolerance)
        kept = 0
        if lowered.runtime == "openvino" and not parity.failures():
            kept = _kept(graph, artifact, samples.kept, staging, described, target)
        timings: tuple[Timing, ...] = ()
        if options.measure_s > 0 and not parity.failures():
            say("measuring")
            timings = _timings(graph, artifact, described, samples, options, threads, filled)
    finally:
        artifact.close()
    return Compiled(
        description=described,
        parity=parity,
        timings=timings,
        framework=graph.framework,
        notes=list(lowered.notes),
        choices=dict(lowered.choices),
        proof_batches=kept,
    )


def _kept(
    graph: SourceGraph,
    artifact: Artifact,
    batches: Sequence[Arrays],
    staging: Path,
    description: ModelDescription,
    target: CompileTarget,
) -> int:
    asked = [(batch, graph.run(batch)) for batch in batches]
    ours = [artifact.run(batch) for batch in batches]
    return write_samples(staging, asked, ours, description, target.tolerance)


def _timings(
    graph: SourceGraph,
    artifact: Artifact,
    description: ModelDescription,
    samples: Samples,
    options: Options,
    threads: int,
    filled: Filled | None,
) -> tuple[Timing, ...]:
    graph.set_threads(threads)
    if filled is not None and description.tokenizer is not None:
        shapes = shapes_for(options.rows_max, description.tokenizer.tokens_max)
        batches = [(rows, tokens, filled(rows, tokens)) for rows, tokens in shapes]
    else:
        batches = [(_rows(batch, description.inputs), 0, batch) for batch in samples.parity]
    return measured(graph.run, artifact.run, batches, seconds=options.measure_s)


def _rows(batch: Arrays, specs: tuple[TensorSpec, ...]) -> int:
    array = batch[specs[0].name]
    return len(array) if array.ndim else 1
