"""A .pt2 file is data or it is refused: none of these may run a line of its own."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_artifacts import context, export, in_program, tampered

from penstock.artifacts.detection.detect_pt2 import check_program
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.loader import load_tensor_runtime

EVIL = "__import__('os').system('touch ran')"


class _ArchiveBomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was loaded')",))


def refused(path: Path) -> PenstockError:
    """By detection, and by the runtime alone, where detection was another reader's."""
    before = sorted(os.listdir(path.parent))
    with pytest.raises(PenstockError) as caught:
        context(path.parent)
    reader: Any = torch._C.PyTorchFileReader(str(path))
    with pytest.raises(PenstockError) as again:
        check_program(reader.get_all_records(), reader.get_record, file=path.name)
    assert again.value.code == caught.value.code
    assert sorted(os.listdir(path.parent)) == before
    return caught.value


def _target(program: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.serialization.os.system"


def _dunder(program: dict[str, Any]) -> None:
    node = program["graph_module"]["graph"]["nodes"][0]
    node["target"] = "torch.ops.aten.__class__.__subclasses__"


def _file(program: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"


def _call(program: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "_operator.call"


def _size(program: dict[str, Any]) -> None:
    sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0]["as_expr"]["expr_str"] = EVIL


def _tower(program: dict[str, Any]) -> None:
    sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0]["as_expr"]["expr_str"] = "9**9**9**9"


def _guard(program: dict[str, Any]) -> None:
    program["guards_code"] = [f"L['x'].size()[0] < {EVIL}"]


def _guard_attribute(program: dict[str, Any]) -> None:
    program["guards_code"] = ["L['x'].size().__class__.__mro__ == 0"]


def _name(program: dict[str, Any]) -> None:
    program["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = f"x={EVIL}"


def _argument(program: dict[str, Any]) -> None:
    entry = program["graph_module"]["module_call_graph"][0]
    entry["signature"]["forward_arg_names"] = [f"x={EVIL}"]


def _parameter(program: dict[str, Any]) -> None:
    spec = program["graph_module"]["signature"]["input_specs"][0]
    spec["buffer"] = {"arg": {"name": "x"}, "buffer_name": f'a", {EVIL}, "', "persistent": True}


def _structure(program: dict[str, Any]) -> None:
    entry = program["graph_module"]["module_call_graph"][0]
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    factory = {"default_factory_module": "antigravity", "default_factory_name": "fly"}
    hidden = {"type": "collections.defaultdict", "context": factory, "children_spec": [leaf]}
    entry["signature"]["in_spec"] = json.dumps([1, hidden])


def _custom(program: dict[str, Any]) -> None:
    program["graph_module"]["signature"]["input_specs"][0] = {
        "custom_obj": {"arg": {"name": "x", "class_fqn": "a.B"}, "custom_obj_name": "o"}
    }


@pytest.mark.parametrize(
    "change",
    [_target, _dunder, _file, _call, _size, _tower, _guard, _guard_attribute, _name, _argument,
     _parameter, _structure, _custom],
    ids=lambda change: change.__name__.strip("_"),
)  # fmt: skip
def test_a_graph_that_reaches_beyond_tensors_is_refused(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    export(tmp_path / "model.pt2")
    tampered(tmp_path / "model.pt2", in_program(change))
    assert refused(tmp_path / "model.pt2").code == "artifact-untrusted"


def _constant(parts: dict[str, bytes]) -> None:
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
    parts["data/constants/model_constants_config.json"] = json.dumps(
        {"config": {"bomb": entry}}
    ).encode()
    parts["data/constants/opaque_obj_0"] = pickle.dumps(_ArchiveBomb())


def _traversal(parts: dict[str, bytes]) -> None:
    entry = {"path_name": "tensor_/../../../secret", "is_param": False, "use_pickle": False}
    parts["data/weights/model_weights_config.json"] = json.dumps({"config": {"w": entry}}).encode()


def _samples(parts: dict[str, bytes]) -> None:
    made = io.BytesIO()
    torch.save((_ArchiveBomb(),), made)
    parts["data/sample_inputs/model.pt"] = made.getvalue()


def _bare_samples(parts: dict[str, bytes]) -> None:
    parts["data/sample_inputs/model.pt"] = pickle.dumps((_ArchiveBomb(),))


def _old_weights(parts: dict[str, bytes]) -> None:
    parts["data/weights/model.pt"] = pickle.dumps(_ArchiveBomb())


def _second(parts: dict[str, bytes]) -> None:
    parts["models/other.json"] = parts["models/model.json"]


@pytest.mark.parametrize(
    "change",
    [_constant, _traversal, _samples, _bare_samples, _old_weights, _second],
    ids=lambda change: change.__name__.strip("_"),
)
def test_pickles_and_second_programs_are_refused(
    change: Callable[[dict[str, bytes]], None], tmp_path: Path
) -> None:
    export(tmp_path / "model.pt2")
    tampered(tmp_path / "model.pt2", change)
    assert refused(tmp_path / "model.pt2").code == "artifact-untrusted"


@pytest.mark.parametrize("kept", [0.3, 0.98])
def test_a_file_that_was_cut_short_is_named(kept: float, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    export(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(PenstockError, match=r"model\.pt2") as caught:
        context(tmp_path)
    assert caught.value.code == "model-file-invalid"
    assert "cut short" in caught.value.hint


def test_weights_that_are_missing_are_an_error_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    linear = torch.nn.Linear(4, 3)
    export(path, linear, **{"input": {0: torch.export.Dim.DYNAMIC}})
    tampered(path, lambda parts: parts.pop("data/weights/weight_0"))
    with pytest.raises(ModelError, match=r"model\.pt2") as caught:
        load_tensor_runtime(context(tmp_path))
    assert caught.value.code == "model-unreadable"


def test_two_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    """One reader takes the first, another the last."""
    path = tmp_path / "model.pt2"
    export(path)
    with zipfile.ZipFile(path, "a") as archive:
        name = next(each for each in archive.namelist() if each.endswith("models/model.json"))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(name, "{}")
    with pytest.raises(PenstockError, match="two parts") as caught:
        context(tmp_path)
    assert caught.value.code == "model-file-invalid"


def test_an_archive_that_swells_when_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/models/model.json", "{}")
        archive.writestr("model/data/weights/weight_0", b"\0" * 80_000_000)
    with pytest.raises(PenstockError, match="larger than the file") as caught:
        context(tmp_path)
    assert caught.value.code == "model-file-invalid"


def test_an_archive_that_holds_no_program_is_no_model(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "model.pt2")
    with pytest.raises(PenstockError, match="without a program") as caught:
        context(tmp_path)
    assert caught.value.code == "model-file-invalid"
