"""Copies of jobs are loaded for throughput, and so that a span done again gives the same bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kit import model_files

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.instance.loading.load import for_throughput, of_job
from penstock.jobs.transform import capacity
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime

CORES = len(os.sched_getaffinity(0))


def test_a_jobs_copies_are_known_by_the_name_that_jobs_give_them() -> None:
    assert of_job(capacity._PREFIX + "nightly")
    assert not of_job("transform-job")


@pytest.mark.parametrize(("cores", "lanes"), [(0.5, 1), (1.0, 1), (1e6, CORES)])
def test_there_is_a_lane_of_one_thread_for_each_core(cores: float, lanes: int) -> None:
    described = ModelDescription(runtime="openvino", lanes=1, threads_per_lane=4, pinned=True)
    made = for_throughput(described, cores)
    assert (made.lanes, made.threads_per_lane, made.pinned) == (lanes, 1, False)


@pytest.mark.parametrize(
    "described",
    [
        ModelDescription(runtime="python", task="payload", lanes=3),
        ModelDescription(runtime="torch", lanes=3),
        ModelDescription(runtime="openvino", task="text2text-generation", lanes=3),
    ],
)
def test_models_whose_lanes_are_more_than_threads_stay_as_they_are(
    described: ModelDescription,
) -> None:
    assert for_throughput(described, 8.0) is described


def test_no_graph_of_one_shape_comes_into_being_in_a_jobs_copy(tmp_path: Path) -> None:
    """When one comes depends on what came before, and its answers differ in the last digits."""
    folder = model_files.affine(tmp_path)
    described = ModelDescription(
        runtime="openvino", file="model.onnx",
        inputs=(TensorSpec(name="x", dtype="FP32", shape=(-1, 4)),),
    )  # fmt: skip

    def graphs(*, offline: bool) -> object:
        runtime = OpenVinoRuntime(
            LoadContext(
                model_dir=folder,
                description=described,
                endpoint_name="e",
                variant_name="v",
                cores=1.0,
                memory_bytes_max=0,
                offline=offline,
                cache_dir=tmp_path / "cache",
            )
        )
        found = runtime._graphs
        runtime.close()
        return found

    assert graphs(offline=False) is not None
    assert graphs(offline=True) is None
