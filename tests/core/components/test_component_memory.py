"""`core/endpoint/component_memory.py`: what a copy may take at most."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_components import chat, revision

from penstock.core.deployment.capacity_spec import ComponentCopiesSpec, CopySpec, copies_spec
from penstock.core.endpoint.component_memory import after_load, before_load
from penstock.core.machine.room import ESTIMATED, MEASURED
from penstock.core.models.memory_need import MemoryEstimate
from penstock.core.resources import ComputeResources

MIB = 2**20


def desired(max_mib: int) -> ComponentCopiesSpec:
    made = replace(
        revision(),
        need=CopySpec(resources=ComputeResources(memory_bytes=MIB), memory_bytes_max=max_mib * MIB),
    )
    return copies_spec(chat(1), made, 1)


def test_without_a_maximum_a_copy_may_take_what_its_instance_has() -> None:
    assert before_load(desired(0), MemoryEstimate(memory_bytes=9 << 40, basis=MEASURED)) == ""
    assert after_load(desired(0), 9 << 40) == ""


def test_an_estimate_ends_nothing_but_what_no_less_can_hold_does() -> None:
    estimate = MemoryEstimate(memory_bytes=900 * MIB, least_bytes=200 * MIB, basis=ESTIMATED)
    assert before_load(desired(200), estimate) == ""
    assert before_load(desired(199), estimate) == (
        "a copy of chat needs at least 200 MB of memory, and MaxMemoryRequiredInMb is 199."
        " Raise it, or choose a smaller model."
    )


def test_what_was_measured_counts_before_and_after_a_load() -> None:
    measured = MemoryEstimate(memory_bytes=300 * MIB, basis=MEASURED)
    assert before_load(desired(300), measured) == ""
    assert "needs, as was measured before, 300 MB" in before_load(desired(299), measured)
    assert after_load(desired(300), 300 * MIB) == ""
    assert "has taken 301 MB of memory" in after_load(desired(300), 300 * MIB + 1)
