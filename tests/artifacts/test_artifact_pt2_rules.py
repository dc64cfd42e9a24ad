"""Each word that a program of torch.export may hold, and each that is refused; no PyTorch here."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import pytest
from artifact_files import error_of
from tests.kit import pt2_files

from penstock.artifacts.detection import detect_pt2 as detect_pt2_rules
from penstock.artifacts.detection.detect_pt2 import (
    MODEL,
    PACKAGE,
    PROGRAM,
    check_program,
    check_pt2,
    kind_of,
)
from penstock.errors import CallerError


def outcome(program: Any, **parts: bytes) -> str:
    """The code of the refusal, or "" where there is none."""
    content = {MODEL: json.dumps(program).encode()} | parts
    try:
        check_program(content, content.__getitem__, file="m.pt2")
    except CallerError as error:
        return error.code
    return ""


REFUSED = "artifact-untrusted"
DAMAGED = "model-file-invalid"


@pytest.mark.parametrize("key", ["target", "as_operator"])
@pytest.mark.parametrize(
    ("operator", "code"),
    [
        ("torch.ops.aten.mul.Tensor", ""),
        ("torch.ops.prims.convert_element_type.default", ""),
        ("torch.ops.quantized_decomposed.dequantize_per_tensor.default", ""),
        ("torch.ops.aten.__and__.Scalar", ""),
        ("torch.ops.aten.__ixor__.Scalar", ""),
        ("torch.ops.aten._to_copy.default", ""),
        ("torch.ops.aten.__class__.Scalar", REFUSED),
        ("torch.ops.aten.from_file.default", REFUSED),
        ("torch.ops.aten.mul", REFUSED),
        ("torch.ops.aten.mul._x", REFUSED),
        ("torch.ops.aten.mul.Tensor.__call__", REFUSED),
        ("torch.ops.mylib.mul.Tensor", REFUSED),
        ("torch.ops.higher_order.cond", ""),
        ("torch.ops.higher_order.wrap_with_autocast", ""),
        ("torch.ops.higher_order.call_torchbind", REFUSED),
        ("torch.sym_max", ""),
        ("torch._sym_sqrt", ""),
        ("torch._check", ""),
        ("torch._check_tensor_all", REFUSED),
        ("math.ceil", ""),
        ("math.os", ""),
        ("_operator.getitem", ""),
        ("_operator.and_", ""),
        ("_operator.attrgetter", REFUSED),
        ("_operator.call", REFUSED),
        ("os.system", REFUSED),
        ("", REFUSED),
    ],
)
def test_an_operator_computes_and_nothing_else(key: str, operator: str, code: str) -> None:
    assert outcome({"nodes": [{key: operator}]}) == code


@pytest.mark.parametrize(
    ("size", "code"),
    [
        ("Symbol('s77', positive=True, integer=True)", ""),
        ("s0 + 2*s1", ""),
        ("Max(1, FloorDiv(s0, 8))", ""),
        ("-s0 // 2 % 3", ""),
        ("Integer('12')", ""),
        ("Float('1.5')", ""),
        ("s0 < 5", ""),
        ("s0**8", ""),
        ("s0**9", REFUSED),
        ("s0**s1", REFUSED),
        ("s0**-8", ""),
        ("s0**-9", REFUSED),
        ("Pow(s0, 8)", ""),
        ("Pow(s0, Integer(8))", ""),
        ("Pow(s0, Integer(9))", REFUSED),
        ("Pow(s0, Integer(8, x=1))", REFUSED),
        ("PowByNatural(s0, 9)", REFUSED),
        ("Mul(s0, 9)", ""),
        (f"s0 + {2**63 - 1}", ""),
        (f"s0 + {2**63}", REFUSED),
        ("s0 + 1.5", ""),
        ("s0 + None", REFUSED),
        ("s0 + b'x'", REFUSED),
        ("Symbol('x y')", REFUSED),
        ("Symbol('__import__')", REFUSED),
        ("L", REFUSED),
        ("open", REFUSED),
        ("abcd1", REFUSED),
        ("abc1", ""),
        ("s1234567890", REFUSED),
        ("s0.size", REFUSED),
        ("s0[0]", REFUSED),
        ("s0 and s1", REFUSED),
        ("lambda: s0", REFUSED),
        ("Symbol('s0')('s1')", REFUSED),
        ("s0 +", DAMAGED),
        ("-" * 4000 + "1", DAMAGED),
        ("(" * 4000, DAMAGED),
        ("s0\0", DAMAGED),
        ("+".join(["s0"] * 1365), ""),
        ("s0" + " " * 4094, ""),
        ("s0" + " " * 4095, REFUSED),
    ],
)
def test_a_size_is_arithmetic_on_symbols(size: str, code: str) -> None:
    assert outcome({"sizes": [{"as_expr": {"expr_str": size}}]}) == code


@pytest.mark.parametrize(
    ("guard", "code"),
    [
        ("L['ids'].size()[1] <= 512", ""),
        ("L['x'].stride()[0] == 1 and not L['y'].ndim == 2", ""),
        ("L['x'].shape[0] != 3 or L['x'].storage_offset() == 0", ""),
        ("L['mask'].size()[1]*max(1, 8 + (-1)*(L['mask'].size()[1] % 8)) > 1", ""),
        ("min(2, L['x'].ndim) == 2", ""),
        ("L['x'].__class__", REFUSED),
        ("L['x'].data", REFUSED),
        ("L['x y'].ndim == 1", REFUSED),
        ("G['x'].ndim == 1", REFUSED),
        ("exit()", REFUSED),
        ("L['x'].size()()", REFUSED),
        ("[L]", REFUSED),
    ],
)
def test_a_guard_compares_sizes_of_inputs(guard: str, code: str) -> None:
    assert outcome({"guards_code": [guard]}) == code


@pytest.mark.parametrize("key", ["name", "as_name", "forward_arg_names", "user_input_name"])
@pytest.mark.parametrize(
    ("name", "code"),
    [("x", ""), ("_x9", ""), ("x" * 512, ""), ("x" * 513, REFUSED), ("", REFUSED), ("9x", REFUSED),
     ("a.b", REFUSED), ("a\nimport os", REFUSED), ("x\n", REFUSED)],
)  # fmt: skip
def test_a_name_is_one_word(key: str, name: str, code: str) -> None:
    assert outcome({"deep": [[{key: name}]]}) == code


@pytest.mark.parametrize("key", ["parameter_name", "buffer_name", "tensor_constant_name", "fqn"])
@pytest.mark.parametrize(
    ("path", "code"),
    [("", ""), ("layer.0.weight-x", ""), ("x" * 1024, ""), ("x" * 1025, REFUSED), ("a b", REFUSED),
     ("a/b", REFUSED), ("a\n", REFUSED)],
)  # fmt: skip
def test_a_path_is_words_and_dots(key: str, path: str, code: str) -> None:
    assert outcome({key: path}) == code


@pytest.mark.parametrize("key", ["custom_obj_name", "class_fqn"])
def test_objects_of_classes_are_refused(key: str) -> None:
    assert outcome({key: "x"}) == REFUSED
    assert outcome({key: None}) == ""


def leaf(kind: Any = None, context: Any = None, *children: Any) -> dict[str, Any]:
    return {"type": kind, "context": context, "children_spec": list(children)}


@pytest.mark.parametrize("key", ["in_spec", "out_spec"])
@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (leaf(), ""),
        (leaf("builtins.tuple", "null", leaf("builtins.dict", '["a"]', leaf())), ""),
        (leaf("collections.OrderedDict", "[]"), ""),
        (leaf("transformers.Output", "null"), REFUSED),
        (leaf("builtins.list", "null", leaf("os.system", "null")), REFUSED),
        (leaf("builtins.dict", '{"__enum__": "x"}'), REFUSED),
        ({"type": None, "context": None}, DAMAGED),
    ],
)
def test_inputs_and_outputs_are_plain_structures(key: str, spec: Any, code: str) -> None:
    assert outcome({key: json.dumps([1, spec])}) == code


def test_what_is_no_structure_is_damaged() -> None:
    for text in ("", "{}", "[1]", "[" * 100_000):
        assert outcome({"in_spec": text}) == DAMAGED


# Parts of the archive


CONFIG = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"


@pytest.mark.parametrize("part", [CONFIG, CONSTANTS])
@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"path_name": "weight_0"}, ""),
        ({"path_name": "tensor_12", "use_pickle": False}, ""),
        ({"path_name": "weight_0", "use_pickle": True}, REFUSED),
        ({"path_name": "custom_obj_0"}, REFUSED),
        ({"path_name": "weight_/../x"}, REFUSED),
        ({}, DAMAGED),
    ],
)
def test_weights_are_raw_tensors(part: str, entry: dict[str, Any], code: str) -> None:
    assert outcome({}, **{part: json.dumps({"config": {"w": entry}}).encode()}) == code


def test_there_is_one_program_and_no_pickle_of_an_older_release() -> None:
    assert outcome({}) == ""
    assert outcome({}, **{"models/other.json": b"{}"}) == REFUSED
    assert outcome({}, **{"data/weights/model.pt": b""}) == REFUSED
    assert outcome({}, **{"data/constants/model.pt": b""}) == REFUSED
    assert outcome({}, **{CONFIG: b"[]"}) == DAMAGED


def samples(*pickles: bytes, name: str = "a/data.pkl") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/version", "3")
        for number, content in enumerate(pickles):
            archive.writestr(name if not number else f"{number}{name}", content)
    return buffer.getvalue()


def named(module: str, name: str) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"."


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (samples(pickle.dumps((1, "x"), protocol=2)), ""),
        (samples(named("torch._utils", "_rebuild_tensor_v2")), ""),
        (samples(named("torch", "FloatStorage")), ""),
        (samples(named("torch", "uint16")), ""),
        (samples(named("collections", "OrderedDict")), ""),
        (samples(named("torch", "load")), REFUSED),
        (samples(named("os", "system")), REFUSED),
        (samples(named("torch", "float3")), REFUSED),
        (samples(pickle.dumps(Path("x"), protocol=4)), REFUSED),
        (samples(b"\x80\x02ios\nsystem\n."), REFUSED),
        (samples(b"\x80\x02\x82\x01."), REFUSED),
        (samples(), REFUSED),
        (samples(named("torch", "Size"), named("torch", "Size")), REFUSED),
        (samples(b"\xff"), DAMAGED),
        (pickle.dumps(1), REFUSED),
    ],
)
def test_sample_inputs_hold_tensors_and_not_one_name_more(content: bytes, code: str) -> None:
    assert outcome({}, **{SAMPLES: content}) == code


@pytest.mark.parametrize(("more", "code"), [(0, ""), (1, REFUSED)])
def test_the_pickle_of_sample_inputs_is_not_unpacked_without_bound(
    monkeypatch: pytest.MonkeyPatch, more: int, code: str
) -> None:
    content = pickle.dumps("x" * 100_000, protocol=2)
    monkeypatch.setattr(detect_pt2_rules, "_PICKLE_BYTES_MAX", len(content) - more)
    packed = samples(content)
    assert len(packed) < 2000
    assert outcome({}, **{SAMPLES: packed}) == code


def test_no_pickle_is_loaded() -> None:
    """It would have to be looked at opcode by opcode all the same."""
    opcodes = [opcode.name for opcode, _, _ in pickletools.genops(named("os", "system"))]
    assert opcodes == ["PROTO", "GLOBAL", "STOP"]


# The archive


def test_the_kind_of_an_archive_is_told_by_its_parts() -> None:
    assert kind_of([MODEL], file="m") == PROGRAM
    assert kind_of([MODEL, "data/aotinductor/model/x.so"], file="m") == PACKAGE
    assert error_of(lambda: kind_of(["data/weights/x"], file="m")).code == DAMAGED


def zipped(path: Path, *names: str, content: bytes = b"", comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
        archive.comment = comment
    return path


def test_a_program_stands_in_one_folder_from_the_first_byte_on(tmp_path: Path) -> None:
    whole = pt2_files.write(tmp_path / "m.pt2")
    assert check_pt2(tmp_path, "m.pt2", trusted=False) == PROGRAM
    content = whole.read_bytes()
    for name, changed in {
        "shifted": b"x" + content,
        "cut": content[:-1],
        "empty": b"PK\x05\x06" + bytes(18),
    }.items():
        (tmp_path / name).write_bytes(changed)
        for trusted in (False, True):
            error = error_of(lambda n=name, t=trusted: check_pt2(tmp_path, n, trusted=t))
            assert error.code == DAMAGED
    for name, members in {
        "two": ("a/models/model.json", "b/x"),
        "twice": ("a/models/model.json", "a/./models/model.json"),
    }.items():
        zipped(tmp_path / name, *members, content=b"{}")
        assert error_of(lambda n=name: check_pt2(tmp_path, n, trusted=True)).code == DAMAGED
    zipped(tmp_path / "said", "a/models/model.json", content=b"{}", comment=b"hello")
    assert error_of(lambda: check_pt2(tmp_path, "said", trusted=True)).code == DAMAGED
    zipped(tmp_path / "plain", "a/models/model.json", content=b"{}")
    assert check_pt2(tmp_path, "plain", trusted=False) == PROGRAM


def test_parts_that_grow_when_they_are_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipped(tmp_path / "m", "a/models/model.json", content=b" " * 100_000 + b"{}")
    size = (tmp_path / "m").stat().st_size
    monkeypatch.setattr(
        "penstock.artifacts.detection.detect_pt2._GROWTH_FREE_BYTES", 100_002 - 4 * size
    )
    assert check_pt2(tmp_path, "m", trusted=False) == PROGRAM
    monkeypatch.setattr(
        "penstock.artifacts.detection.detect_pt2._GROWTH_FREE_BYTES", 100_001 - 4 * size
    )
    assert error_of(lambda: check_pt2(tmp_path, "m", trusted=False)).code == DAMAGED


@pytest.mark.parametrize(("most", "whole"), [(1, True), (0, False)])
def test_an_archive_has_a_bounded_number_of_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, whole: bool
) -> None:
    monkeypatch.setattr("penstock.artifacts.detection.detect_pt2._NAMES_MAX", most)
    zipped(tmp_path / "m", "a/models/model.json", content=b"{}")
    if whole:
        assert check_pt2(tmp_path, "m", trusted=False) == PROGRAM
    else:
        assert "1 parts" in error_of(lambda: check_pt2(tmp_path, "m", trusted=True)).message
