"""What a `core.pipeline.Pipeline` wants done, in the order in which it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.core.pipeline.spec import PipelineEvent


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a call; answer with `piece`, and once with `done` or `failed`."""

    call: int
    step: str
    piece: Any  #: of the step that it follows, where each piece has its call; else None
    reason: str  #: needs-met | source-began | piece


@dataclass(frozen=True, slots=True)
class Feed:
    call: int
    piece: Any
    reason: str = "piece"


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """No more pieces come for this call."""

    call: int
    reason: str  #: how the source ended: done | fell-back


@dataclass(frozen=True, slots=True)
class Stop:
    """Break the call off; nothing that it says is heard any more."""

    call: int
    reason: str  #: deadline-passed | pipeline-failed | cancelled


@dataclass(frozen=True, slots=True)
class FellBack:
    """The call's result is the fallback's; its events follow as `Emit`. `call` 0: none began."""

    step: str
    call: int
    reason: str  #: deadline-passed, or what `failed` was told


@dataclass(frozen=True, slots=True)
class Emit:
    step: str
    event: PipelineEvent
    reason: str  #: ready | anchor-passed | anchor-over | anchors-crossed, or the fallback's


@dataclass(frozen=True, slots=True)
class Done:
    reason: str = "all-steps-ended"


@dataclass(frozen=True, slots=True)
class FailPipeline:
    step: str
    reason: str  #: deadline-passed, or what `failed` was told


Action = Start | Feed | FeedEnd | Stop | FellBack | Emit | Done | FailPipeline
