"""An inference experiment as it is on record, and its errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.experiments.machine import COMPLETED, ExperimentSpec
from penstock.errors import CallerError

#: Characters of an experiment's name in those of its configurations, which may have 63.
_NAME_CHARS: Final = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord:
    """One experiment. Times are wall-clock seconds."""

    name: str
    arn: str
    request: dict[str, Any] = field(default_factory=dict)  #: of CreateInferenceExperiment
    created: float
    modified: float
    status: str
    status_reason: str
    starts: float
    ends: float
    completed: float | None = None
    before: DeploymentSpec | None = None  #: of the endpoint; None: it has not started
    base: Mapping[str, Any] = field(default_factory=dict)  #: the configuration's request then
    config: Mapping[str, Any] = field(default_factory=dict)  #: the wanted one; empty: `before`
    config_count: int = 0
    begun: bool = False
    end_status: str = COMPLETED
    unreadable: str = ""  #: why its row could not be read; empty: it could be read

    @property
    def endpoint(self) -> str:
        return str(self.request.get("EndpointName", ""))

    @property
    def started(self) -> bool:
        return self.before is not None

    def config_name(self, number: int) -> str:
        """Of the configuration with that number. An experiment that takes the name of a deleted one
        takes none of its configurations."""
        digest = hashlib.sha256(f"{self.arn} {self.created}".encode()).hexdigest()[:8]
        return f"{self.name[:_NAME_CHARS].rstrip('-')}-{digest}-{number}"

    @property
    def next_config_name(self) -> str:
        return self.config_name(self.config_count + 1)

    def spec(self) -> ExperimentSpec:
        before = self.before.config_name if self.before is not None else ""
        made = (self.config_name(number) for number in range(1, self.config_count + 1))
        return ExperimentSpec(
            status=self.status,
            starts=self.starts,
            ends=self.ends,
            wanted=str(self.config.get("EndpointConfigName", before)),
            begun=self.begun,
            own=frozenset((before, *made)),
            end_status=self.end_status,
            end_reason=self.status_reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChange:
    """What an update makes of an experiment."""

    request: Mapping[str, Any]
    window: tuple[float, float]  #: start and end, wall s
    config: Mapping[str, Any] | None = None  #: what the endpoint is to have; None: what it has


class EndpointHasExperiment(CallerError):
    """An endpoint has one experiment at a time."""

    def __init__(self, endpoint: str, experiment: str) -> None:
        super().__init__(
            "endpoint-has-experiment",
            f'Endpoint "{endpoint}" has inference experiment "{experiment}" already.',
            hint="Stop it first, or wait for its end.",
            status=409,
        )


class ExperimentConflict(CallerError):
    """The experiment's status does not allow the call."""

    def __init__(self, name: str, status: str, allowed: Sequence[str]) -> None:
        super().__init__(
            "experiment-conflict",
            f'Inference experiment "{name}" is {status}; this call needs one that is'
            f" {' or '.join(allowed)}.",
            hint="DescribeInferenceExperiment shows its status.",
            status=409,
        )
