"""A Triton ensemble as a pipeline: its tensor maps become the inputs and results of steps.

`$request` is the request's tensors. A step's result is its model's outputs under the ensemble's
names, so steps and answers find them under those names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.artifacts.description.description import EnsembleStep, ModelDescription
from penstock.core.pipeline.spec import PipelineSpec, PipelineStepSpec
from penstock.runtimes.pipeline.events import EmitRule
from penstock.runtimes.pipeline.file import FileStep, PipelineFile
from penstock.runtimes.pipeline.templates import REQUEST, Scope

#: The kind of events that carry an answer's tensors.
TENSORS: Final = "tensors"
#: Most requests in an ensemble at once. It computes nothing itself: the queues of its models limit
#: the work.
REQUESTS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class _Source:
    """The origin of a tensor."""

    maker: str  #: a step's name, or `request`
    tensor: str  #: its name there


class TensorMap:
    """Some tensors under other names; used in the place of a pipeline's template."""

    def __init__(self, sources: dict[str, _Source]) -> None:
        self._sources = sources
        self.names = frozenset(source.maker for source in sources.values())

    def fill(self, scope: Scope) -> Any:
        return {name: scope[source.maker][source.tensor] for name, source in self._sources.items()}


def as_pipeline(description: ModelDescription) -> PipelineFile:
    """`description.ensemble`, which is checked already, as the steps of a pipeline."""
    steps = description.ensemble
    sources = {spec.name: _Source(REQUEST, spec.name) for spec in description.inputs}
    for at, step in enumerate(steps):
        sources |= {
            tensor: _Source(name_of(at, step), output) for output, tensor in step.outputs.items()
        }
    outputs = {spec.name: sources[spec.name] for spec in description.outputs}
    made = [_step(at, step, sources, outputs) for at, step in enumerate(steps)]
    return PipelineFile(
        spec=PipelineSpec(steps=tuple(step.spec for step in made)),
        steps={step.spec.name: step for step in made},
        code="",
        threads=1,
        requests_max=REQUESTS_MAX,
        deadline_s=None,
    )


def name_of(at: int, step: EnsembleStep) -> str:
    """A step's name in errors and `explain`: several steps may use one model."""
    return f"{at} ({step.model})"


def _step(
    at: int, step: EnsembleStep, sources: dict[str, _Source], outputs: dict[str, _Source]
) -> FileStep:
    name = name_of(at, step)
    inputs = TensorMap({own: sources[tensor] for own, tensor in step.inputs.items()})
    answered = {tensor: source for tensor, source in outputs.items() if source.maker == name}
    return FileStep(
        spec=PipelineStepSpec(name=name, needs=tuple(sorted(inputs.names - {REQUEST}))),
        way="model",
        inputs=inputs,
        target=step.model,
        version=step.version,
        outputs=tuple(step.outputs),
        emit=(_answer(answered),) if answered else (),
        result_wanted=True,
    )


def _answer(answered: dict[str, _Source]) -> EmitRule:
    """The step's part of the answer, sent once its model has made it."""
    tensors = {name: _Source("piece", source.tensor) for name, source in answered.items()}
    return EmitRule(kind=TENSORS, data=TensorMap(tensors))
