"""Starts a model by its task and runtime: the runtime, and an engine with codecs on top.

One function per kind of model; each ends what it has started when a later step fails. `load` has
the artifacts and time limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import scheduling
from penstock.artifacts.description.description import EngineOptions, ModelDescription
from penstock.cleanup import shielded
from penstock.errors import ModelError
from penstock.instance.codecs import pipeline, seq2seq, text, text_heads
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.generation import triton_tensors
from penstock.instance.copy import Work
from penstock.instance.engines.batches import Batches
from penstock.instance.engines.cached import batches_for
from penstock.instance.engines.decoupled import DecoupledBatches, DecoupledEngine
from penstock.instance.engines.lane_threads import LaneThreads, Pinning
from penstock.instance.engines.pipeline import EnsembleSteps, PipelineSteps
from penstock.instance.engines.predictor import PredictorEngine
from penstock.instance.engines.rows import TensorRowsEngine
from penstock.instance.engines.seq2seq import Seq2SeqEngine, decode_lanes
from penstock.instance.engines.sequences import Sequences
from penstock.instance.engines.stateful import StatefulBatches
from penstock.instance.engines.tensor import PackedTensorEngine, PayloadEngine, TensorEngine
from penstock.instance.engines.text import TextEngine
from penstock.instance.engines.text_rows import TextRowsEngine
from penstock.instance.inner.models import InnerModels
from penstock.instance.loading.described import (
    answered_tensors,
    batch_spec,
    check_names,
    codec_model,
    described,
    possible,
    runs_measured,
    slots_spec,
    told_tensors,
)
from penstock.instance.loading.loaded import Loaded
from penstock.instance.loading.phases import WARMING_UP
from penstock.instance.loading.proof_here import proof_here
from penstock.instance.loading.triton_tensors import (
    completed,
    completed_by_code,
    reshaped,
    reshapes_of,
    with_kinds,
)
from penstock.instance.loading.versions import with_versions
from penstock.instance.rate_limits import lane_limits
from penstock.runtimes import registry
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.runtimes.generation.runtime import GenerationRuntime
from penstock.runtimes.loader import (
    load_payload_runtime,
    load_pipeline,
    load_seq2seq_model,
    load_tensor_runtime,
    with_runtime,
)
from penstock.runtimes.record import Interface
from penstock.runtimes.tensor_bytes import threads_of

if TYPE_CHECKING:  # a start that runs no pipeline does not wait for its modules
    from penstock.runtimes.pipeline.runtime import PipelineRuntime


async def start(context: LoadContext, listener: LaneListener) -> Loaded:
    """Starts a model and the models that it calls. Raises the exceptions of a runtime; then nothing
    of them is left."""
    if not context.description.models:
        return await start_one(context, listener)
    models = InnerModels(context, listener, start_one)
    try:
        await models.begin()
        inside = dataclasses.replace(context, models=models, called_as="")
        loaded = await start_one(inside, listener)
    except BaseException:
        await shielded(models.close())
        raise
    loaded.inner = models
    return loaded


async def start_one(context: LoadContext, listener: LaneListener) -> Loaded:
    """Starts one model of any kind, in all its versions."""
    description = with_kinds(context.description, context.accelerators)
    context = dataclasses.replace(context, description=description)
    begin = partial(with_versions, start=_start_version)
    loaded = await (begin if context.description.other_versions else _start_version)(
        context, listener
    )
    if context.rate_limit is not None and not context.description.ensemble and not context.offline:
        try:
            loaded.limits = lane_limits(context.rate_limit, context.description, loaded.spec.lanes)
        except BaseException:
            await shielded(loaded.close())
            raise
    return loaded


async def _start_version(context: LoadContext, listener: LaneListener) -> Loaded:
    record = registry.record(context.description.runtime)
    if context.description.task == "text2text-generation":
        return await _seq2seq_model(context)
    if record.has(Interface.TENSORS):
        return await _tensor_model(context)
    if record.has(Interface.ENGINE):
        return await _generation_model(context, listener)
    if context.description.ensemble:
        return await _ensemble(context, listener)
    if record.has(Interface.PIPELINE):
        return await _pipeline(context, listener)
    return await _payload_model(context, listener)


async def _tensor_model(context: LoadContext) -> Loaded:
    context = await asyncio.to_thread(with_runtime, context)
    description = context.description
    with contextlib.ExitStack() as undo:
        pinning = _pinning(context, max(1, description.lanes), undo)
        runtime = await asyncio.to_thread(load_tensor_runtime, context)
        undo.callback(runtime.close)
        lanes = runtime.lanes
        inputs, outputs = answered_tensors(description, runtime.inputs, runtime.outputs)
        if description.triton is not None:
            description = completed(description, inputs, outputs)
            inputs, outputs = description.inputs, description.outputs
        batching = possible(description.batching, runtime.inputs)
        description = dataclasses.replace(description, batching=batching)
        context = dataclasses.replace(context, description=description)
        name = f"{context.endpoint_name}-{context.variant_name}"
        cores = pinning.cores if pinning else ()
        threads = LaneThreads(lanes, name, asyncio.get_running_loop(), cores)
        undo.callback(threads.close)
        warms, told = None, {}
        if description.task == "tensor":
            check_names(description, runtime.inputs, runtime.outputs)
            # Only ONNX Runtime has outputs whose values have names.
            columns = getattr(runtime, "columns", {})
            model = codec_model(context, inputs, outputs, columns=columns)
            engine: Any = TensorEngine(reshaped(runtime, description), model, threads)
            rows: Any = TensorRowsEngine(engine, batching.rows_max)
            labels = description.labels
        else:
            outputs = text_heads.output_specs(text_heads.heads_of(description))
            model = codec_model(context, text.input_specs(description.task), outputs)
            # One of many models is loaded because a caller waits for it, and a job's first batches
            # need not be fast: both skip the warm-up.
            warm_up = not context.target_model and not context.offline
            if warm_up:
                context.phase(WARMING_UP)
            engine = await asyncio.to_thread(
                partial(
                    TextEngine, runtime, description, model, context.model_dir, threads,
                    warm_up=warm_up,
                )
            )  # fmt: skip
            rows = TextRowsEngine(engine)
            labels = engine.labels
            told = {"tokens_max": engine.tokenizer.tokens_max}
            if engine.model.scoring is not None:
                told["scores_pairs"] = True
            warms = None if warm_up else engine
        proved = await asyncio.to_thread(proof_here, context, runtime)
        seeds = await asyncio.to_thread(
            runs_measured, context.model_dir, batching, threads=threads_of(context, lanes)
        )
        undo.pop_all()
    if pinning is not None:
        pinning.settle()
    # Beside other models on one loop, or for callers that wait in it, nothing runs on the loop.
    inside = context.target_model or context.called_as or context.hostname
    here = not inside and pinning is None and not context.offline
    spec = batch_spec(batching, lanes, threads=True, here=here, seeds=seeds)
    return Loaded(
        runtime=runtime,
        work=_batches(context, engine, model),
        spec=spec,
        described=described(context, model, spec, batching, labels) | told,
        threads=threads,
        pinning=pinning,
        proof=proved,
        rows=rows if description.sequences is None else None,
        warms=warms,
        taken=engine.taken if description.task == "tensor" else None,
    )


def _batches(context: LoadContext, engine: Any, model: CodecModel) -> Batches:
    """The work of a model with or without state. Raises ModelError."""
    sequences = context.description.sequences
    if sequences is None:
        return batches_for(context, engine)
    if context.target_model:
        raise ModelError(
            "sequences-of-target-model",
            f"{context.target_model} has sequence_batching, and a multi-model endpoint does not"
            " keep the requests of a sequence together",
            hint="Serve it as an endpoint of its own.",
        )
    if context.hostname:
        raise ModelError(
            "sequences-of-container",
            "it has sequence_batching, and an endpoint whose model has several containers does not"
            " keep the requests of a sequence together",
            hint="Serve it as an endpoint of its own.",
        )
    return StatefulBatches(engine, sequences, model, context.model_dir)


def _pinning(context: LoadContext, lanes: int, undo: contextlib.ExitStack) -> Pinning | None:
    """The cores of the copy, which `undo` releases."""
    if not context.description.pinned or scheduling.is_guest():  # a guest has no cores of its own
        return None
    pinning = Pinning(lanes, threads_of(context, lanes), context.log)
    undo.callback(pinning.close)
    return pinning


async def _seq2seq_model(context: LoadContext) -> Loaded:
    batching = context.description.batching
    spec = slots_spec(batching, decode_lanes(batching))
    codec = codec_model(context, seq2seq.INPUTS, seq2seq.OUTPUTS)
    with contextlib.ExitStack() as undo:
        pinning = _pinning(context, 1, undo)
        model = await asyncio.to_thread(load_seq2seq_model, context)
        undo.callback(model.close)
        cores = pinning.cores[0] if pinning and pinning.cores else None
        loop = asyncio.get_running_loop()
        engine = await asyncio.to_thread(Seq2SeqEngine, model, context, codec, loop, cores)
        undo.pop_all()
    if pinning is not None:
        pinning.settle()
    return Loaded(
        runtime=engine,
        work=Batches(engine),
        spec=spec,
        described=described(context, codec, spec, batching),
        threads=engine.thread,
        pinning=pinning,
        proof=await asyncio.to_thread(proof_here, context),
    )


async def _generation_model(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime = await GenerationRuntime(context, listener).begin()
    options = description.engine or EngineOptions()
    spec = slots_spec(description.batching, options.sequences_max)
    model = codec_model(context, triton_tensors.INPUTS, triton_tensors.OUTPUTS, batched=False)
    told = {"rows_max": 1, "generation": dict(runtime.about), "decoupled": True}
    return Loaded(
        runtime=runtime,
        work=Sequences(runtime, name=context.endpoint_name, version=description.version),
        spec=spec,
        described=described(context, model, spec, description.batching) | told,
        proof=await asyncio.to_thread(proof_here, context),
    )


async def _pipeline(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime: PipelineRuntime = await load_pipeline(context, listener)
    spec = slots_spec(description.batching, runtime.file.requests_max)
    model = codec_model(context, pipeline.INPUTS, pipeline.OUTPUTS, batched=False)
    told = {
        "rows_max": 1,
        "batching": {"requests_max": spec.lanes},
        "pipeline": dict(runtime.about),
        "decoupled": True,
    }
    return Loaded(
        runtime=runtime,
        work=PipelineSteps(runtime, name=context.endpoint_name, version=description.version),
        spec=spec,
        described=described(context, model, spec, description.batching) | told,
    )


async def _ensemble(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime: PipelineRuntime = await load_pipeline(context, listener)
    spec = slots_spec(description.batching, runtime.file.requests_max)
    model = codec_model(context, description.inputs, description.outputs)
    work = EnsembleSteps(runtime, model, name=context.caller_name)
    told = {"platform": "ensemble", "pipeline": dict(runtime.about)}
    return Loaded(
        runtime=runtime,
        work=work,
        spec=spec,
        described=described(context, model, spec, description.batching, description.labels) | told,
        taken=work.taken,
    )


async def _payload_model(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime = await load_payload_runtime(context, listener)
    if description.triton is not None:
        description = await _completed_by_code(description, runtime)
        context = dataclasses.replace(context, description=description)
    spec = batch_spec(description.batching, runtime.lanes)
    inputs, outputs = description.inputs, description.outputs
    predicts = description.task == "tensor" and not description.triton_python
    if predicts:
        inputs, outputs = told_tensors(runtime)
    model = codec_model(context, inputs, outputs)
    packed = description.triton_python
    engine: Any = PayloadEngine(runtime)
    if packed:
        engine = PackedTensorEngine(runtime, model, reshapes_of(description))
    if predicts:
        engine = PredictorEngine(runtime, model)
    work: Work = _batches(context, engine, model)
    told = described(context, model, spec, description.batching, description.labels)
    if wanted := getattr(runtime, "about", {}).get("wanted_models"):
        told |= {"wanted_models": wanted}
    if description.decoupled:
        engine = DecoupledEngine(runtime, model, reshapes_of(description))
        work, told = DecoupledBatches(engine, runtime), told | {"decoupled": True}
        spec = dataclasses.replace(spec, preserves_order=False)  # only its streams have an order
    return Loaded(
        runtime=runtime,
        work=work,
        spec=spec,
        described=told,
        taken=engine.taken if packed or predicts else None,
    )


async def _completed_by_code(description: ModelDescription, runtime: Any) -> ModelDescription:
    try:
        return completed_by_code(description, runtime.about["config"])
    except BaseException:
        await shielded(runtime.close())
        raise
