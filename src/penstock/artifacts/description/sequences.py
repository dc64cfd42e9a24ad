"""How a model keeps the state of sequences: Triton's `sequence_batching`.

A request of a sequence carries a correlation id, and says whether it begins or ends the sequence.
The model learns that from control inputs, which no request holds. State that the model keeps in
tensors instead of in its own memory goes from an output of one request to an input of the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = "START"
END: Final = "END"
READY: Final = "READY"
CORRID: Final = "CORRID"
#: s; Triton's default of max_sequence_idle_microseconds
IDLE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlInput:
    """A model's input that says where in its sequence a request is."""

    name: str
    kind: str  #: START | END | READY | CORRID
    dtype: str
    false_true: tuple[float, float] = (0, 1)  #: values of the flag; CORRID has none


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """An output whose value is the input of the sequence's next request. Shapes have no batch."""

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]  #: -1 = any size
    initial_shape: tuple[int, ...]  #: of the first request; no size is free
    initial_file: str = ""  #: raw values of it below the artifact's root; "" = zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBatching:
    """Sizes in sequences, times in s."""

    idle_s_max: float = IDLE_S  #: a sequence without a request for so long has ended
    direct: bool = True  #: the strategy; False: oldest
    slots: int = 1  #: sequences that a lane holds at once
    rows_preferred: tuple[int, ...] = ()  #: oldest: sizes at which a batch leaves
    wait_s_max: float = 0.0  #: how long the oldest request waits for others
    utilization_min: float = 0.0  #: direct: part of the slots that a batch waits for
    controls: tuple[ControlInput, ...] = ()
    states: tuple[StateTensor, ...] = ()

    @property
    def own_inputs(self) -> frozenset[str]:
        """Inputs of the model that come from here and not from requests."""
        return frozenset(one.name for one in self.controls) | {one.input for one in self.states}


#: Dtype of a flag -> the field of a control that has its values.
FLAG_FIELDS: Final = {
    "INT32": "int32_false_true",
    "FP32": "fp32_false_true",
    "BOOL": "bool_false_true",
}
