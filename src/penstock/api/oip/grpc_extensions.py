"""Methods about the server, over gRPC: Triton's extensions for shared memory, and for log and trace
settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.api.model_names import parse
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_memory import cuda_status, refuse_cuda

#: (message, address of the caller) -> the answer's fields
Extension = Callable[[Any, str], Awaitable[dict[str, Any]]]

#: Type of a log setting -> its field in the protocol.
_FIELDS: Final[dict[type, str]] = {bool: "bool_param", int: "uint32_param", str: "string_param"}


class GrpcExtensions:
    """Their answers."""

    def __init__(self, models: OipModels) -> None:
        self._models = models
        self._shared = models.shared

    def methods(self) -> dict[str, Extension]:
        return {
            "SystemSharedMemoryStatus": self._status,
            "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister,
            "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryRegister": self._refuse_cuda,
            "CudaSharedMemoryUnregister": self._refuse_cuda,
            "LogSettings": self._log,
            "TraceSetting": self._trace,
        }

    async def _status(self, asked: Any, peer: str) -> dict[str, Any]:
        return {"regions": {one["name"]: one for one in await self._shared.status(asked.name)}}

    async def _register(self, asked: Any, peer: str) -> dict[str, Any]:
        region = {"key": asked.key, "offset": asked.offset, "byte_size": asked.byte_size}
        return await self._shared.register(peer, asked.name, region)

    async def _unregister(self, asked: Any, peer: str) -> dict[str, Any]:
        return await self._shared.unregister(peer, asked.name)

    async def _cuda_status(self, asked: Any, peer: str) -> dict[str, Any]:
        cuda_status(asked.name)
        return {}

    async def _refuse_cuda(self, asked: Any, peer: str) -> dict[str, Any]:
        refuse_cuda()
        return {}

    async def _log(self, asked: Any, peer: str) -> dict[str, Any]:
        given = {}
        for name, one in asked.settings.items():
            field = one.WhichOneof("parameter_choice")
            given[name] = getattr(one, field) if field is not None else None
        settings = await self._models.settings.log(given)
        return {"settings": {name: {_FIELDS[type(v)]: v} for name, v in settings.items()}}

    async def _trace(self, asked: Any, peer: str) -> dict[str, Any]:
        if asked.model_name:
            self._models.check_version(parse(asked.model_name), "")
        given = {name: list(one.value) for name, one in asked.settings.items()}
        settings = self._models.settings.trace(given)
        return {
            "settings": {
                name: {"value": value if isinstance(value, list) else [value]}
                for name, value in settings.items()
            }
        }


def repository_parameters(asked: Any) -> dict[str, Any]:
    """The parameters of a load or unload, as plain values."""
    return {
        key: getattr(one, one.WhichOneof("parameter_choice") or "bool_param")
        for key, one in asked.parameters.items()
    }
