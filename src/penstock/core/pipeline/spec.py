"""What a pipeline is: its steps, how they depend on one another, and what they may say.

Plain values, checked once when a pipeline is declared: a name that is not there, or a circle, is
told here and not while a request runs.

What a `core.pipeline.Pipeline` wants done, in the order in which it says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import CallerError


class Anchor(NamedTuple):
    """A place in what another step says."""

    step: str
    position: float = math.inf  #: in the unit that step counts in; inf: its end


class PipelineEvent(NamedTuple):
    """One thing that the stream says."""

    kind: str  #: text, product, link, image, notice, ...
    data: Any
    after: Anchor | None = None  #: it leaves no sooner than this is passed
    advance: float = 0  #: how far it takes its own step's position


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStepSpec:
    name: str
    needs: tuple[str, ...] = ()  #: steps that must have ended
    follows: str = ""  #: the step whose pieces it is handed as they come
    each: bool = False  #: one call per piece, in place of one that gets them all
    calls_max: int = 8  #: under way at once, where each piece has its call
    deadline_s: float | None = None  #: of a call; a follower's begins when its source has ended
    first_s: float | None = None  #: until a call's first piece
    fallback: tuple[PipelineEvent, ...] | None = (
        None  #: said in place of an answer; None: the step must do
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    steps: tuple[PipelineStepSpec, ...]

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        for step in self.steps:
            if names.count(step.name) > 1:
                raise _wrong(f"two steps are called {step.name!r}", "Give each its own name.")
            for other in (*step.needs, *([step.follows] if step.follows else ())):
                if other not in names:
                    raise _wrong(
                        f"step {step.name!r} takes what {other!r} makes, and no step is called so",
                        f"The steps are: {', '.join(names)}.",
                    )
            if step.each and not step.follows:
                raise _wrong(
                    f"step {step.name!r} runs for each piece of no step", "Say which it follows."
                )
            if step.calls_max < 1:
                raise _wrong(f"step {step.name!r} may make no call", "calls_max is at least 1.")
        self.in_order()

    def in_order(self) -> list[PipelineStepSpec]:
        """Every step behind those that it takes from. Raises CallerError on a circle."""
        left = list(self.steps)
        placed: dict[str, PipelineStepSpec] = {}
        while left:
            ready = [
                step
                for step in left
                if all(name in placed for name in step.needs)
                and (not step.follows or step.follows in placed)
            ]
            if not ready:
                raise _wrong(
                    f"the steps {', '.join(step.name for step in left)} wait for one another",
                    "Take one of the references out of the circle.",
                )
            placed.update((step.name, step) for step in ready)
            left = [step for step in left if step.name not in placed]
        return list(placed.values())


def _wrong(message: str, hint: str) -> CallerError:
    return CallerError("pipeline-invalid", message, hint=hint)


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
