"""Description to runtime: checks, then the loader that the runtime's record names.

Libraries are imported when the first model needs them.
"""

from __future__ import annotations

from typing import Any

from penstock.artifacts.description.description import Generation
from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import LaneListener, LoadContext, PayloadRuntime, TensorRuntime
from penstock.runtimes.probe import probe
from penstock.runtimes.record import Interface, imported


def load_tensor_runtime(context: LoadContext) -> TensorRuntime:
    """Blocks until the model is ready to run: call it on a thread.

    Raises ModelError naming the file, what is wrong with it and what to do.
    """
    hint = "Name the model file in model.yaml, relative to the artifact's root."
    _try(context, context.description.file, hint=hint)
    runtime: TensorRuntime = _loader(context, Interface.TENSORS)(context)
    return runtime


def import_library(runtime: str) -> None:
    """Imports what the first model of that runtime would import, where that takes long. Blocks."""
    place = registry.record(runtime).first_import
    if place:
        imported(place)()


def load_seq2seq_model(context: LoadContext) -> Any:
    """A `Seq2SeqModel`. Blocks and raises as `load_tensor_runtime`."""
    generation = context.description.generation or Generation()
    for file in (generation.encoder_file, generation.decoder_file):
        _try(context, file, hint="Compile the model again with `penstock compile`.")
    return _loader(context, Interface.SEQ2SEQ)(context)


async def load_payload_runtime(context: LoadContext, listener: LaneListener) -> PayloadRuntime:
    """A payload runtime whose processes run. Raises ModelError."""
    runtime: PayloadRuntime = await _loader(context, Interface.PAYLOAD)(context, listener)
    return runtime


async def load_pipeline(context: LoadContext, listener: LaneListener) -> Any:
    """A `PipelineRuntime` whose processes run. Raises ModelError."""
    return await _loader(context, Interface.PIPELINE)(context, listener)


def _try(context: LoadContext, file: str, *, hint: str) -> None:
    """Raises ModelError for a file that is not there, is empty, or crashes its library. `hint`: for
    one that is not there."""
    path = context.model_dir / file
    if not file or not path.is_file():
        missing = f"the artifact has no file {file!r}"
        raise ModelError("model-file-missing", missing, hint=hint)
    if path.stat().st_size == 0:
        raise ModelError("model-unreadable", f"{file} is empty")
    record = registry.record(context.description.runtime)
    if record.trial:
        probe(
            path,
            file,
            library=record.library,
            trial=record.trial,
            cache_dir=context.cache_dir,
            timeout_s=context.startup_timeout_s,
        )


def _loader(context: LoadContext, interface: Interface) -> Any:
    """The loader for an interface. Raises ModelError (`unknown-runtime`)."""
    record = registry.record(context.description.runtime)
    if interface not in record.loaders:
        raise registry.unknown(record.name)
    return imported(record.loaders[interface])
