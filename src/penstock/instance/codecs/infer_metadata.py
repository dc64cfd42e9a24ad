"""What an inference request says beside its tensors: its id, its sequence, its parameters.

Triton's protocol carries sequence, priority and timeout as request parameters of fixed names; a
model sees them by methods of their own, and the other parameters as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Triton's `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `..._END`.
SEQUENCE_START: Final = 1
SEQUENCE_END: Final = 2

Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferMetadata:
    """Of one request. A correlation id of 0 or "" means that it belongs to no sequence."""

    request_id: str = ""
    correlation_id: int | str = 0
    flags: int = 0  #: bits `SEQUENCE_START` and `SEQUENCE_END`
    priority: int = 0  #: 0 = the model's default level
    timeout_us: int = 0  #: the caller's bound of the time in the queue; 0 = none
    parameters: Mapping[str, Parameter] = field(default_factory=dict)  #: of other names
    outputs: tuple[str, ...] = ()  #: the requested outputs; where none were named, all
