"""`control/instances/copy_operations.py`: what an instance is told of a copy, and what it makes of
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.control.instances.copy_operations import load_request
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.core.deployment.capacity_spec import WHOLE_INSTANCE, ComponentCopiesSpec, CopySpec
from penstock.core.deployment.deployment import ModelSource
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType
from penstock.instance.loading.load import LoadCall
from penstock.instance.settings import InstanceSettings

GIB = 2**30
KIND = InstanceType(
    name="ml.local.large",
    resources=ComputeResources(cores=4.0, memory_bytes=4 * GIB, accelerators=2),
)


def told(need: CopySpec, **of_model: Any) -> LoadCall:
    """The instance's reading of the request."""
    entry = InstanceEntry(
        instance_id="i-1", variant="all", generation=1, ordinal=0, kind=KIND, phase="running",
        since=None,
    )  # fmt: skip
    model = ModelSource(model_name="m", uri="file:///m", **of_model)
    copy = CopyEntry(
        copy=1, instance_id="i-1", variant="all", generation=1, ordinal=0, phase="loading",
        since=None, component=ComponentCopiesSpec(name="chat/1", model=model, copies=1, need=need),
    )  # fmt: skip
    settings = InstanceSettings(
        instance_id="i-1", address="unix:/x", cache_dir=Path("/c"), cores=4.0,
        memory_bytes=4 * GIB, accelerators=2,
    )  # fmt: skip
    return LoadCall.from_dict(load_request("shop", entry, copy), settings)


def test_who_made_the_model_may_vouch_for_its_pickles_but_not_for_a_prefix() -> None:
    vouches = (("PENSTOCK_TRUST_ARTIFACT", "true"),)
    assert told(WHOLE_INSTANCE).source.trusted is False
    assert told(WHOLE_INSTANCE, environment=vouches).source.trusted is True
    assert told(WHOLE_INSTANCE, environment=vouches, multi_model=True).source.trusted is False


def test_each_of_several_containers_has_a_source_of_its_own() -> None:
    vouches = (("PENSTOCK_TRUST_ARTIFACT", "true"),)
    parts = (
        ModelSource(model_name="m", hostname="a", uri="file:///a", environment=vouches),
        ModelSource(model_name="m", hostname="b", image="reg.io/b", image_id="sha256:b"),
    )
    call = told(WHOLE_INSTANCE, containers=parts, direct=True)
    assert call.direct
    assert [(one.hostname, one.source.uri, one.source.image_id) for one in call.containers] == [
        ("a", "file:///a", ""), ("b", "", "sha256:b"),
    ]  # fmt: skip
    assert [one.source.trusted for one in call.containers] == [True, False]
    assert call.containers[0].environment == dict(vouches)


@pytest.mark.parametrize(
    ("need", "cores", "memory_gib", "accelerators"),
    [
        (WHOLE_INSTANCE, 4.0, 4, 2),
        (CopySpec(resources=ComputeResources(memory_bytes=GIB)), 4.0, 4, 0),
        (CopySpec(resources=ComputeResources(cores=0.5, accelerators=1)), 0.5, 4, 1),
        (
            CopySpec(resources=ComputeResources(memory_bytes=GIB), memory_bytes_max=2 * GIB),
            4.0,
            2,
            0,
        ),
        (
            CopySpec(resources=ComputeResources(memory_bytes=GIB), memory_bytes_max=9 * GIB),
            4.0,
            4,
            0,
        ),
    ],
)
def test_a_copy_is_told_what_it_asked_for_and_of_the_rest_what_its_instance_has(
    need: CopySpec, cores: float, memory_gib: int, accelerators: int
) -> None:
    """Accelerators are given to those that ask; a maximum bounds what a model sizes itself by."""
    call = told(need)
    assert (call.cores, call.memory_bytes_max, call.accelerators) == (
        cores, memory_gib * GIB, accelerators,
    )  # fmt: skip
