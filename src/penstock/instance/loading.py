"""From a load call to a running model: the artifact, its runtime, an engine on top."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.artifacts.cache import ArtifactCache
from penstock.artifacts.description import (
    Batching,
    EngineOptions,
    ModelDescription,
    TensorSpec,
)
from penstock.artifacts.detect import Detected
from penstock.artifacts.generation_layout import served_as_weights
from penstock.artifacts.prepare import prepare
from penstock.artifacts.source import ArtifactSource
from penstock.compile.serving import compile_for_serving, needs_compiling
from penstock.core.batching import BatchSpec
from penstock.errors import CallerError, ModelError, NotNowError
from penstock.instance.codecs import text, text2text, text_heads
from penstock.instance.codecs.base import CodecModel
from penstock.instance.copy import Copy
from penstock.instance.engines import PackedTensorEngine, PayloadEngine
from penstock.instance.generation_copy import GenerationCopy
from penstock.instance.generation_loading import RUNTIMES as GENERATION_RUNTIMES
from penstock.instance.generation_loading import described as generation_described
from penstock.instance.generation_loading import slots_spec, start_engine
from penstock.instance.lane_threads import LaneThreads
from penstock.instance.pipeline_copy import RUNTIME as PIPELINE
from penstock.instance.pipeline_copy import PipelineCopy
from penstock.instance.pipeline_copy import described as pipeline_described
from penstock.instance.pipeline_copy import slots_spec as pipeline_slots
from penstock.instance.runs_measured import RunsMeasured, runs_measured
from penstock.instance.seq2seq_engine import DecodeThread, Seq2SeqEngine, decode_batching
from penstock.instance.settings import InstanceSettings
from penstock.instance.tensor_engine import TensorEngine
from penstock.instance.text_engine import TextEngine
from penstock.instance.variant_settings import served_with
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import (
    TENSOR_RUNTIMES,
    load_payload_runtime,
    load_seq2seq_model,
    load_tensor_runtime_in_thread,
)
from penstock.runtimes.pipeline import PipelineRuntime
from penstock.runtimes.python import LaneListener
from penstock.runtimes.tensor_inputs import threads_of

_LOG = logging.getLogger(__name__)

#: Runtimes that watch the time themselves know more of what went wrong: they speak first.
_STORY_S = 5.0

_PLATFORMS = {
    "openvino": "openvino",
    "onnxruntime": "onnxruntime_onnx",
    "python": "python",
    "process": "custom",
    "seq2seq": "openvino_seq2seq",
    "torch": "pytorch_pt2",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadCall:
    """The `load` operation, checked."""

    copy: int
    endpoint: str
    variant: str
    source: ArtifactSource
    environment: dict[str, str]
    cores: float
    memory_bytes_max: int
    accelerators: int
    download_timeout_s: float
    startup_timeout_s: float
    batching: dict[str, Any]  #: fields of Batching that overrule the description's

    @classmethod
    def from_dict(cls, call: dict[str, Any], settings: InstanceSettings) -> LoadCall:
        """Raises CallerError for missing or impossible fields."""
        try:
            return cls(
                copy=int(call["copy"]),
                endpoint=str(call["endpoint"]),
                variant=str(call["variant"]),
                source=ArtifactSource.from_dict(call["source"]),
                environment={str(k): str(v) for k, v in (call.get("environment") or {}).items()},
                cores=float(call.get("cores") or settings.cores),
                memory_bytes_max=int(call.get("memory_bytes_max") or settings.memory_bytes),
                accelerators=int(call.get("accelerators") or settings.accelerators),
                download_timeout_s=float(call.get("download_timeout_s") or 3600.0),
                startup_timeout_s=float(call.get("startup_timeout_s") or 600.0),
                batching=dict(call.get("batching") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CallerError(
                "bad-control-call", f"load: {type(error).__name__}: {error}"
            ) from None


@dataclasses.dataclass(slots=True, kw_only=True)
class Loaded:
    """A model that runs, and what is needed to serve and to end it."""

    description: ModelDescription
    engine: Any
    runtime: Any
    spec: BatchSpec
    passes_bodies: bool
    threads: LaneThreads | DecodeThread | None
    described: dict[str, Any]  #: what gateways are told of the model
    digest: str = ""  #: of the artifact in the cache

    async def close(self) -> None:
        if self.threads is not None:
            self.threads.close()
            await asyncio.to_thread(self.runtime.close)
        else:
            await self.runtime.close()

    async def explain(self) -> dict[str, Any]:
        """How requests are joined, for whoever asks why: settings, and the state of a decode batch
        where there is one."""
        told: dict[str, Any] = {
            "batching": self.described["batching"],
            "seeds": [list(each) for each in self.spec.runs_measured],
        }
        explain = getattr(self.engine, "explain", None)
        if explain is not None:
            try:
                told["decoding"] = await explain()
            except TimeoutError:
                told["decoding"] = None  # the story of the queue in front is told all the same
        return told

    def pids(self) -> list[int]:
        return list(getattr(self.runtime, "pids", ()))

    def copy(self, number: int, *, name: str, **driving: Any) -> Copy | GenerationCopy:
        """What takes requests for it. `driving`: clock, timers and listeners, as `Copy` has."""
        if self.description.runtime in (*GENERATION_RUNTIMES, PIPELINE):
            version = self.description.version
            kind = PipelineCopy if self.description.runtime == PIPELINE else GenerationCopy
            return kind(number, self.runtime, self.spec, name=name, version=version, **driving)
        return Copy(number, self.engine, self.spec, passes_bodies=self.passes_bodies, **driving)


async def load(call: LoadCall, settings: InstanceSettings, listener: LaneListener) -> Loaded:
    """Raises a PenstockError that names file, cause and remedy."""
    detected = await _prepared(call, settings)
    description = detected.description
    if call.batching:
        description = _overruled(description, call.batching)
    environment = {**call.source.environment, **call.environment}
    batching = served_with(description.batching, environment)
    description = dataclasses.replace(description, batching=batching)
    context = LoadContext(
        model_dir=detected.root,
        description=description,
        endpoint_name=call.endpoint,
        variant_name=call.variant,
        cores=call.cores,
        memory_bytes_max=call.memory_bytes_max,
        accelerators=call.accelerators,
        environment=environment,
        cache_dir=settings.cache_dir / "compiled",
        startup_timeout_s=call.startup_timeout_s,
        log=_model_log(call),
    )
    try:
        async with asyncio.timeout(call.startup_timeout_s + _STORY_S):
            loaded = await _started(context, listener)
    except TimeoutError:
        raise ModelError(
            "load-timeout",
            f"the model did not start within {call.startup_timeout_s:g} s",
            hint="Raise ContainerStartupHealthCheckTimeoutInSeconds.",
        ) from None
    loaded.digest = detected.digest
    return loaded


async def _prepared(call: LoadCall, settings: InstanceSettings) -> Detected:
    cancelled = threading.Event()
    runtime = call.source.runtime or call.source.image.removeprefix("local://")

    def work() -> Detected:
        cache = ArtifactCache(settings.cache_dir / "artifacts")
        return prepare(
            call.source,
            cache,
            settings.artifact,
            compile_uncompiled=compiled,
            cancelled=cancelled,
        )

    def compiled(root: Path, digest: str) -> Path:
        """Weights from a Hugging Face directory, compiled once per content for this processor."""
        if not needs_compiling(root) or served_as_weights(root, runtime, call.source.environment):
            return root
        return compile_for_serving(
            root,
            settings.cache_dir / "compiled-models",
            digest=digest,
            timeout_s=call.download_timeout_s,
            cancelled=cancelled,
        )

    try:
        async with asyncio.timeout(call.download_timeout_s):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise NotNowError(
            "download-timeout",
            f"{call.source.shown_uri()} was not here within {call.download_timeout_s:g} s",
            hint="Raise ModelDataDownloadTimeoutInSeconds, or bring the artifact nearer.",
        ) from None
    finally:
        cancelled.set()


def _overruled(description: ModelDescription, fields: dict[str, Any]) -> ModelDescription:
    try:
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
        }
        batching = dataclasses.replace(description.batching, **values)
    except TypeError as error:
        raise CallerError("bad-control-call", f"load: batching: {error}") from None
    return dataclasses.replace(description, batching=batching)


def _model_log(call: LoadCall) -> Callable[[str], None]:
    name = f"{call.endpoint}/{call.variant} copy {call.copy}"
    return lambda line: _LOG.info("[%s] %s", name, line)


async def _started(context: LoadContext, listener: LaneListener) -> Loaded:
    if context.description.task == "text2text-generation":
        return await _seq2seq_model(context)
    if context.description.runtime in TENSOR_RUNTIMES:
        return await _tensor_model(context)
    if context.description.runtime in GENERATION_RUNTIMES:
        return await _generation_model(context, listener)
    if context.description.runtime == PIPELINE:
        return await _pipeline(context, listener)
    return await _payload_model(context, listener)


async def _tensor_model(context: LoadContext) -> Loaded:
    description = context.description
    runtime = await load_tensor_runtime_in_thread(context)
    lanes = runtime.lanes
    batching = _possible(description.batching, runtime.inputs)
    threads = LaneThreads(
        lanes, f"{context.endpoint_name}-{context.variant_name}", asyncio.get_running_loop()
    )
    try:
        if description.task == "tensor":
            _check_names(description, runtime.inputs, runtime.outputs)
            model = _codec_model(context, runtime.inputs, runtime.outputs)
            engine: Any = TensorEngine(runtime, model, threads)
            labels = description.labels
        else:
            outputs = text_heads.output_specs(text_heads.heads_of(description))
            model = _codec_model(context, text.input_specs(description.task), outputs)
            engine = await asyncio.to_thread(
                TextEngine, runtime, description, model, context.model_dir, threads
            )
            labels = engine.labels
        seeds = await asyncio.to_thread(
            runs_measured, context.model_dir, batching, threads=threads_of(context, lanes)
        )
    except BaseException:
        threads.close()
        runtime.close()
        raise
    return Loaded(
        description=description,
        engine=engine,
        runtime=runtime,
        spec=batch_spec(batching, lanes, threads=True, seeds=seeds),
        passes_bodies=False,
        threads=threads,
        described=_described(context, model, batching, lanes, labels),
    )


async def _seq2seq_model(context: LoadContext) -> Loaded:
    description = context.description
    batching = description.batching
    spec, lanes = decode_batching(batching)
    codec = _codec_model(context, text2text.INPUTS, text2text.OUTPUTS)
    model = await asyncio.to_thread(load_seq2seq_model, context)
    try:
        loop = asyncio.get_running_loop()
        engine = await asyncio.to_thread(Seq2SeqEngine, model, context, codec, loop)
    except BaseException:
        model.close()
        raise
    described = _described(context, codec, batching, lanes, ())
    return Loaded(
        description=description,
        engine=engine,
        runtime=engine,
        spec=spec,
        passes_bodies=False,
        threads=engine.thread,
        described=described | {"outstanding_max": spec.queue_rows_max + lanes},
    )


async def _generation_model(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    spec = slots_spec(description.batching, description.engine or EngineOptions())
    runtime = await start_engine(context, listener)
    return Loaded(
        description=description,
        engine=runtime,
        runtime=runtime,
        spec=spec,
        passes_bodies=False,
        threads=None,
        described=generation_described(context, runtime, spec),
    )


async def _pipeline(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime = await PipelineRuntime.start(context, listener)
    spec = pipeline_slots(description.batching, runtime.file.requests_max)
    return Loaded(
        description=description,
        engine=runtime,
        runtime=runtime,
        spec=spec,
        passes_bodies=False,
        threads=None,
        described=pipeline_described(context, runtime, spec),
    )


async def _payload_model(context: LoadContext, listener: LaneListener) -> Loaded:
    description = context.description
    runtime = await load_payload_runtime(context, listener)
    lanes = runtime.lanes
    batching = description.batching
    model = _codec_model(context, description.inputs, description.outputs)
    packed = description.runtime == "python" and description.triton_python
    engine = PackedTensorEngine(runtime, model) if packed else PayloadEngine(runtime)
    return Loaded(
        description=description,
        engine=engine,
        runtime=runtime,
        spec=batch_spec(batching, lanes),
        passes_bodies=not packed,
        threads=None,
        described=_described(context, model, batching, lanes, description.labels),
    )


def batch_spec(
    batching: Batching, lanes: int, *, threads: bool = False, seeds: RunsMeasured = ()
) -> BatchSpec:
    """0 rows (no batch dimension) are batches of one request.

    A lane that is a thread is given its next full batch ahead: handing it over takes longer than
    the loop and the thread can spare between two runs. With several lanes it could wait behind the
    slower one, and with priorities it could not be overtaken.
    """
    rows_max = max(1, batching.rows_max)
    ahead = threads and lanes == 1 and rows_max > 1 and batching.priorities == 1
    return BatchSpec(
        rows_max=rows_max,
        wait_s_max=batching.wait_s_max,
        lanes=lanes,
        queue_rows_max=max(rows_max, batching.queue_rows_max),
        queue_wait_s_max=batching.queue_wait_s_max,
        rows_preferred=tuple(rows for rows in batching.rows_preferred if 1 <= rows <= rows_max),
        buckets=batching.buckets,
        batches_ahead=int(ahead),
        priorities=batching.priorities,
        latency_s_p99_max=batching.latency_s_p99_max,
        runs_measured=seeds,
    )


def _possible(batching: Batching, inputs: tuple[TensorSpec, ...]) -> Batching:
    """No larger than a batch size that is baked into the graph."""
    fixed = [spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] > 0]
    if batching.rows_max > 0 and fixed and min(fixed) < batching.rows_max:
        return dataclasses.replace(batching, rows_max=min(fixed))
    return batching


def _check_names(
    description: ModelDescription,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> None:
    """The description and the file must speak of the same tensors."""
    for kind, described, actual in (
        ("input", description.inputs, inputs),
        ("output", description.outputs, outputs),
    ):
        names = {spec.name for spec in actual}
        for spec in described:
            if spec.name not in names:
                raise ModelError(
                    "tensor-mismatch",
                    f"the description names {kind} {spec.name!r}, {description.file} has "
                    f"{', '.join(sorted(names))}",
                    hint="Correct the name in model.yaml or config.pbtxt.",
                )


def _codec_model(
    context: LoadContext, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
) -> CodecModel:
    description = context.description
    batched = description.batching.rows_max > 0
    return CodecModel(
        name=context.endpoint_name,
        version=description.version,
        inputs=inputs,
        outputs=outputs,
        batched=batched,
    )


def _described(
    context: LoadContext,
    model: CodecModel,
    batching: Batching,
    lanes: int,
    labels: tuple[str, ...],
) -> dict[str, Any]:
    description = context.description

    def tensor(spec: TensorSpec) -> dict[str, Any]:
        shape = list(spec.shape)
        if model.batched and shape:
            shape[0] = -1
        return {"name": spec.name, "datatype": spec.dtype, "shape": shape}

    spec = batch_spec(batching, lanes)
    return {
        "runtime": description.runtime,
        "task": description.task,
        "platform": _PLATFORMS[description.runtime],
        "name": description.name,
        "versions": [description.version],
        "inputs": [tensor(each) for each in model.inputs],
        "outputs": [tensor(each) for each in model.outputs],
        "labels": list(labels),
        "rows_max": batching.rows_max,
        "lanes": lanes,
        "outstanding_max": spec.queue_rows_max + lanes * spec.rows_max,
        "batching": dataclasses.asdict(batching),
    }
