"""What a pipeline is: its steps, how they depend on one another, and its machine's actions.

Plain values, checked once when a pipeline is declared: an unknown name or a circle is reported then
and not while a request runs. The actions of `Pipeline` are carried out in the order in which they
are returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import CallerError


class Anchor(NamedTuple):
    """A position in the output of another step."""

    step: str
    position: float = math.inf  #: in the unit that the step counts in; inf: its end


class PipelineEvent(NamedTuple):
    """One event of the output stream."""

    kind: str  #: text, product, link, image, notice, ...
    data: Any
    after: Anchor | None = None  #: it leaves only after this position is passed; None: at once
    advance: float = 0  #: how far it advances its own step's position


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStepSpec:
    name: str
    needs: tuple[str, ...] = ()  #: steps that must have ended
    follows: str = ""  #: the source: the step whose pieces it gets as they come; "" = none
    each: bool = False  #: one call per piece, instead of one call that gets them all
    calls_max: int = 8  #: calls under way at once, where each piece has its own call
    #: of a call; a follower's begins when its source has ended; None: no deadline
    deadline_s: float | None = None
    first_s: float | None = None  #: s until a call's first piece; None: no limit
    fallback: tuple[PipelineEvent, ...] | None = (
        None  #: events that replace its answer; None: the step must succeed
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
        """The steps, each after those that it depends on. Raises CallerError on a circle."""
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
    """Begin a call; report each `piece`, and then `done` or `failed` once."""

    call: int
    step: str
    piece: Any  #: piece of the source, where each piece has its call; else None
    reason: str  #: needs-met | source-began | piece


@dataclass(frozen=True, slots=True)
class Feed:
    call: int
    piece: Any
    reason: str = "piece"


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """No more pieces follow for this call."""

    call: int
    reason: str  #: how the source ended: done | fell-back


@dataclass(frozen=True, slots=True)
class Stop:
    """Abort the call; its further events are ignored."""

    call: int
    reason: str  #: deadline-passed | pipeline-failed | cancelled


@dataclass(frozen=True, slots=True)
class FellBack:
    """The fallback replaces the result; its events follow as `Emit`. `call` 0: none began."""

    step: str
    call: int
    reason: str  #: deadline-passed, or the reason given to `failed`


@dataclass(frozen=True, slots=True)
class Emit:
    step: str
    event: PipelineEvent
    reason: str  #: ready | anchor-passed | anchor-over | anchors-crossed, or the fallback's reason


@dataclass(frozen=True, slots=True)
class Done:
    reason: str = "all-steps-ended"


@dataclass(frozen=True, slots=True)
class FailPipeline:
    step: str
    reason: str  #: deadline-passed, or the reason given to `failed`


Action = Start | Feed | FeedEnd | Stop | FellBack | Emit | Done | FailPipeline
