"""The part of every compile that all graphs share: lower, compare, measure, describe.

Parity and times are taken from the artifact as it was written, run by the runtime that will serve
it. Times of one batch before and after compiling alternate, on the same inputs. They belong to one
machine at one moment: use their ratio, and, for a service level, how time grows with rows and
tokens.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from penstock.artifacts.description.description import Batching, ModelDescription, TensorSpec
from penstock.compile.contract import Compiled, Options, Say, Timing
from penstock.compile.graphs.graph import Arrays, SourceGraph
from penstock.compile.graphs.lowering import lower
from penstock.compile.proof.parity import compare
from penstock.compile.proof.samples import Samples, write_samples
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError, ModelError, PenstockError
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime

#: (rows, tokens) of a lone short query, of small and large batches of them, and of long texts.
SHAPES = ((1, 16), (8, 16), (32, 16), (1, 128), (8, 128))
_RUNS_MIN = 3
_RUNS_WARM_MIN = 3
_RUNS_MAX = 200

Run = Callable[[Arrays], object]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def measured(
    before: Run,
    after: Run,
    batches: Sequence[tuple[int, int, Arrays]],
    *,
    seconds: float,
) -> tuple[Timing, ...]:
    """One Timing for each (rows, tokens, inputs); each side runs for about `seconds`."""
    found = []
    for rows, tokens, inputs in batches:
        times: tuple[list[float], list[float]] = ([], [])
        sides = (before, after)
        for run in sides:
            _warm(run, inputs, seconds / 4)
        for run, taken in (*zip(sides, times, strict=True),) * 2:
            _sample(run, inputs, seconds / 2, taken)
        found.append(
            Timing(
                rows=rows,
                tokens=tokens,
                before_s=float(np.median(times[0])),
                after_s=float(np.median(times[1])),
                after_s_p99=float(np.quantile(times[1], 0.99)),
            )
        )
    return tuple(found)


def _warm(run: Run, inputs: Arrays, seconds: float) -> None:
    """Runs until it is as fast as it gets: the first runs of a shape make kernels, fill caches and,
    in PyTorch, are watched by its optimiser."""
    until = time.perf_counter() + seconds
    for count in range(_RUNS_MAX):
        if count >= _RUNS_WARM_MIN and time.perf_counter() > until:
            return
        run(inputs)


def shapes_for(rows_max: int, tokens_max: int) -> tuple[tuple[int, int], ...]:
    """The shapes that the model accepts."""
    fitting = [shape for shape in SHAPES if shape[0] <= rows_max and shape[1] <= tokens_max]
    return tuple(fitting) or ((1, tokens_max),)


def _sample(run: Run, inputs: Arrays, seconds: float, taken: list[float]) -> None:
    until = time.perf_counter() + seconds
    for count in range(_RUNS_MAX):
        start = time.perf_counter()
        if count >= _RUNS_MIN and start > until:
            return
        run(inputs)
        taken.append(time.perf_counter() - start)


def load_context(root: Path, description: ModelDescription, cores: float) -> LoadContext:
    """How a runtime loads the artifact in `root` for a comparison or a measurement."""
    return LoadContext(
        model_dir=root,
        description=description,
        endpoint_name="compile",
        variant_name="compile",
        cores=cores,
        memory_bytes_max=0,
    )


class _Artifact:
    """The artifact in the instance's own runtime, with one lane.

    Raises CallerError (`artifact-unusable`) here and in `run`.
    """

    def __init__(self, root: Path, description: ModelDescription, threads: int) -> None:
        try:
            self._runtime = load_tensor_runtime(load_context(root, description, threads))
        except PenstockError as error:
            raise _unusable(error.message) from None

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """The answer to one batch, by output name."""
        try:
            return self._runtime.run(0, inputs)
        except ModelError as error:
            raise _unusable(error.message) from None

    def close(self) -> None:
        self._runtime.close()


def _unusable(cause: str) -> CallerError:
    return CallerError(
        "artifact-unusable",
        f"the compiled model can't be run: {cause[:400]}",
        hint="The source uses something that this target does not have; try another target.",
    )


#: (rows, tokens) -> inputs of that shape, for models that take texts.
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
    """Writes the model file, and compares its answers and its speed with the source's.

    The answers come from the written file, in the runtime that will serve it.
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
    artifact = _Artifact(staging, described, threads)
    try:
        say(f"comparing with {graph.framework}")
        ours = [artifact.run(batch) for batch in samples.parity]
        parity = compare(reference, ours, described, target.tolerance)
        kept = 0
        if registry.record(lowered.runtime).compiled_for_cpus and not parity.failures():
            asked = [(batch, graph.run(batch)) for batch in samples.kept]
            answers = [artifact.run(batch) for batch in samples.kept]
            kept = write_samples(staging, asked, answers, described, target.tolerance)
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


def _timings(
    graph: SourceGraph,
    artifact: _Artifact,
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


#: Lengths that texts are padded to; a short query does not pay for a long one.
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
#: A millisecond lets a burst gather, and is a tenth of a service level of 10 ms.
WAIT_S_MAX = 0.001


def batching_of(tokens_max: int, rows_max: int) -> Batching:
    """Buckets up to the model's length; `tokens_max` 0: a model of tensors, which has none."""
    buckets = tuple(size for size in BUCKETS if size < tokens_max)
    return Batching(
        rows_max=rows_max,
        wait_s_max=WAIT_S_MAX if rows_max > 1 else 0.0,
        buckets=(*buckets, tokens_max) if tokens_max else (),
    )
