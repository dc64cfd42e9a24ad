"""JSON is read without the garbage collector, which is left as it was found."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import orjson
import pytest

from penstock.wire.plain_json import loads, without_collector


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.enable()
    yield
    if enabled:
        gc.enable()


def test_values_are_those_of_the_text() -> None:
    assert loads(b'{"a": [1, 2.5, null, "x"]}') == {"a": [1, 2.5, None, "x"]}
    assert loads(memoryview(b"[[]]")) == [[]]


def test_the_collector_rests_meanwhile_and_runs_again_afterwards() -> None:
    with without_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    loads(b"[]")
    assert gc.isenabled()


def test_what_can_not_be_read_leaves_the_collector_running() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(b"[")
    assert gc.isenabled()


def test_who_has_stopped_the_collector_finds_it_stopped() -> None:
    gc.disable()
    with without_collector():
        assert not gc.isenabled()
    assert not gc.isenabled()
    loads(b"[]")
    assert not gc.isenabled()


def test_the_collector_walks_the_lists_of_a_long_text_once_at_most() -> None:
    """Afterwards, and not with every few hundred of them."""
    collections: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    data = b"[" + b",".join([b"[]"] * 100_000) + b"]"
    gc.callbacks.append(note)
    try:
        gc.collect()
        collections.clear()
        value = loads(data)
        count = collections.count("start")
    finally:
        gc.callbacks.remove(note)
    assert len(value) == 100_000
    assert count <= 1
