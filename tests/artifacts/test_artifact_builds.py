"""builds.yaml: what it may say, and which folder an artifact is taken from."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit import model_files

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.description.builds import (
    FILE_NAME,
    build_of,
    chosen_build,
    read_builds,
    write_builds,
)
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.prepare import prepare
from penstock.artifacts.sources.source import ArtifactSource
from penstock.core.models.instruction_sets import Build
from penstock.errors import CallerError

BUILDS = (
    Build(folder="amx", needs="AVX512_CORE_AMX", target="cpu-bf16"),
    Build(folder="any"),
)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Two builds that differ in the rows that they take."""
    root = tmp_path / "model"
    root.mkdir()
    for at, build in enumerate(BUILDS, 1):
        model_files.affine(root / build.folder, rows_max=at)
    write_builds(root, BUILDS)
    return root


def test_what_is_written_is_read_back(artifact: Path) -> None:
    assert read_builds(artifact) == BUILDS
    assert read_builds(artifact / "amx") == ()


def test_the_folder_of_the_processor_is_described(artifact: Path) -> None:
    for here, folder, rows in (("AVX512_CORE_AMX", "amx", 1), ("AVX2", "any", 2), ("", "any", 2)):
        found = detect(artifact, instruction_set=here)
        assert (found.root, found.description.batching.rows_max) == (artifact / folder, rows)


def test_an_artifact_is_brought_as_the_build_of_this_processor(
    artifact: Path, tmp_path: Path
) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    source = ArtifactSource(uri=artifact.as_uri())
    found = prepare(source, cache, instruction_set="AVX512_CORE_AMX")
    other = prepare(source, cache, instruction_set="AVX2")
    assert (found.root.name, other.root.name) == ("amx", "any")
    assert found.digest == other.digest
    told = build_of(found.root, "AVX512_CORE_AMX")
    assert told is not None
    assert told.build == BUILDS[0]
    assert build_of(found.root, "AVX2") is None  # another one would be chosen there
    assert build_of(artifact, "AVX2") is None


def test_where_none_runs_the_processor_and_the_builds_are_named(artifact: Path) -> None:
    write_builds(artifact, BUILDS[:1])
    with pytest.raises(CallerError) as caught:
        chosen_build(artifact, "AVX2")
    assert caught.value.code == "no-build-for-processor"
    assert "(AVX2): amx (AVX512_CORE_AMX)" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("schema: 2\nbuilds: [{folder: amx}]", "model-yaml-invalid", "schema"),
        ("schema: 1", "model-yaml-invalid", "builds"),
        ("schema: 1\nbuilds: []", "model-yaml-invalid", "builds"),
        ("schema: 1\nbuilds: [amx]", "model-yaml-invalid", "builds[0]"),
        ("schema: 1\nbuilds: [{needs: AVX2}]", "model-yaml-invalid", "folder"),
        ("schema: 1\nbuilds: [{folder: amx, needs: MMX}]", "model-yaml-invalid", "MMX"),
        ("schema: 1\nbuilds: [{folder: amx, speed: 3}]", "model-yaml-invalid", "speed"),
        ("schema: 1\nbuilds: [{folder: gone}]", "artifact-incomplete", "'gone'"),
        ("schema: 1\nbuilds: [{folder: amx/code}]", "artifact-incomplete", "'amx/code'"),
        ("schema: 1\nbuilds: [{folder: .}]", "artifact-incomplete", "'.'"),
        ("schema: 1\nbuilds: [{folder: ../model}]", "artifact-path-unsafe", ".."),
        ("schema: 1\nbuilds: [{folder: /etc}]", "artifact-path-unsafe", "absolute"),
        ("schema: 1\nbuilds: [{folder: link}]", "artifact-incomplete", "'link'"),
    ],
)
def test_what_it_may_not_say_is_refused_by_name(
    artifact: Path, content: str, code: str, said: str
) -> None:
    (artifact / "link").symlink_to("/")
    (artifact / FILE_NAME).write_text(content)
    with pytest.raises(CallerError) as caught:
        detect(artifact, instruction_set="AVX2")
    assert caught.value.code == code
    assert said in caught.value.message


def test_more_builds_than_there_are_processors_are_refused(artifact: Path) -> None:
    (artifact / FILE_NAME).write_text("schema: 1\nbuilds:\n" + "  - {folder: amx}\n" * 65)
    with pytest.raises(CallerError, match="65 builds"):
        read_builds(artifact)
