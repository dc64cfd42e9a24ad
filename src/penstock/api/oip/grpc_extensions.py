"""Methods about the server and no model, over gRPC: Triton's extension for shared memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_memory import cuda_status, refuse_cuda

#: (message, address of the caller) -> the answer's fields
Extension = Callable[[Any, str], Awaitable[dict[str, Any]]]


class GrpcExtensions:
    """Their answers."""

    def __init__(self, models: OipModels) -> None:
        self._shared = models.shared

    def methods(self) -> dict[str, Extension]:
        return {
            "SystemSharedMemoryStatus": self._status,
            "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister,
            "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryRegister": self._refuse_cuda,
            "CudaSharedMemoryUnregister": self._refuse_cuda,
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
