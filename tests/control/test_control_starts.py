"""How soon a copy can be there, by what the control plane has seen of its starts."""

from __future__ import annotations

from typing import Any

from penstock.control.entries import CopyEntry, InstanceEntry
from penstock.control.ledger import EndpointLedger
from penstock.control.starts import note_ready, ready_in_s
from penstock.core.attempts import ReconcileSpec
from penstock.core.deployment import ModelSource
from penstock.core.endpoint_state import LOADING, LOST, READY, RUNNING, STARTING, EndpointDesired
from penstock.core.wish import ComponentWish
from penstock.fleet.base import InstanceType

KIND = InstanceType(name="ml.local.small", cores=1.0, memory_bytes=1 << 30)


def ledger() -> EndpointLedger:
    return EndpointLedger(EndpointDesired(endpoint="shop", status="InService"), ReconcileSpec())


def instance(
    book: EndpointLedger, name: str, *, asked_at: float, running_at: float = 0.0
) -> InstanceEntry:
    entry = InstanceEntry(
        instance_id=name, variant="all", generation=1, ordinal=0, kind=KIND,
        phase=RUNNING if running_at else STARTING, since=None,
        asked_at=asked_at, running_at=running_at,
    )  # fmt: skip
    book.instances[name] = entry
    return entry


def copy(
    book: EndpointLedger, on: str, *, asked_at: float, phase: str = LOADING, of: str = "all"
) -> CopyEntry:
    number = len(book.copies) + 1
    wish = ComponentWish(name=of, model=ModelSource(model_name="m"), copies=1)
    entry = CopyEntry(
        copy=number, instance_id=on, variant="all", generation=1, component=wish, ordinal=0,
        phase=phase, since=None, asked_at=asked_at,
    )  # fmt: skip
    book.copies[number] = entry
    return entry


def ready(book: EndpointLedger, entry: InstanceEntry, one: CopyEntry, now: float) -> None:
    note_ready(book, entry, one, now)
    one.phase = READY


def forget(book: EndpointLedger) -> None:
    book.instances.clear()
    book.copies.clear()


def seen(**asked: Any) -> EndpointLedger:
    """A ledger that has seen one copy start, and has none now."""
    book = ledger()
    entry = instance(book, "i", asked_at=0.0, running_at=2.0)
    ready(book, entry, copy(book, "i", **({"asked_at": 2.0} | asked)), 5.0)
    forget(book)
    return book


def test_a_copy_that_brought_its_instance_along_took_both_starts() -> None:
    assert ready_in_s(seen(), "all", "", 100.0) == 5.0


def test_a_copy_that_found_its_instance_waiting_took_its_own_load_only() -> None:
    assert ready_in_s(seen(asked_at=4.0), "all", "", 100.0) == 1.0


def test_what_is_on_its_way_is_nearer() -> None:
    book = seen()
    instance(book, "j", asked_at=99.0)
    assert ready_in_s(book, "all", "", 100.0) == 4.0
    instance(book, "j", asked_at=99.0, running_at=100.0)
    copy(book, "j", asked_at=100.0)
    assert ready_in_s(book, "all", "", 101.0) == 3.0


def test_components_are_told_apart_and_a_new_revision_is_the_same_one() -> None:
    book = seen(of="chat/1")
    assert ready_in_s(book, "all", "chat", 100.0) == 5.0
    assert ready_in_s(book, "all", "search", 100.0) is None
    assert ready_in_s(book, "all", "", 100.0) is None


def test_nothing_is_known_of_a_copy_that_its_instance_brings_back() -> None:
    book = seen()
    instance(book, "j", asked_at=90.0, running_at=91.0)
    copy(book, "j", asked_at=91.0, phase=LOST)
    assert ready_in_s(book, "all", "", 100.0) is None
