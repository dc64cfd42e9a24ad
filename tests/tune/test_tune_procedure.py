"""A whole tuning of a tiny model, without and with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.model_files import affine, classifier, row_sums

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import Batching, ModelDescription, TensorSpec
from penstock.artifacts.detection.detect import detect
from penstock.errors import CallerError
from penstock.tune import report
from penstock.tune.live import copied
from penstock.tune.load import body_of
from penstock.tune.measure import MeasuredTimes, check_tunable, measure
from penstock.tune.procedure import Tuned, TuneSpec, tune
from penstock.tune.search import Setting


def spec(**changes: object) -> TuneSpec:
    values: dict[str, object] = {
        "p99_s": 0.05,
        "cores": 1,
        "instance_type": "ml.local.small",
        "tokens": (4,),
        "rows_max": 4,
        "budget_s": 2.0,
        "live": False,
    }
    return TuneSpec(**(values | changes))  # type: ignore[arg-type]


def tuned(folder: Path, wanted: TuneSpec) -> Tuned:
    detected = detect(folder)
    return tune(detected.root, detected.description, wanted)


def test_every_size_is_timed_on_all_lanes(tmp_path: Path) -> None:
    found = detect(row_sums(tmp_path))
    sizes = [(1, 8), (4, 8)]
    measured = measure(found.root, found.description, lanes=2, threads=1, sizes=sizes, size_s=0.01)
    assert list(measured.runs_s) == sizes
    assert all(len(runs_s) >= 10 and min(runs_s) > 0 for runs_s in measured.runs_s.values())


def test_padded_rows_cost_what_the_next_size_costs() -> None:
    measured = MeasuredTimes(1, 1, {(1, 8): (1.0,), (4, 8): (2.0, 4.0)})
    service = measured.service(padded_rows=True)
    assert service.measured == ((1, 8, 1.0), (2, 8, 3.0), (4, 8, 3.0))
    assert service.noise == (1.0, 2 / 3, 4 / 3)
    assert measured.service(padded_rows=False).measured == ((1, 8, 1.0), (4, 8, 3.0))


def test_without_a_server_the_twins_best_is_chosen(tmp_path: Path) -> None:
    result = tuned(affine(tmp_path), spec())
    best = result.found[0]
    assert best.best is not None
    assert result.chosen == best.setting
    assert (best.setting.lanes, best.setting.threads) == (1, 1)
    assert {each.setting.rows_max for each in result.found} <= {1, 2, 4}
    (first, *_) = report.rows(result)
    assert first[0] == "*1"
    assert "answers/s" in report.plot(result)
    told = report.as_json(result)
    assert told["chosen"].items() <= told["twin"][0].items()


def test_what_no_setting_reaches_is_not_chosen(tmp_path: Path) -> None:
    result = tuned(affine(tmp_path), spec(p99_s=1e-7))
    assert result.chosen is None
    assert report.rows(result)[0][4] == "none"
    assert report.plot(result) == ""


def test_a_body_is_made_for_texts_and_for_tensors(tmp_path: Path) -> None:
    text = detect(classifier(tmp_path))
    assert body_of(text.root, text.description, (), 3) == b'{"inputs":"a a a"}'
    plain = ModelDescription(runtime="onnxruntime")
    x = TensorSpec(name="x", dtype="FP32", shape=(-1, -1))
    y = TensorSpec(name="y", dtype="INT64", shape=(-1,))
    assert body_of(tmp_path, plain, (x,), 2) == b'{"inputs":[[1.0,1.0]]}'
    assert body_of(tmp_path, plain, (x, y), 1) == b'{"inputs":{"x":[[1.0]],"y":[1]}}'


def test_models_without_rows_of_tensors_are_refused() -> None:
    for description in (
        ModelDescription(runtime="python", task="payload"),
        ModelDescription(runtime="onnxruntime", batching=Batching(rows_max=0)),
    ):
        with pytest.raises(CallerError) as caught:
            check_tunable(description)
        assert caught.value.code == "tune-unsupported"


def test_a_candidate_is_a_copy_that_leaves_the_original_alone(tmp_path: Path) -> None:
    folder = affine(tmp_path / "model")
    before = (folder / "model.yaml").read_text()
    description = detect(folder).description
    copied(folder, Setting(2, 1, 2).applied(description), tmp_path / "copy")
    assert (folder / "model.yaml").read_text() == before
    assert model_yaml.load(tmp_path / "copy").lanes == 2
    assert (tmp_path / "copy" / "model.onnx").read_bytes() == (folder / "model.onnx").read_bytes()


@pytest.mark.system
@pytest.mark.timeout(300)  # both budgets and the servers' starts, five times slower
def test_the_best_is_verified_on_a_real_server(tmp_path: Path) -> None:
    """A server takes longer to be there on a slow machine: what its budget leaves no time for is
    left out, so there the budget is a larger one."""
    for budget_s in (22.0, 60.0):
        wanted = spec(p99_s=1.0, live=True, budget_s=budget_s, rows_max=2, tokens=(3,))
        result = tuned(classifier(tmp_path), wanted)
        if result.verified:
            break
    assert result.verified, result.left_out
    assert result.chosen in [each.setting for each in result.verified]
    seen = result.verified[0].live
    assert seen.best is not None
    assert seen.best.unanswered < 0.01
