"""What a variant should have: instances, and copies of components on them.

An instance is capacity; a copy is a loaded model on an instance. A component is a model with a
number of copies, and with what one copy takes of its instance. A variant with a model of its own
(given to CreateEndpointConfig) is a special case that only `capacity_specs` makes: one component of
the variant's name, with as many copies as instances, each alone on its instance. A variant without
a model has the inference components that were created on it.

What an inference component should be: a model, what a copy of it takes, and how many copies.

A specification has a number, its revision. The copies of each revision have a name of their own.
So for placement, loading and counting, two revisions of a component are two different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.resources import NO_RESOURCES, ComputeResources
from penstock.core.rollout.agreement import AgreementSpec

# SageMaker's names (InferenceComponentSchedulingConfig).
#: spread copies evenly over the instances, so that a lost instance takes few copies
SPREAD = "SPREAD"
BINPACK = "BINPACK"  #: fill few instances, so that others stay empty
PLACEMENT_STRATEGIES = (SPREAD, BINPACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpec:
    """What one copy takes of its instance; it shares every resource that it does not ask for."""

    resources: ComputeResources = NO_RESOURCES
    whole_instance: bool = False  #: it is alone on an instance, and starts and ends with it
    #: a model that needs more is not loaded; 0 = the instance's memory is the limit
    memory_bytes_max: int = 0


WHOLE_INSTANCE = CopySpec(whole_instance=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentCopiesSpec:
    """A model and its copies."""

    name: str  #: unique among the components of its variant
    model: ModelSource
    copies: int
    need: CopySpec = WHOLE_INSTANCE
    strategy: str = SPREAD
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    #: name of the inference component that requests give; "" = the variant's own model
    component: str = ""

    @property
    def told(self) -> str:
        """Its name in messages to people."""
        return self.component or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantCapacitySpec:
    """One variant of one generation."""

    name: str
    generation: int
    instances: int
    components: tuple[ComponentCopiesSpec, ...]
    #: instance types in the order in which they are filled; empty: one type
    pools: tuple[str, ...] = ()

    def component(self, name: str) -> ComponentCopiesSpec:
        """Raises `KeyError` where there is none."""
        for one in self.components:
            if one.name == name:
                return one
        raise KeyError(name)


def capacity_specs(
    deployment: DeploymentSpec,
    components: Mapping[str, tuple[ComponentCopiesSpec, ...]] | None = None,
) -> tuple[VariantCapacitySpec, ...]:
    """What the variants of a generation should have, in their order; shadow variants come last.

    `components`: by variant, for those variants that take inference components.
    """
    found = components or {}
    return tuple(
        _of_components(deployment.generation, one, found.get(one.name, ()))
        if one.model is None
        else _single_model(deployment.generation, one)
        for one in deployment.hosted
    )


def raised(deployment: DeploymentSpec, former: DeploymentSpec | None) -> frozenset[tuple[str, str]]:
    """(variant, component) of every count that is higher than before; "" for instances.

    Inference components are not included: their counts are not part of a deployment. Nor are shadow
    variants: nothing ever waits for them.
    """
    before = dict(_counts(former)) if former is not None else {}
    return frozenset(key for key, count in _counts(deployment) if count > before.get(key, 0))


def _counts(deployment: DeploymentSpec) -> Iterator[tuple[tuple[str, str], int]]:
    for desired in capacity_specs(replace(deployment, shadows=())):
        yield (desired.name, ""), desired.instances
        for one in desired.components:
            yield (desired.name, one.name), one.copies


def _of_components(
    generation: int, variant: VariantSpec, components: tuple[ComponentCopiesSpec, ...]
) -> VariantCapacitySpec:
    return VariantCapacitySpec(
        name=variant.name,
        generation=generation,
        instances=variant.instance_count,
        components=components,
        pools=_types(variant),
    )


def _single_model(generation: int, variant: VariantSpec) -> VariantCapacitySpec:
    assert variant.model is not None, "who takes components has no model"
    return VariantCapacitySpec(
        name=variant.name,
        generation=generation,
        instances=variant.instance_count,
        components=(
            ComponentCopiesSpec(
                name=variant.name,
                model=variant.model,
                copies=variant.instance_count,
                download_timeout_s=variant.download_timeout_s,
                startup_timeout_s=variant.startup_timeout_s,
            ),
        ),
        pools=_types(variant),
    )


def _types(variant: VariantSpec) -> tuple[str, ...]:
    return tuple(one.instance_type for one in variant.pools)


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
    batch_back: int = 0  #: the same as `batch` on the way back, if it goes back; 0 = all
    alarms: tuple[str, ...] = ()  #: names; one in ALARM while it is rolled out sends it back
    #: wall clock s at which it goes back if it is not settled; 0 = no limit
    expires: float = 0.0
    goes_back: str = ""  #: why it replaces the revision that was to replace it; "" = it does not
    base: str = ""  #: for an adapter: the component whose copies it is loaded into; "" = no adapter
    agreement: AgreementSpec | None = None  #: what its answers are held to; None: not compared
    #: tells the rollout of it from the component's others: wall clock ms when it began
    rollout: int = 0
    order: str = ""  #: an operator's for its rollout: one of `ORDERS` but RESUME; "" = none
    #: alarms that were in ALARM before it had a copy, and have been ever since; None: it had none
    rang: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShadowSpec:
    """Whose requests a component gets copies of, which no caller waits for."""

    source: str  #: the component that answers them; names are compared without case
    share: float = 1.0  #: of its requests, above 0 and at most 1

    def is_of(self, name: str) -> bool:
        return self.source.lower() == name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """The recorded component: `active` serves, `target` is being rolled out to replace it."""

    name: str
    variant: str
    status: str  #: the same values as an endpoint's status
    copies: int
    active: ComponentRevision
    target: ComponentRevision | None = None
    shadow: ShadowSpec | None = None  #: None: it answers callers

    @property
    def base(self) -> str:
        """The component whose copies the adapter is loaded into; "" where it is no adapter."""
        return self.active.base

    @property
    def compared(self) -> ComponentRevision | None:
        """The revision that is being rolled out, where it is held to agree with the active one."""
        one = self.target
        if one is None or one.agreement is None or not one.batch or one.goes_back:
            return None
        return one

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
