"""Resource ids and dimensions of scalable targets, and how activities call their capacity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VARIANT: Final = "sagemaker:variant:DesiredInstanceCount"
COMPONENT: Final = "sagemaker:inference-component:DesiredCopyCount"
DIMENSIONS: Final = (VARIANT, COMPONENT)

_NAME: Final = "[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
_VARIANT_ID: Final = re.compile(f"endpoint/({_NAME})/variant/({_NAME})", re.ASCII)
_COMPONENT_ID: Final = re.compile(f"inference-component/({_NAME})", re.ASCII)

#: What an activity calls the count.
_WORDS: Final = {VARIANT: "desired instance count", COMPONENT: "desired copy count"}


@dataclass(frozen=True, slots=True)
class VariantId:
    endpoint: str
    variant: str


@dataclass(frozen=True, slots=True)
class ComponentId:
    component: str


def parse(resource_id: str, dimension: str) -> VariantId | ComponentId | None:
    """What a target names; None for what is not served, and where the two don't fit."""
    if dimension == VARIANT and (found := _VARIANT_ID.fullmatch(resource_id)):
        return VariantId(found[1], found[2])
    if dimension == COMPONENT and (found := _COMPONENT_ID.fullmatch(resource_id)):
        return ComponentId(found[1])
    return None


def words_of(dimension: str) -> str:
    """As in "Setting desired instance count to 3."."""
    return _WORDS.get(dimension, "desired capacity")
