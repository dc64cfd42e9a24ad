"""A generating model from its context to what a copy needs."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.artifacts.description import Batching, EngineOptions
from penstock.core.batching import BatchSpec
from penstock.instance.codecs.generation.triton_tensors import INPUTS, OUTPUTS
from penstock.runtimes.base import LoadContext
from penstock.runtimes.generation.runtime import GenerationRuntime
from penstock.runtimes.python.runtime import LaneListener

RUNTIMES = ("openvino_genai", "vllm")


async def start_engine(context: LoadContext, listener: LaneListener) -> GenerationRuntime:
    """Raises ModelError if the engine cannot load the model."""
    return await GenerationRuntime.start(context, listener)


def slots_spec(batching: Batching, options: EngineOptions) -> BatchSpec:
    """One request a slot. The engine joins them; here they only wait their turn."""
    return BatchSpec(
        rows_max=1,
        lanes=options.sequences_max,
        queue_rows_max=max(1, batching.queue_rows_max),
        queue_wait_s_max=batching.queue_wait_s_max,
        priorities=batching.priorities,
    )


def described(context: LoadContext, runtime: GenerationRuntime, spec: BatchSpec) -> dict[str, Any]:
    """What gateways are told of the model."""
    description = context.description

    def tensor(spec: Any) -> dict[str, Any]:
        return {"name": spec.name, "datatype": spec.dtype, "shape": list(spec.shape)}

    return {
        "runtime": description.runtime,
        "task": description.task,
        "platform": description.runtime,
        "name": description.name,
        "versions": [description.version],
        "inputs": [tensor(each) for each in INPUTS],
        "outputs": [tensor(each) for each in OUTPUTS],
        "labels": [],
        "rows_max": 1,
        "lanes": spec.lanes,
        "outstanding_max": spec.queue_rows_max + spec.lanes,
        "batching": dataclasses.asdict(description.batching),
        "generation": dict(runtime.about),
        "decoupled": True,  # a request may have many answers
    }
