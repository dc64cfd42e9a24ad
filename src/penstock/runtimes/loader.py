"""Description to runtime: checks, then the loader that the runtime's record names.

Libraries are imported when the first model needs them. Which operators a library has is known best
to the library, so a file that detection gave to a runtime is tried first, and goes to another one
where it is refused (`with_runtime`). A runtime that the model's owner named is never replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.artifacts.description.description import Generation
from penstock.core.models.runtime_choice import RefuseFile, TryRuntime, decide
from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import LaneListener, LoadContext, PayloadRuntime, TensorRuntime
from penstock.runtimes.probe import FileRefusal, probe
from penstock.runtimes.record import Interface, imported


def with_runtime(context: LoadContext) -> LoadContext:
    """The context with the runtime that takes the model's file. Blocks.

    Raises ModelError with the reasons of both, where the other one does not take it either.
    """
    description = context.description
    fallback = [description.runtime_fallback] if description.runtime_fallback else []
    runtimes = [description.runtime, *fallback]
    refusals: list[str] = []
    while isinstance(choice := decide(description.file, runtimes, refusals), TryRuntime):
        refusals.append(_refusal(_of_runtime(context, choice.runtime)))
    if isinstance(choice, RefuseFile):
        raise ModelError(
            "model-unreadable",
            choice.reason,
            hint="Compare the file with the original. If it is whole, export it with operators "
            "of the standard domain and an older opset, or serve it by a code/inference.py.",
        )
    if choice.reason:
        context.log(f"{choice.reason}; it is served by {choice.runtime}")
        context = _of_runtime(context, choice.runtime, runtime_reason=choice.reason)
    return _of_runtime(context, choice.runtime, runtime_fallback="")


def _of_runtime(context: LoadContext, runtime: str, **changes: Any) -> LoadContext:
    description = replace(context.description, runtime=runtime, **changes)
    return replace(context, description=description)


def _refusal(context: LoadContext) -> str:
    """Why the context's runtime does not take the file; "" = it does. A crash is a reason, too."""
    try:
        refusal = _try(context, context.description.file, hint=_NAMED)
    except ModelError as error:
        if error.code != "model-crashes-runtime":
            raise
        return error.message
    return "" if refusal is None else refusal.reason


_NAMED = "Name the model file in model.yaml, relative to the artifact's root."


def load_tensor_runtime(context: LoadContext) -> TensorRuntime:
    """Blocks until the model is ready to run: call it on a thread.

    Raises ModelError naming the file, what is wrong with it and what to do.
    """
    context = with_runtime(context)
    file, record = context.description.file, registry.record(context.description.runtime)
    refusal = _try(context, file, hint=_NAMED)
    if refusal is not None and refusal.operators:
        others = [one.name for one in registry.records(Interface.TENSORS) if one is not record]
        readers = [name for name in others if file.endswith(registry.record(name).suffixes)]
        raise ModelError(
            "operator-unsupported",
            f"{file}: {record.name} can't load it: {refusal.reason}",
            hint=f"Leave the runtime out, or name another: {' or '.join(readers)}."
            if readers
            else "Export the model with other operators.",
        )
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


def _try(context: LoadContext, file: str, *, hint: str) -> FileRefusal | None:
    """What the library says against the file. Raises ModelError for one that is not there, is
    empty, or crashes its library. `hint`: for one that is not there."""
    path = context.model_dir / file
    if not file or not path.is_file():
        missing = f"the artifact has no file {file!r}"
        raise ModelError("model-file-missing", missing, hint=hint)
    if path.stat().st_size == 0:
        raise ModelError("model-unreadable", f"{file} is empty")
    record = registry.record(context.description.runtime)
    if not record.trial:
        return None
    return probe(
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
