"""What only a Triton configuration says of a model, beside what every description has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonFacts:
    """Of one model. Names of tensors are those of its configuration."""

    #: the configuration as Triton's JSON, as it was written; completed once the model is loaded
    config: dict[str, Any] = field(default_factory=dict)
    named: bool = False  #: whether it says the model's name
    #: tensor -> its shape in the model, without the batch dimension, where that is not its `dims`
    reshapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()  #: inputs that a request may leave out
    #: output -> the names of its classes, by index; "" = that class has none
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
