"""One artifact for several processors: each build proven as one compiled for it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_models

from penstock.artifacts.description.builds import read_builds
from penstock.artifacts.detection.detect import detect
from penstock.compile.builds import compile_builds
from penstock.compile.contract import Options, options_from, options_text
from penstock.core.models.instruction_sets import NAMES, can_run
from penstock.errors import CallerError
from penstock.runtimes.processor import instruction_set_here

OPTIONS = Options(target="cpu-int8", measure_s=0.0, threads=1, name="intent")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "intent"
    tiny_models.save(folder, "bert")
    return folder


def test_each_build_is_compiled_under_the_set_that_it_is_for(source: Path, tmp_path: Path) -> None:
    """Calibrated INT8 shows it: without VNNI its weights have 7 bits."""
    here = instruction_set_here()
    if here.name == "AVX2" or not can_run("AVX2", here.name):
        pytest.skip(f"{here.name}: no more than one kind of processor can be compiled for here")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"{text} {at}" for at in range(12) for text in tiny_models.TEXTS))
    options = Options(target="cpu-int8", measure_s=0.0, threads=1, calibration=texts, tolerance=0.5)
    said: list[str] = []
    told = compile_builds(source, tmp_path / "out", options, ("avx2", here.name), say=said.append)
    assert [one["needs"] for one in told["builds"]] == [here.name, "AVX2"]
    builds = read_builds(tmp_path / "out")
    assert [(one.folder, one.needs, one.target) for one in builds] == [
        (here.name.lower(), here.name, "cpu-int8"),
        ("avx2", "AVX2", "cpu-int8"),
    ]
    bits = {}
    for build in builds:
        folder = tmp_path / "out" / build.folder
        report = json.loads((folder / "report.json").read_text())
        assert report["instruction_set"] == build.needs
        made = json.loads((folder / "provenance.json").read_text())
        bits[build.needs] = made["choices"]["weight_bits"]
        assert detect(tmp_path / "out", instruction_set=build.needs).root == folder
    assert bits == {here.name: 8 if here.int8_exact else 7, "AVX2": 7}
    assert any("comparing" in line for line in said)


def refused(source: Path, out: Path, *chips: str) -> CallerError:
    before = sorted(out.parent.iterdir())
    with pytest.raises(CallerError) as caught:
        compile_builds(source, out, OPTIONS, chips)
    assert sorted(out.parent.iterdir()) == before
    return caught.value


def test_what_can_not_be_proven_here_is_refused_before_any_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(source, tmp_path / "out", "avx2", "mmx").code == "chip-unknown"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    error = refused(source, tmp_path / "out", "avx2", "amx")
    assert error.code == "target-absent"
    assert "amx (AVX512_CORE_AMX)" in error.message


def test_a_build_that_fails_leaves_nothing_behind_and_says_why(
    source: Path, tmp_path: Path
) -> None:
    lowest = next(name for name in NAMES if can_run(name, instruction_set_here().name))
    error = refused(tmp_path / "missing", tmp_path / "out", lowest)
    assert error.code
    assert "missing" in error.message


def test_options_reach_the_process_of_a_build_as_they_were_given() -> None:
    given = Options(
        target="auto",
        inputs=("ids:INT64:-1,-1",),
        samples=Path("texts.txt"),
        tolerance=0.25,
        trust=True,
    )
    assert options_from(options_text(given)) == given
    assert options_from(options_text(OPTIONS)) == OPTIONS
