"""Run times of the real runtime in this process: rows x padded length, for lanes and threads.

All lanes run at once while they are timed, because that is how they run under load: they share the
memory bandwidth and the caches. Only the model is timed; bodies, tokenizer and frames are left to
the live verification.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.errors import CallerError, ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext, TensorRuntime
from penstock.runtimes.loader import load_tensor_runtime
from penstock.runtimes.record import Interface
from penstock.runtimes.tensor_bytes import NUMPY
from penstock.sim.workload import ServiceSpec

_WARM_UP_RUNS = 2
_RUNS_MAX = 200  #: most runs per lane, size and pass: enough for a 99th percentile
_RUNS_MIN = 5


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Run times for one choice of lanes and threads."""

    lanes: int
    threads: int
    runs_s: Mapping[tuple[int, int], tuple[float, ...]]  #: (rows, bucket) -> s of each run

    def told(self) -> str:
        """Mean run times in one line, as rows x length."""
        return ", ".join(
            f"{rows} x {bucket}: {statistics.fmean(runs_s) * 1e3:.2f} ms"
            for (rows, bucket), runs_s in self.runs_s.items()
        )

    def service(self, *, padded_rows: bool) -> ServiceSpec:
        """The times for the twin: means, and the noise of all runs around the mean of their size.

        With `padded_rows` a batch costs as much as the next measured size, as texts in buckets do.
        """
        table, noise = [], []
        before = 0
        for (rows, bucket), runs_s in sorted(self.runs_s.items(), key=lambda run: run[0][::-1]):
            mean_s = statistics.fmean(runs_s)
            if padded_rows and 0 < before < rows - 1:
                table.append((before + 1, bucket, mean_s))
            table.append((rows, bucket, mean_s))
            before = rows
            noise += [run_s / mean_s for run_s in runs_s]
        return ServiceSpec(measured=tuple(table), noise=tuple(noise))


def measure(
    model_dir: Path,
    description: ModelDescription,
    *,
    lanes: int,
    threads: int,
    sizes: list[tuple[int, int]],
    size_s: float,
    cache_dir: Path | None = None,
) -> MeasuredTimes:
    """Times each (rows, bucket) of `sizes` for about `size_s`. Raises ModelError, CallerError."""
    served = dataclasses.replace(description, lanes=lanes, threads_per_lane=threads)
    runtime = loaded(model_dir, served, cores=lanes * threads, cache_dir=cache_dir)
    try:
        runs_s: dict[tuple[int, int], tuple[float, ...]] = dict.fromkeys(sizes, ())
        # Forwards and backwards: other load on the machine must not hit one size alone.
        for rows, bucket in (*sizes, *reversed(sizes)):
            inputs = inputs_of(runtime.inputs, rows, bucket)
            runs_s[rows, bucket] += _timed(runtime, inputs, size_s / 2)
    finally:
        runtime.close()
    return MeasuredTimes(lanes, threads, runs_s)


def loaded(
    model_dir: Path, description: ModelDescription, *, cores: int, cache_dir: Path | None = None
) -> TensorRuntime:
    """The model's runtime in this process. Raises ModelError."""
    return load_tensor_runtime(
        LoadContext(
            model_dir=model_dir,
            description=description,
            endpoint_name="tune",
            variant_name="tune",
            cores=float(cores),
            memory_bytes_max=0,
            cache_dir=cache_dir,
        )
    )


def check_tunable(description: ModelDescription) -> None:
    """Raises CallerError for a model that has no run times by rows and length."""
    tunable = registry.names(Interface.TENSORS)
    if description.runtime not in tunable or description.batching.rows_max < 1:
        raise CallerError(
            "tune-unsupported",
            f"a model of runtime {description.runtime}, batching.rows_max "
            f"{description.batching.rows_max}, cannot be tuned: its batches are not rows of "
            "tensors",
            hint=f"Runtimes that can: {', '.join(tunable)}, with a batch dimension.",
        )


def inputs_of(specs: tuple[TensorSpec, ...], rows: int, bucket: int) -> dict[str, np.ndarray]:
    """Tensors of `rows` rows whose free dimensions are `bucket` long (1 where it is 0)."""
    inputs = {}
    for spec in specs:
        kind = NUMPY.get(spec.dtype)
        if kind is None:
            raise CallerError(
                "tune-unsupported",
                f"input {spec.name!r} is of type {spec.dtype}, for which no values can be made up",
                hint="Numeric inputs can be tuned.",
            )
        shape = (rows, *(max(bucket, 1) if size < 0 else size for size in spec.shape[1:]))
        # Ones are a valid token id, a mask that hides nothing, and an ordinary number.
        inputs[spec.name] = np.ones(shape, dtype=kind)
    return inputs


def _timed(
    runtime: TensorRuntime, inputs: Mapping[str, np.ndarray], size_s: float
) -> tuple[float, ...]:
    """Times in s of single runs, of all lanes at once."""
    by_lane: list[list[float]] = [[] for _ in range(runtime.lanes)]
    errors: list[Exception] = []
    barrier = threading.Barrier(runtime.lanes)

    def serve(lane: int) -> None:
        try:
            for _ in range(_WARM_UP_RUNS):
                runtime.run(lane, inputs)
            barrier.wait()
            until = time.perf_counter() + size_s
            runs_s = by_lane[lane]
            while len(runs_s) < _RUNS_MIN or (
                len(runs_s) < _RUNS_MAX and time.perf_counter() < until
            ):
                started = time.perf_counter()
                runtime.run(lane, inputs)
                runs_s.append(time.perf_counter() - started)
        except Exception as error:  # raised for the caller below, whichever lane failed
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(lane,)) for lane in range(runtime.lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if told:
        shapes = {name: list(array.shape) for name, array in inputs.items()}
        raise ModelError(
            "tune-run-failed",
            f"the model failed on made-up inputs of shapes {shapes}: {told[0]}",
            hint="Name a length that it takes with --tokens.",
        ) from told[0]
    return tuple(run_s for runs_s in by_lane for run_s in runs_s)
