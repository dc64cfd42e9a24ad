"""What is searched, and what a setting means to the instance."""

from __future__ import annotations

from pathlib import Path

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import Batching, ModelDescription
from penstock.core.batching.batcher import BatchSpec
from penstock.tune.search import Setting, lane_choices, lines, row_choices, with_delays, write

MODEL = ModelDescription(
    runtime="onnxruntime",
    file="model.onnx",
    batching=Batching(rows_max=4, wait_s_max=0.5, buckets=(16, 64), queue_rows_max=10),
)


def test_lanes_and_threads_use_all_cores_once_or_half_of_them() -> None:
    assert lane_choices(1) == [(1, 1)]
    assert lane_choices(2) == [(1, 2), (2, 1), (1, 1)]
    assert lane_choices(6) == [(1, 6), (2, 3), (3, 2), (6, 1), (1, 3), (3, 1)]


def test_rows_double_up_to_the_largest() -> None:
    assert row_choices(1) == [1]
    assert row_choices(8) == [1, 2, 4, 8]
    assert row_choices(20) == [1, 2, 4, 8, 16, 20]


def test_delays_stay_below_half_of_the_latency_and_the_level_is_one_of_them() -> None:
    assert with_delays(Setting(1, 2, 8), 0.004) == [
        Setting(1, 2, 8, wait_s_max=0.001),
        Setting(1, 2, 8, latency_s_p99_max=0.004),
    ]
    assert with_delays(Setting(1, 2, 1), 1.0) == [], "single rows have nothing to wait for"


def test_the_twin_gets_the_spec_that_the_instance_would_make() -> None:
    assert Setting(2, 1, 16, wait_s_max=0.001).batch_spec(MODEL) == BatchSpec(
        rows_max=16, wait_s_max=0.001, lanes=2, queue_rows_max=16, buckets=(16, 64)
    )


def test_the_chosen_setting_is_written_and_what_it_does_not_speak_of_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("# What it is.\n\n" + model_yaml.dump(MODEL))
    assert write(tmp_path, MODEL, Setting(2, 1, 16, latency_s_p99_max=0.01)) == path
    assert path.read_text().startswith("# What it is.\n")
    written = model_yaml.load(tmp_path)
    assert (written.lanes, written.threads_per_lane) == (2, 1)
    assert written.batching == Batching(
        rows_max=16, buckets=(16, 64), queue_rows_max=10, latency_s_p99_max=0.01
    )
    assert [each.name for each in tmp_path.iterdir()] == ["model.yaml"]


def test_lines_for_model_yaml_name_the_delay_or_the_level() -> None:
    assert lines(Setting(2, 1, 16, wait_s_max=0.0025)) == (
        "batching:\n  rows_max: 16\n  wait_ms_max: 2.5\nlanes: 2\nthreads_per_lane: 1\n"
    )
    assert "latency_ms_p99_max: 10.0\n" in lines(Setting(2, 1, 16, latency_s_p99_max=0.01))
