"""Description to runtime. Heavy libraries are imported by the branch that needs them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from penstock.artifacts.description.description import Generation
from penstock.errors import ModelError
from penstock.runtimes.base import LaneListener, LoadContext, TensorRuntime
from penstock.runtimes.probe import probe

TENSOR_RUNTIMES = ("openvino", "onnxruntime", "torch")
PAYLOAD_RUNTIMES = ("python", "process")
TEXT_RUNTIMES = ("seq2seq", "openvino_genai", "vllm", "paced")


def load_tensor_runtime(context: LoadContext) -> TensorRuntime:
    """Blocks until the model is ready to run: call it on a thread.

    Raises ModelError naming the file, what is wrong with it and what to do.
    """
    description = context.description
    path = context.model_dir / description.file
    if not description.file or not path.is_file():
        raise ModelError(
            "model-file-missing",
            f"the artifact has no file {description.file!r}",
            hint="Name the model file in model.yaml, relative to the artifact's root.",
        )
    if path.stat().st_size == 0:
        raise ModelError("model-unreadable", f"{description.file} is empty")
    if description.runtime == "torch":
        # Not probed: the file is checked part by part before PyTorch reads it, and has no format of
        # its own for a native library to trip over.
        from penstock.runtimes.pytorch.runtime import TorchRuntime

        return TorchRuntime(context)
    probe(context.model_dir, description, context.cache_dir, context.startup_timeout_s)
    if description.runtime == "openvino":
        from penstock.runtimes.openvino import OpenVinoRuntime

        return OpenVinoRuntime(context)
    if description.runtime == "onnxruntime":
        from penstock.runtimes.onnxruntime import OnnxRuntime

        return OnnxRuntime(context)
    raise _unknown(description.runtime)


def import_library(runtime: str) -> None:
    """What loading a first model of that runtime would import, where that is much. Blocks."""
    if runtime == "openvino":
        from penstock.runtimes.openvino import shared_core

        shared_core()


def load_seq2seq_model(context: LoadContext) -> Any:
    """A `Seq2SeqModel`. Blocks as above, and raises as above."""
    generation = context.description.generation or Generation()
    for file in (generation.encoder_file, generation.decoder_file):
        if not (context.model_dir / file).is_file():
            raise ModelError(
                "model-file-missing",
                f"the artifact has no file {file!r}",
                hint="Compile the model again with `penstock compile`.",
            )
        if context.description.runtime == "torch":
            continue
        graph = dataclasses.replace(context.description, runtime="openvino", file=file)
        probe(context.model_dir, graph, context.cache_dir, context.startup_timeout_s)
    if context.description.runtime == "torch":
        from penstock.runtimes.pytorch.seq2seq import TorchSeq2SeqModel

        return TorchSeq2SeqModel(context)
    from penstock.runtimes.seq2seq.model import Seq2SeqModel

    return Seq2SeqModel(context)


async def load_payload_runtime(context: LoadContext, listener: LaneListener) -> Any:
    """A `PayloadRuntime` whose workers run. Raises ModelError."""
    workers, server = context.shared_workers, context.shared_server
    if context.description.runtime == "python":
        if workers is not None and workers.may_share(context):
            return await workers.load(context, listener)
        from penstock.runtimes.python.runtime import PythonRuntime

        return await PythonRuntime.start(context, listener)
    if context.description.runtime == "process":
        if server is not None:
            return await server.load(context, listener)
        from penstock.runtimes.foreign.runtime import ProcessRuntime

        return await ProcessRuntime.start(context, listener)
    raise _unknown(context.description.runtime)


def _unknown(runtime: str) -> ModelError:
    known = ", ".join(TENSOR_RUNTIMES + PAYLOAD_RUNTIMES + TEXT_RUNTIMES)
    return ModelError(
        "unknown-runtime",
        f"runtime {runtime!r} is not one of those that are served here: {known}",
        hint="Compile the model for a target of this machine, for example cpu-bf16.",
    )


async def load_tensor_runtime_in_thread(context: LoadContext) -> TensorRuntime:
    return await asyncio.to_thread(load_tensor_runtime, context)
