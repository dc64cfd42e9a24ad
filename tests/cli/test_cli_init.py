"""`penstock init`: what it writes is recognised, and never over what is there."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from penstock.artifacts.detection.detect import detect
from penstock.cli.endpoints.init import init
from penstock.cli.endpoints.init_kinds import KINDS
from penstock.errors import CallerError

FILES = {"sklearn": "model.joblib", "pytorch": "model.pt", "fastapi": "app.py", "python": "my.bin"}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def source_of(kind: str) -> Path | None:
    if kind == "pipeline":
        return None
    if kind == "huggingface":
        Path("weights").mkdir()
        Path("weights/config.json").write_text("{}")
        return Path("weights")
    path = Path(FILES[kind])
    path.write_bytes(b"\x80\x04\x8c\x10_sklearn_version\x94\x8c\x051.2.1\x94.")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_artifact_whose_code_is_python(kind: str) -> None:
    init(kind, source_of(kind), Path("made"))
    found = detect(Path("made"))
    assert found.description.runtime == {"fastapi": "process", "pipeline": "pipeline"}.get(
        kind, "python"
    )
    for code in Path("made/code").glob("*.py"):
        compile(code.read_text(), str(code), "exec")
        assert "{file}" not in code.read_text()


def test_the_version_that_wrote_a_scikit_learn_model_is_required() -> None:
    init("sklearn", source_of("sklearn"), Path("made"))
    assert "scikit-learn==1.2.1\n" in Path("made/code/requirements.txt").read_text()


def test_a_packed_model_names_its_version_and_a_row_of_its_width() -> None:
    """joblib.dump(..., compress=3): nothing can be searched for in the file as it is."""
    text = (
        b"\x80\x04csklearn.linear_model._base\nLinearRegression\n)\x81}("
        b"\x8c\x0en_features_in_\x94K\x03\x8c\x10_sklearn_version\x94\x8c\x051.2.1\x94ub."
    )
    Path("model.joblib").write_bytes(zlib.compress(text))
    init("sklearn", Path("model.joblib"), Path("made"))
    lines = Path("made/code/requirements.txt").read_text().splitlines()
    assert lines == ["joblib", "numpy<2", "scikit-learn==1.2.1"]
    assert detect(Path("made")).description.warmup[0].body == '{"inputs": [[0, 0, 0]]}'


def test_a_file_that_needs_no_code_is_told_so_and_nothing_is_written() -> None:
    Path("model.skops").write_bytes(b"PK\x03\x04")
    with pytest.raises(CallerError, match="no file of pickle") as caught:
        init("sklearn", Path("model.skops"), Path("made"))
    assert "penstock deploy" in caught.value.hint
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("architecture", "sample"),
    [
        ("BertForSequenceClassification", '{"inputs": "where is my order"}'),
        ("BertForMaskedLM", '{"inputs": "where is my [M]"}'),
        ("ViTForImageClassification", ""),
    ],
)
def test_a_sample_fits_the_folders_task(architecture: str, sample: str) -> None:
    Path("weights").mkdir()
    Path("weights/config.json").write_text(f'{{"architectures": ["{architecture}"]}}')
    Path("weights/tokenizer_config.json").write_text('{"mask_token": {"content": "[M]"}}')
    init("huggingface", Path("weights"), Path("made"))
    warmup = detect(Path("made")).description.warmup
    assert [one.body for one in warmup] == ([sample] if sample else [])


def test_nothing_is_overwritten() -> None:
    source = source_of("python")
    init("python", source, Path("made"))
    Path("made/code/inference.py").write_text("mine = 1\n")
    with pytest.raises(CallerError, match="overwrites nothing"):
        init("python", source, Path("made"))
    assert Path("made/code/inference.py").read_text() == "mine = 1\n"


def test_a_kind_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(CallerError) as caught:
        init("tensorflow", None, None)
    assert "sklearn" in caught.value.hint


def test_a_missing_file_is_named() -> None:
    with pytest.raises(CallerError, match=r"model\.joblib"):
        init("sklearn", Path("nowhere"), None)
