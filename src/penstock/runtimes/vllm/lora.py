"""LoRA adapters of a vLLM engine: which ones it has, and what a request for each must name.

vLLM keeps `max_loras` of them on the device, and loads others from their folders. It identifies
adapters by numbers; its prefix caches identify them by names.

Its CPU arithmetic (0.32) uses the last adapter in a batch for tokens that have none, so an answer
of the base would depend on its batch mates. On CPUs the base gets an adapter of zeros too, and the
batch has one more place.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from penstock.errors import CallerError, ModelError, plain
from penstock.runtimes.generation.adapter_base import shapes_of
from penstock.runtimes.generation.adapter_files import CONFIG, WEIGHTS

#: Layers; every model of transformers has one of them.
_LINEAR = ("q_proj", "o_proj", "qkv_proj", "query_key_value", "down_proj", "c_proj")


def prepared(arguments: Any) -> Any:
    """The engine arguments, with a place for the base where it needs an adapter of its own."""
    if arguments.enable_lora and _is_cpu():
        arguments.max_loras += 1
        if arguments.max_cpu_loras is not None:
            arguments.max_cpu_loras += 1
    return arguments


class VllmAdapters:
    """The adapters of one engine."""

    def __init__(self, engine: Any, model_dir: Path, scratch: Path) -> None:
        """`scratch`: a folder that is kept. Raises ModelError where the base can't have
        adapters."""
        self._engine = engine
        self._made = importlib.import_module("vllm.lora.request").LoRARequest
        self._loaded: dict[str, Any] = {}
        self._last = 0  #: the last number used; numbers are never reused
        self._base: Any = None
        if _is_cpu():
            self._base = self._add("base", _zeros(model_dir, scratch))

    def load(self, key: str, folder: Path) -> None:
        """Raises CallerError (`adapter-mismatch`)."""
        self._loaded[key] = self._add(f"adapter-{key}", folder)

    def unload(self, key: str) -> None:
        request = self._loaded.pop(key, None)
        if request is not None:
            self._engine.remove_lora(request.lora_int_id)

    def of(self, key: str) -> Any:
        """What a request must name; None: no adapter. Raises ModelError (`adapter-unknown`)."""
        if not key:
            return self._base
        if key not in self._loaded:
            raise ModelError("adapter-unknown", "the adapter is not loaded in this engine")
        return self._loaded[key]

    def _add(self, name: str, folder: Path) -> Any:
        self._last += 1
        request = self._made(name, self._last, str(folder))
        try:
            self._engine.add_lora(request)
        except Exception as error:  # vLLM has its own exceptions for adapters that it refuses
            raise CallerError(
                "adapter-mismatch",
                f"the adapter does not fit its base: vLLM says: {plain(error, 400)}",
                hint="An adapter fits the model that it was trained on. Its rank is bounded by the "
                "option max_lora_rank.",
            ) from None
        return request


def _is_cpu() -> bool:
    return bool(importlib.import_module("vllm.platforms").current_platform.is_cpu())


def _zeros(model_dir: Path, scratch: Path) -> Path:
    """An adapter of zeros for one layer of the model: it adds nothing."""
    module, (rows, columns) = _linear(model_dir)
    folder = scratch / "base-adapter"
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none",
        "target_modules": [module.rpartition(".")[2]],
    }  # fmt: skip
    (folder / CONFIG).write_text(json.dumps(config))
    name, cut, size = f"base_model.model.{module}", 4 * columns, 4 * (columns + rows)
    header = json.dumps(
        {
            f"{name}.lora_A.weight": {
                "dtype": "F32", "shape": [1, columns], "data_offsets": [0, cut],
            },
            f"{name}.lora_B.weight": {
                "dtype": "F32", "shape": [rows, 1], "data_offsets": [cut, size],
            },
        }
    ).encode()  # fmt: skip
    data = len(header).to_bytes(8, "little") + header + bytes(size)
    (folder / WEIGHTS).write_bytes(data)
    return folder


def _linear(model_dir: Path) -> tuple[str, tuple[int, ...]]:
    for name, shape in shapes_of(model_dir).items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in _LINEAR and len(shape) == 2:
            return module, shape
    raise ModelError(
        "adapters-unsupported",
        "no layer of the base is known that an adapter could be on",
        hint="Leave the option enable_lora out.",
    )
