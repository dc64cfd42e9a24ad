"""What an inference component should be: a model, what a copy of it takes, and how many copies.

A specification has a number, its revision. The copies of a revision bear a name of their own, so
that two revisions of a component are two things to whoever places, loads and counts copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.wish import SPREAD, ComponentCopiesSpec, CopySpec

_SEPARATOR = "/"  #: no name of SageMaker's has one


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRevision:
    """One specification of a component."""

    number: int  #: from 1; grows with each UpdateInferenceComponent that gives a specification
    model: ModelSource
    need: CopySpec
    strategy: str = SPREAD
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    batch: int = 0  #: copies of the revision before that this one replaces at once; 0 = all
    batch_wait_s: float = 0.0  #: from the last copy of a batch to the next batch
    base: str = ""  #: an adapter's: the component whose copies it is loaded into


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """The recorded wish: `active` serves, `target` is on its way to replace it."""

    name: str
    variant: str
    status: str  #: as an endpoint's
    copies: int
    active: ComponentRevision
    target: ComponentRevision | None = None

    @property
    def base(self) -> str:
        """The component whose copies an adapter is loaded into; "" of one that is no adapter."""
        return self.active.base

    def revisions(self) -> tuple[ComponentRevision, ...]:
        return (self.active,) if self.target is None else (self.active, self.target)


def copies_name(component: str, revision: int) -> str:
    """What the copies of a revision are called."""
    return f"{component}{_SEPARATOR}{revision}"


def component_of(name: str) -> str:
    """The component that copies of that name belong to; "" for a variant's own model."""
    return name.rpartition(_SEPARATOR)[0]


def copies_wish(
    component: ComponentSpec, revision: ComponentRevision, copies: int
) -> ComponentCopiesSpec:
    return ComponentCopiesSpec(
        name=copies_name(component.name, revision.number),
        model=revision.model,
        copies=copies,
        need=revision.need,
        strategy=revision.strategy,
        download_timeout_s=revision.download_timeout_s,
        startup_timeout_s=revision.startup_timeout_s,
        component=component.name,
    )
