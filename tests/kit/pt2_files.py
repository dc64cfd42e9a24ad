"""Files in the format of torch.export.save, written without PyTorch: a program that answers x."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

_LEAF = {"type": None, "context": None, "children_spec": []}
_SPEC = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [_LEAF]}])


def program() -> dict[str, Any]:
    """The parts of models/model.json that the rules look at."""
    x = {"as_tensor": {"name": "x"}}
    rows = "Symbol('s77', positive=True, integer=True)"
    return {
        "graph_module": {
            "graph": {
                "inputs": [x],
                "outputs": [{"as_tensor": {"name": "mul"}}],
                "nodes": [
                    {
                        "target": "torch.ops.aten.mul.Tensor",
                        "inputs": [{"name": "self", "arg": x, "kind": 1}],
                        "outputs": [{"as_tensor": {"name": "mul"}}],
                        "metadata": {},
                    }
                ],
                "tensor_values": {
                    "x": {"sizes": [{"as_expr": {"expr_str": rows}}, {"as_int": 4}]},
                },
            },
            "signature": {
                "input_specs": [{"user_input": {"arg": x}}],
                "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "mul"}}}}],
            },
            "module_call_graph": [
                {
                    "fqn": "",
                    "signature": {
                        "in_spec": _SPEC, "out_spec": _SPEC, "forward_arg_names": ["x"]
                    },
                }
            ],
        },
        "range_constraints": {"s77": {"min_val": 1, "max_val": None}},
        "guards_code": ["L['x'].size()[1] == 4"],
    }  # fmt: skip


def write(path: Path, made: dict[str, Any] | None = None, **parts: bytes) -> Path:
    """`parts` are further ones, "__" standing for "/"."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/models/model.json", json.dumps(made or program()))
        for kind in ("weights", "constants"):
            name = f"model/data/{kind}/model_{kind}_config.json"
            archive.writestr(name, '{"config": {}}')
        for name, content in parts.items():
            archive.writestr(f"model/{name.replace('__', '/')}", content)
    return path
