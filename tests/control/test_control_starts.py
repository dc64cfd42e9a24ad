"""How soon a copy can be there, by what is on its way and what the fastest start took."""

from __future__ import annotations

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.capacity_spec import ComponentCopiesSpec
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import (
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    EndpointSpec,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType

KIND = InstanceType(
    name="ml.local.small", resources=ComputeResources(cores=1.0, memory_bytes=1 << 30)
)
FASTEST_S = 5.0


def ledger() -> EndpointLedger:
    return EndpointLedger(EndpointSpec(endpoint="shop", status="InService"), ReconcileSpec())


def instance(
    book: EndpointLedger, name: str, *, asked_at: float, phase: str = STARTING
) -> InstanceEntry:
    entry = InstanceEntry(
        instance_id=name, variant="all", generation=1, ordinal=0, kind=KIND,
        phase=phase, since=None, asked_at=asked_at,
    )  # fmt: skip
    book.instances[name] = entry
    return entry


def copy(
    book: EndpointLedger,
    on: InstanceEntry,
    *,
    asked_at: float,
    phase: str = LOADING,
    of: str = "all",
    came_with: InstanceEntry | None = None,
) -> None:
    number = len(book.copies) + 1
    desired = ComponentCopiesSpec(name=of, model=ModelSource(model_name="m"), copies=1)
    book.copies[number] = CopyEntry(
        copy=number, instance_id=on.instance_id, variant="all", generation=1, component=desired,
        ordinal=0, phase=phase, since=None, asked_at=asked_at, came_with=came_with,
    )  # fmt: skip


def test_where_nothing_is_on_its_way_one_is_asked_for_now() -> None:
    assert ledger().ready_in_s("all", "", FASTEST_S, now=100.0) == 5.0


def test_an_instance_that_starts_is_nearer() -> None:
    book = ledger()
    instance(book, "i", asked_at=99.0)
    assert book.ready_in_s("all", "", FASTEST_S, now=100.0) == 4.0


def test_a_copy_that_brought_its_instance_along_began_with_that() -> None:
    book = ledger()
    started = instance(book, "i", asked_at=98.0, phase=RUNNING)
    copy(book, started, asked_at=100.0, came_with=started)
    assert book.ready_in_s("all", "", FASTEST_S, now=101.0) == 2.0


def test_a_copy_that_found_its_instance_waiting_began_by_itself() -> None:
    book = ledger()
    copy(book, instance(book, "i", asked_at=0.0, phase=RUNNING), asked_at=100.0)
    assert book.ready_in_s("all", "", FASTEST_S, now=101.0) == 4.0


def test_what_is_late_is_due_now() -> None:
    book = ledger()
    instance(book, "i", asked_at=80.0)
    assert book.ready_in_s("all", "", FASTEST_S, now=100.0) == 0.0


def test_components_are_told_apart_and_a_new_revision_is_the_same_one() -> None:
    book = ledger()
    copy(book, instance(book, "i", asked_at=0.0, phase=RUNNING), asked_at=98.0, of="chat/2")
    assert book.ready_in_s("all", "chat", FASTEST_S, now=100.0) == 3.0
    assert book.ready_in_s("all", "search", FASTEST_S, now=100.0) == 5.0


def test_nothing_is_known_of_a_copy_that_its_instance_brings_back() -> None:
    for phase in (LOST, READY):
        book = ledger()
        copy(book, instance(book, "i", asked_at=0.0, phase=RUNNING), asked_at=1.0, phase=phase)
        assert book.ready_in_s("all", "", FASTEST_S, now=100.0) is None
