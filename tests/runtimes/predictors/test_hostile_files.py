"""Files that are damaged, only look like a model, or would run a program: none does."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.kit.predictors import files, served

from penstock.artifacts.detection.detect import detect
from penstock.artifacts.detection.pickles import pickle_facts
from penstock.errors import CallerError, PenstockError


class RunsCode:
    """Unpickled, it makes the file that it names."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (Path.touch, (self.canary,))


def refused(folder: Path, **more: Any) -> CallerError:
    with pytest.raises(CallerError) as caught:
        detect(folder, **more)
    return caught.value


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "xgboost-model"])
def test_a_pickle_is_never_loaded_to_find_out_what_it_is(
    tmp_path: Path, name: str, packed: bool
) -> None:
    canary = tmp_path / "ran"
    folder = tmp_path / "artifact"
    folder.mkdir()
    data = pickle.dumps(RunsCode(canary))
    (folder / name).write_bytes(zlib.compress(data) if packed else data)
    refused(folder)
    refused(folder, vouched=True)
    assert not canary.exists()
    pickle.loads(data)
    assert canary.exists(), "the canary proves nothing"


async def test_a_pickle_that_calls_itself_a_model_runs_behind_walls_and_only_when_trusted(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "ran"
    folder = tmp_path / "artifact"
    folder.mkdir()
    data = pickle.dumps(RunsCode(canary), protocol=2)
    # The first class that it names is scikit-learn's, and is dropped again.
    (folder / "model.pkl").write_bytes(data[:2] + b"csklearn.base\nBaseEstimator\n0" + data[2:])
    error = refused(folder)
    assert error.code == "artifact-untrusted"
    assert "sklearn.base.BaseEstimator" in error.message
    assert "--trust" in error.hint
    assert "skops" in error.hint
    description = detect(folder, vouched=True).description
    assert (description.trusted, description.unconfined) == (True, False)
    assert detect(folder, trusted=True).description.unconfined is False
    with pytest.raises(PenstockError) as caught:
        async with served(folder, vouched=True):
            pass
    assert caught.value.code == "model-unreadable"  # the walls refused it
    assert not canary.exists()


@pytest.mark.parametrize(
    ("name", "root", "wanted"),
    [
        ("pipeline", "sklearn.pipeline.Pipeline", {"scikit-learn==1.6.1", "joblib"}),
        ("pipeline-pickle", "sklearn.pipeline.Pipeline", {"scikit-learn==1.6.1"}),
        *(
            (f"pipeline-{kind}", "sklearn.pipeline.Pipeline", {"scikit-learn==1.6.1", "joblib"})
            for kind in ("zlib", "gzip", "bz2", "lzma", "xz")
        ),
        ("people", "sklearn.pipeline.Pipeline", {"scikit-learn==1.6.1", "joblib", "pandas"}),
        ("xgb-pickle", "xgboost.core.Booster", {"xgboost==2.1.4"}),
        ("xgb-joblib", "xgboost.sklearn.XGBClassifier",
         {"xgboost==2.1.4", "scikit-learn", "joblib"}),
    ],
)  # fmt: skip
def test_pickles_tell_their_library_and_its_version(name: str, root: str, wanted: set[str]) -> None:
    folder = files() / name
    (path,) = folder.iterdir()
    facts = pickle_facts(path)
    assert facts is not None
    assert facts.root == root
    assert set(detect(folder, vouched=True).description.framework) == wanted


def test_native_files_tell_their_version() -> None:
    def framework(name: str) -> tuple[str, ...]:
        return detect(files() / name).description.framework

    assert framework("xgb-json") == framework("xgb-ubj") == ("xgboost==2.1.4",)
    assert framework("xgb-aws") == ("xgboost==2.1.4",)
    assert framework("xgb-old") == ("xgboost==2.1.*",)
    assert framework("lgb") == ("lightgbm",)
    assert framework("cat") == ("catboost",)
    assert framework("pipeline-skops") == ("scikit-learn==1.6.1", "skops")


@pytest.mark.parametrize("name", ["xgb-json", "xgb-ubj", "lgb", "cat", "pipeline-skops"])
def test_a_file_without_its_end_is_said_to_be_cut_short(tmp_path: Path, name: str) -> None:
    (path,) = (files() / name).iterdir()
    (tmp_path / path.name).write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    error = refused(tmp_path)
    assert error.code == "model-file-invalid"
    assert "cut short" in error.hint


async def test_json_that_only_looks_like_a_model(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.json").write_text(json.dumps({"learner": "anna", "version": [1, 2, 3]}))
    assert refused(other).code == "artifact-layout-unknown"
    alike = tmp_path / "alike"
    alike.mkdir()
    (alike / "model.json").write_text(
        json.dumps({"learner": {"gradient_booster": {}}, "version": [2, 1, 4]})
    )
    with pytest.raises(PenstockError) as caught:
        async with served(alike):
            pass
    assert caught.value.code == "model-unreadable"
    assert "XGBoost 2.1.4 can't read it" in caught.value.message


async def test_a_file_of_a_later_version_names_it(tmp_path: Path) -> None:
    text = (files() / "xgb-json" / "model.json").read_text()
    assert '"version":[2,1,4]' in text
    later = text.replace('"version":[2,1,4]', '"version":[9,0,0]').replace('"trees"', '"woods"')
    (tmp_path / "model.json").write_text(later)
    assert detect(tmp_path).description.framework == ("xgboost==9.0.0",)
    with pytest.raises(PenstockError) as caught:
        async with served(tmp_path):
            pass
    assert "made by XGBoost 9.0" in caught.value.hint


def test_a_skops_file_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.skops", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", "{}")
        archive.writestr("0.npy", b"\0" * (64 << 20))
    error = refused(tmp_path)
    assert (error.code, "unpack to" in error.message) == ("model-file-invalid", True)


async def test_types_that_skops_does_not_trust_are_named(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        async with served(files() / "holes"):
            pass
    assert caught.value.code == "artifact-untrusted"
    assert "TreePredictor" in caught.value.message
    assert "--trust" in caught.value.hint


def test_which_of_several_files_is_meant(tmp_path: Path) -> None:
    """A toolkit's name decides, a form without code goes before a pickle, else it is refused."""
    json_file = files() / "xgb-json" / "model.json"
    shutil.copy(json_file, tmp_path / "a.json")
    shutil.copy(json_file, tmp_path / "b.json")
    assert refused(tmp_path).code == "artifact-ambiguous"
    shutil.copy(json_file, tmp_path / "xgboost-model")
    shutil.copy(files() / "pipeline" / "model.joblib", tmp_path / "model.joblib")
    assert detect(tmp_path).description.file == "xgboost-model"


def test_a_model_yaml_may_name_the_file(tmp_path: Path) -> None:
    shutil.copy(files() / "xgb-json" / "model.json", tmp_path / "mine.json")
    (tmp_path / "model.yaml").write_text("schema: 1\nruntime: xgboost\nfile: mine.json\n")
    described = detect(tmp_path).description
    assert (described.runtime, described.task, described.file) == ("xgboost", "tensor", "mine.json")
    assert described.framework == ("xgboost==2.1.4",)
    assert described.handler == "penstock.runtimes.xgboost.predictor"
