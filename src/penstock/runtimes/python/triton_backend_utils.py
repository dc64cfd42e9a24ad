"""The module `triton_python_backend_utils` that Triton's Python models import, for use on CPU.

Names and behaviour follow the documentation of Triton's Python backend. `install(...)` puts it into
`sys.modules` under Triton's name, with the names of `__all__`; what they do is in `pb_utils`.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any, NoReturn

from penstock.runtimes.python.pb_utils.errors import TritonError, TritonModelException
from penstock.runtimes.python.pb_utils.logger import Logger
from penstock.runtimes.python.pb_utils.metrics import (
    Changes,
    Metric,
    MetricFamily,
    MetricKind,
)
from penstock.runtimes.python.pb_utils.model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from penstock.runtimes.python.pb_utils.requests import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    get_input_tensor_by_name,
    get_output_tensor_by_name,
    is_model_ready,
    load_model,
    unload_model,
)
from penstock.runtimes.python.pb_utils.responses import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    InferenceResponseSender,
)
from penstock.runtimes.python.pb_utils.tensors import (
    TRITON_STRING_TO_NUMPY,
    Tensor,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)

#: The names of Triton's module; `get_model_dir` comes with `install`.
__all__ = (
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
)


def _refusing(function: str) -> Any:
    def refused(model_name: str, *_: Any, **_more: Any) -> NoReturn:
        raise TritonModelException(
            f"{function}({model_name!r}): only a model of a multi-model endpoint can load and "
            "unload others: deploy the repository as one"
        )

    return refused


def model_config(init: dict[str, Any]) -> dict[str, Any]:
    """A description that no config.pbtxt made, as Triton's JSON of one."""
    batched = init["rows_max"] > 0

    def tensor(name: str, dtype: str, shape: list[int]) -> dict[str, Any]:
        kind = "TYPE_STRING" if dtype == "BYTES" else f"TYPE_{dtype}"
        return {"name": name, "data_type": kind, "dims": shape[1:] if batched else shape}

    return {
        "name": init["name"],
        "backend": "python",
        "max_batch_size": init["rows_max"],
        "input": [tensor(*each) for each in init["inputs"]],
        "output": [tensor(*each) for each in init["outputs"]],
        "model_transaction_policy": {"decoupled": init.get("decoupled", False)},
        "parameters": {key: {"string_value": value} for key, value in init["parameters"].items()},
    }


def install(model_dir: str, init: dict[str, Any], changes: Changes) -> None:
    """Makes `import triton_python_backend_utils` find this module's names. `changes`: of the
    metrics that the model makes."""
    module = ModuleType("triton_python_backend_utils")
    for name in __all__:
        setattr(module, name, globals()[name])
    family = type("MetricFamily", (MetricFamily,), {"_changes": changes})
    module.MetricFamily = family  # type: ignore[attr-defined]
    if not init.get("explicit"):
        module.load_model = _refusing("load_model")  # type: ignore[attr-defined]
        module.unload_model = _refusing("unload_model")  # type: ignore[attr-defined]
    module.get_model_dir = lambda: model_dir  # type: ignore[attr-defined]
    sys.modules["triton_python_backend_utils"] = module


def arguments(init: dict[str, Any], version_dir: str) -> dict[str, str]:
    """The arguments of `initialize(args)`: strings only, as in Triton."""
    kind, name, device = instance_of(init["config"], init.get("lane", 0), init["name"])
    return {
        "model_config": json.dumps(init["config"]),
        "model_instance_kind": kind,
        "model_instance_name": name,
        "model_instance_device_id": str(device),
        "model_repository": version_dir,
        "model_version": init["version"],
        "model_name": init["name"],
    }


def instance_of(config: dict[str, Any], lane: int, model: str) -> tuple[str, str, int]:
    """(kind, name, device) of the instance that this lane is, by the groups in their order."""
    for group in config.get("instance_group", ()):
        count = 0 if group.get("passive") else group["count"]
        if lane < count:
            gpus = group.get("gpus") or [0]
            kind = group["kind"].removeprefix("KIND_").replace("AUTO", "CPU")
            device = gpus[lane % len(gpus)] if kind == "GPU" else 0
            return kind, f"{group['name']}_{lane}", device
        lane -= count
    return "CPU", f"{model}_{lane}", 0
