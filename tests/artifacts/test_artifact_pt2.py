"""Programs of torch.export are recognised, and refused where they could run code; no PyTorch here.

What PyTorch itself would do with such files is in `tests/compile/inside/check_torch_archives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files, pt2_files

from penstock.artifacts.detection.detect import detect
from penstock.errors import CallerError

GENERATION = """\
schema: 1
runtime: torch
task: text2text-generation
tokenizer: {file: tokenizer.json}
generation: {encoder_file: encoder.pt2, decoder_file: decoder.pt2}
"""


def refused(folder: Path, **more: Any) -> CallerError:
    with pytest.raises(CallerError) as caught:
        detect(folder, **more)
    return caught.value


def test_a_bare_program_is_a_tensor_model_whose_requests_are_not_joined(tmp_path: Path) -> None:
    """Its first dimension may be a batch or the length of a sequence: the file does not say."""
    pt2_files.write(tmp_path / "double.pt2")
    found = detect(tmp_path).description
    assert (found.runtime, found.task, found.file) == ("torch", "tensor", "double.pt2")
    assert found.batching.rows_max == 0


def test_onnx_comes_before_a_program_unless_the_runtime_is_named(tmp_path: Path) -> None:
    folder = model_files.affine(tmp_path / "m")
    (folder / "model.yaml").unlink(missing_ok=True)
    pt2_files.write(folder / "double.pt2")
    assert detect(folder).description.file == "model.onnx"
    assert detect(folder, runtime="torch").description.file == "double.pt2"


def test_a_described_program_is_found_by_its_suffix(tmp_path: Path) -> None:
    pt2_files.write(tmp_path / "double.pt2")
    (tmp_path / "model.yaml").write_text("schema: 1\nruntime: torch\n")
    assert detect(tmp_path).description.file == "double.pt2"
    (tmp_path / "model.yaml").write_text("schema: 1\nruntime: torch\nfile: model.yaml\n")
    assert ".pt2" in refused(tmp_path).hint


def test_both_programs_of_an_encoder_decoder_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(GENERATION)
    (tmp_path / "tokenizer.json").write_text("{}")
    pt2_files.write(tmp_path / "encoder.pt2")
    assert "decoder.pt2" in refused(tmp_path).message
    whole = pt2_files.write(tmp_path / "decoder.pt2").read_bytes()
    assert detect(tmp_path).description.file == "decoder.pt2"
    (tmp_path / "decoder.pt2").write_bytes(whole[:-40])
    assert refused(tmp_path).code == "model-file-invalid"


def _nodes(made: dict[str, Any]) -> Any:
    return made["graph_module"]["graph"]["nodes"][0]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "function": lambda made: _nodes(made).update(target="torch.hub.load"),
    "library": lambda made: _nodes(made).update(target="torch.ops.mylib.run.default"),
    "operator": lambda made: _nodes(made)["inputs"][0].update(
        arg={"as_operator": "torch.os.system"}
    ),
    "size": lambda made: made["graph_module"]["graph"]["tensor_values"]["x"].update(
        sizes=[{"as_expr": {"expr_str": "open('x')"}}]
    ),
    "power": lambda made: made["graph_module"]["graph"]["tensor_values"]["x"].update(
        sizes=[{"as_expr": {"expr_str": "Pow(Integer(9), Pow(Integer(9), Integer(9)))"}}]
    ),
    "guard": lambda made: made.update(guards_code=["exit()"]),
    "name": lambda made: _nodes(made).update(name="a\nimport os"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_what_could_run_code_needs_the_operators_trust(change: str, tmp_path: Path) -> None:
    made = pt2_files.program()
    CHANGES[change](made)
    pt2_files.write(tmp_path / "model.pt2", made)
    error = refused(tmp_path)
    assert error.code == "artifact-untrusted"
    assert "control.trusted_artifacts" in error.hint
    assert detect(tmp_path, trusted=True).description.runtime == "torch"


def test_machine_code_needs_the_operators_trust(tmp_path: Path) -> None:
    pt2_files.write(tmp_path / "model.pt2", data__aotinductor__model__model__so=b"\x7fELF")
    error = refused(tmp_path)
    assert (error.code, "machine code" in error.message) == ("artifact-untrusted", True)
    assert detect(tmp_path, trusted=True).description.runtime == "torch"


def test_parts_outside_of_the_archive_are_refused(tmp_path: Path) -> None:
    pt2_files.write(tmp_path / "model.pt2", **{"..__..__etc__passwd": b""})
    assert refused(tmp_path).code == "artifact-path-unsafe"


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_no_program_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    error = refused(tmp_path)
    assert error.code == "model-file-invalid"
    assert "model.pt2" in error.message
