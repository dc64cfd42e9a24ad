"""The module `triton_python_backend_utils` that Triton's Python models import, for use on CPU.

Names and behaviour follow the documentation of Triton's Python backend. Decoupled models and GPU
tensors are not supported, and using them raises an error. `install(...)` puts it into `sys.modules`
under Triton's name.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any, ClassVar, NoReturn

import numpy as np

from penstock.runtimes.python.caller import Called, Caller
from penstock.runtimes.python.triton_model_config import ModelConfig  # noqa: F401  (models use it)
from penstock.runtimes.tensor_bytes import NUMPY, name_of


class TritonModelException(Exception):
    """Raised by models, and by this module for wrong use."""


class TritonError:
    """An error for one response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS = range(7)
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name = name
        self._array = np.asarray(array)

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def triton_dtype(self) -> str:
        dtype = name_of(self._array)
        return "TYPE_STRING" if dtype == "BYTES" else f"TYPE_{dtype}"

    def is_cpu(self) -> bool:
        return True

    def to_dlpack(self) -> Any:
        return self._array.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        return Tensor(name, np.from_dlpack(tensor))


class InferenceRequest:
    """One request of the batch for `execute`; or one that the model sends to another model.

    Errors of a call are in its response: `exec` raises only for an invalid request.
    """

    _caller: ClassVar[Caller | None] = None  #: the object that makes this worker's nested calls
    _models: ClassVar[frozenset[str]] = frozenset()  #: names of the models that can be called

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Any = None,
        trace: Any = None,
        parameters: Any = None,
    ) -> None:
        """`timeout`: microseconds; 0 = the rest of the time of the request for which the call is
        made."""
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._outputs = list(requested_output_names)
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        own = isinstance(parameters, str)
        self._parameters: str = parameters if own else json.dumps(parameters or {})

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def requested_output_names(self) -> list[str]:
        return self._outputs

    def request_id(self) -> str:
        return self._request_id

    def correlation_id(self) -> int | str:
        return self._correlation_id

    def model_name(self) -> str:
        return self._model_name

    def model_version(self) -> int:
        return self._model_version

    def flags(self) -> int:
        return self._flags

    def timeout(self) -> int:
        return self._timeout

    def parameters(self) -> str:
        return self._parameters

    def is_cancelled(self) -> bool:
        return False

    def get_response_sender(self) -> NoReturn:
        raise TritonModelException("decoupled models are not supported: return responses")

    def exec(self, decoupled: bool = False) -> InferenceResponse:
        """Calls the model and waits for its answer."""
        return _response(self._begun(decoupled).result())

    async def async_exec(self, decoupled: bool = False) -> InferenceResponse:
        """As `exec`, while other coroutines of the same `async def execute` go on."""
        return _response(await asyncio.wrap_future(self._begun(decoupled)))

    def _begun(self, decoupled: bool) -> Future[Called]:
        if decoupled:
            raise TritonModelException("decoupled models are not supported: a call has one answer")
        if not self._model_name:
            raise TritonModelException("model_name is missing: which model is to be called?")
        if self._caller is None:
            raise TritonModelException(
                "other models can be called in execute, by a model of a repository with several"
            )
        tensors = {each.name(): plain_array(each.as_numpy()) for each in self._inputs}
        try:
            return self._caller.call(
                self._model_name, self._model_version, self._outputs, self._timeout, tensors
            )
        except ValueError as error:
            raise TritonModelException(f"the inputs can't be sent: {error}") from None


def _response(called: Called) -> InferenceResponse:
    if called.error is not None:
        return InferenceResponse(error=TritonError(called.error, called.code))
    return InferenceResponse([Tensor(name, array) for name, array in called.tensors.items()])


def plain_array(array: np.ndarray) -> np.ndarray:
    """Strings may have any of numpy's string dtypes; the protocol has only BYTES."""
    return array.astype(np.object_) if array.dtype.kind in "SU" else array


def connect(caller: Caller, models: Sequence[str]) -> None:
    """From now on requests can be sent to other models."""
    InferenceRequest._caller = caller
    InferenceRequest._models = frozenset(models)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether the artifact has this model besides the calling one."""
    return model_name in InferenceRequest._models


TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU = range(3)


class PreferredMemory:
    """The preferred place of an answer's tensors. They are always in host memory."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceResponse:
    """One answer: tensors, or an error."""

    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self._outputs = list(output_tensors)
        self._error = error

    def output_tensors(self) -> list[Tensor]:
        return self._outputs

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class Logger:
    """Writes to the instance's log through standard error."""

    @staticmethod
    def log(message: str, *_: Any) -> None:
        print(message, file=sys.stderr)

    log_info = log_warn = log_error = log_verbose = log


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return next((each for each in request.inputs() if each.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    return next((each for each in response.output_tensors() if each.name() == name), None)


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((each for each in model_config.get("input", ()) if each["name"] == name), None)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((each for each in model_config.get("output", ()) if each["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled"))


def triton_string_to_numpy(name: str) -> Any:
    """`TYPE_FP32` -> numpy's type."""
    kind = name.removeprefix("TYPE_")
    return NUMPY["BYTES" if kind == "STRING" else kind].type


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
        "parameters": {key: {"string_value": value} for key, value in init["parameters"].items()},
    }


#: Names that are not part of Triton's module.
_OURS = (
    "install", "connect", "plain_array", "arguments", "model_config", "Caller", "Called", "Future",
    "ClassVar", "asyncio",
)  # fmt: skip


def install(model_dir: str, init: dict[str, Any]) -> None:
    """Makes `import triton_python_backend_utils` find this module's names."""
    module = ModuleType("triton_python_backend_utils")
    for name, value in globals().items():
        if not name.startswith("_") and name not in _OURS:
            setattr(module, name, value)
    module.get_model_dir = lambda: model_dir  # type: ignore[attr-defined]
    sys.modules["triton_python_backend_utils"] = module


def arguments(init: dict[str, Any], version_dir: str) -> dict[str, str]:
    """The arguments of `initialize(args)`: strings only, as in Triton."""
    return {
        "model_config": json.dumps(init["config"]),
        "model_instance_kind": "CPU",
        "model_instance_name": f"{init['name']}_0",
        "model_instance_device_id": "0",
        "model_repository": version_dir,
        "model_version": init["version"],
        "model_name": init["name"],
    }
