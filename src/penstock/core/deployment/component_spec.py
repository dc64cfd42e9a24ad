"""What an inference component should be: a model, what a copy of it takes, and how many copies.

A specification has a number, its revision. The copies of each revision have a name of their own.
So for placement, loading and counting, two revisions of a component are two different things.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import SPREAD, ComponentCopiesSpec, CopySpec
from penstock.core.deployment.deployment import ModelSource

_SEPARATOR = "/"  #: no name of SageMaker's contains it


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRevision:
    """One specification of a component."""

    number: int  #: from 1; grows with each UpdateInferenceComponent that gives a specification
    model: ModelSource
    need: CopySpec
    strategy: str = SPREAD
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    batch: int = 0  #: copies of the former revision that this one replaces at once; 0 = all
    batch_wait_s: float = 0.0  #: s from the last copy of a batch to the next batch
    base: str = ""  #: for an adapter: the component whose copies it is loaded into; "" = no adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """The recorded component: `active` serves, `target` is being rolled out to replace it."""

    name: str
    variant: str
    status: str  #: the same values as an endpoint's status
    copies: int
    active: ComponentRevision
    target: ComponentRevision | None = None

    @property
    def base(self) -> str:
        """The component whose copies the adapter is loaded into; "" where it is no adapter."""
        return self.active.base

    def revisions(self) -> tuple[ComponentRevision, ...]:
        return (self.active,) if self.target is None else (self.active, self.target)


def copies_name(component: str, revision: int) -> str:
    """The name of a revision's copies."""
    return f"{component}{_SEPARATOR}{revision}"


def component_of(name: str) -> str:
    """The component of the copies with this name; "" for a variant's own model."""
    return name.rpartition(_SEPARATOR)[0]


def copies_spec(
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
