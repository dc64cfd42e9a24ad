"""Code that lies apart from the weights: SAGEMAKER_SUBMIT_DIRECTORY on S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from artifact_files import error_of, member, tar_gz, write

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.prepare import prepare
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.clock import ManualClock

IMAGE = "1.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache")


@pytest.fixture
def settings(tmp_path: Path) -> ArtifactSettings:
    """The bucket `b`, with weights and code in archives of their own."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    old = member("code/serve.py", b"old"), member("code/extra.py", b"old")
    tar_gz(bucket / "model.tar.gz", [member("model.joblib", b"weights"), *old])
    tar_gz(bucket / "code.tar.gz", [member("serve.py", b"new"), member("lib/help.py", b"help")])
    return ArtifactSettings(s3_local={"b": str(bucket)})


def submitted(uri: str = "s3://b/model.tar.gz", **environment: str) -> ArtifactSource:
    named = {"SAGEMAKER_PROGRAM": "serve.py", "SAGEMAKER_SUBMIT_DIRECTORY": "s3://b/code.tar.gz"}
    return ArtifactSource(uri=uri, image=IMAGE, environment=named | environment)


def test_weights_and_code_are_one_artifact_and_the_submitted_code_counts(
    cache: ArtifactCache, settings: ArtifactSettings
) -> None:
    detected = prepare(submitted(), cache, settings)
    assert (detected.description.runtime, detected.description.file) == ("python", "code/serve.py")
    files = {
        path.relative_to(detected.root).as_posix(): path.read_bytes()
        for path in detected.root.rglob("*")
        if path.is_file()
    }
    assert files == {
        "model.joblib": b"weights", "code/serve.py": b"new", "code/lib/help.py": b"help",
    }  # fmt: skip
    assert prepare(submitted(), cache, settings) == detected


def test_what_they_are_made_of_may_be_evicted(
    cache: ArtifactCache, settings: ArtifactSettings
) -> None:
    detected = prepare(submitted(), cache, settings)
    assert len(cache.evict([detected.digest], 0, idle_s_min=-(10**12))) == 2
    assert (detected.root / "model.joblib").read_bytes() == b"weights"
    assert prepare(submitted(), cache, settings) == detected


def test_other_code_for_the_same_weights_is_another_artifact(
    tmp_path: Path, cache: ArtifactCache, settings: ArtifactSettings
) -> None:
    first = prepare(submitted(), cache, settings)
    tar_gz(tmp_path / "bucket" / "code.tar.gz", [member("serve.py", b"newer")])
    second = prepare(submitted(), cache, settings)
    assert first.digest != second.digest
    assert (second.root / "code/serve.py").read_bytes() == b"newer"
    assert (first.root / "code/serve.py").read_bytes() == b"new"


def test_a_model_may_be_nothing_but_code(cache: ArtifactCache, settings: ArtifactSettings) -> None:
    assert prepare(submitted(uri=""), cache, settings).description.file == "code/serve.py"


@pytest.mark.parametrize("folder", ["/opt/ml/model/code", "file:///etc", ""])
def test_any_other_submit_directory_is_the_artifacts_own_code(
    tmp_path: Path, cache: ArtifactCache, settings: ArtifactSettings, folder: str
) -> None:
    write(tmp_path / "m", {"code/serve.py": "", "code/inference.py": ""})
    source = submitted(uri=str(tmp_path / "m"), SAGEMAKER_SUBMIT_DIRECTORY=folder)
    assert prepare(source, cache, settings).description.file == "code/serve.py"


def test_code_that_is_missing_or_no_archive_is_named(
    tmp_path: Path, cache: ArtifactCache, settings: ArtifactSettings
) -> None:
    (tmp_path / "bucket" / "text").write_text("no archive")
    for key, code in (("missing", "artifact-not-found"), ("text", "archive-unreadable")):
        source = submitted(SAGEMAKER_SUBMIT_DIRECTORY=f"s3://b/{key}")
        error = error_of(lambda source=source: prepare(source, cache, settings))
        assert (error.code, f"s3://b/{key}" in error.message) == (code, True)
    error = error_of(lambda: prepare(submitted(SAGEMAKER_PROGRAM="x.py"), cache, settings))
    assert error.code == "artifact-incomplete"


@pytest.mark.parametrize("replaced", ["model.tar.gz", "code.tar.gz"])
def test_a_target_models_stamp_changes_with_its_weights_and_with_its_code(
    tmp_path: Path, cache: ArtifactCache, settings: ArtifactSettings, replaced: str
) -> None:
    """What is loaded of it is compared with this stamp again and again."""
    prefix = ModelPrefix(
        "s3://b/", settings, submitted().environment, image=IMAGE,
        clock=ManualClock(wall_s=4_000_000_000.0),
    )  # fmt: skip
    first = prefix.fetch("model.tar.gz", cache)
    assert prefix.stamp("model.tar.gz") == first.stamp != ""
    members = [member("serve.py", b"newest"), member("model.joblib", b"others")]
    tar_gz(tmp_path / "bucket" / replaced, members)
    second = prefix.fetch("model.tar.gz", cache)
    assert prefix.stamp("model.tar.gz") == second.stamp != first.stamp
    assert second.detected.digest != first.detected.digest


def test_a_target_model_without_weights_is_not_there_whatever_its_code(
    settings: ArtifactSettings,
) -> None:
    prefix = ModelPrefix("s3://b/", settings, submitted().environment, image=IMAGE)
    assert prefix.stamp("nobody.tar.gz") is None
