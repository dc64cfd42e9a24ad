"""What users of other systems complain of, and must not happen here.

The numbers are those of issues of KServe's ModelMesh.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Load, Prepare, RefuseParked, Unload


def test_455_loading_one_model_does_not_evict_many() -> None:
    """Thirty small models were unused for longer than a large one that alone is enough."""
    host = Host(100, residency_s_min=10.0)
    for at in range(30):
        host.bring(f"small-{at:02}", 1, 0.0 + at)
    host.bring("large", 70, 40.0)
    assert host.ask("new", 60, 100.0) == [Unload("large", "least-recently-used", "new")]
    assert host.unloaded("large", 101.0) == [Load("new", "room-made")]


def test_455_a_model_that_needs_little_room_evicts_one_small_model() -> None:
    host = Host(100)
    host.bring("large", 80, 0.0)
    host.bring("small", 20, 1.0, load_s=0.1)
    assert host.ask("new", 10, 100.0) == [Unload("large", "least-recently-used", "new")]
    host.abandoned("new", 100.0)
    host.unloaded("large", 100.0)
    assert host.loaded_models == ["small"]


def test_455_a_load_evicts_no_more_than_it_needs() -> None:
    host = Host(100)
    for at in range(10):
        host.bring(f"m-{at}", 10, float(at))
    assert host.ask("new", 25, 100.0) == [
        Unload("m-0", "least-recently-used", "new"),
        Unload("m-1", "least-recently-used", "new"),
        Unload("m-2", "least-recently-used", "new"),
    ]


def test_455_a_model_too_large_for_the_budget_evicts_nobody() -> None:
    host = Host(100)
    for at in range(10):
        host.bring(f"m-{at}", 10, float(at))
    assert [type(action) for action in host.ask("new", 101, 100.0)] == [RefuseParked]
    assert len(host.loaded_models) == 10


def test_511_a_size_that_was_measured_replaces_the_guess() -> None:
    """Guessed at 50 each, two would fit; they take 10, and ten fit."""
    host = Host(100)
    for at in range(6):
        model = f"m-{at}"
        assert host.ask(model, 50, float(at)) == [Load(model, "first-call")]
        assert host.loaded(model, 10, float(at)) == [Admit(model, "loaded")]
        host.idle(model, float(at))
    assert len(host.loaded_models) == 6


def test_511_it_can_be_said_why_a_model_was_unloaded_when_for_whom_and_what_it_costs() -> None:
    host = Host(100)
    host.bring("a", 60, 0.0, load_s=3.0)
    host.ask("b", 60, 100.0)
    host.unloaded("a", 101.0)
    host.loaded("b", 60, 105.0, load_s=4.0)
    told = host.explain("a", 110.0)
    assert told["state"] == "unloaded"
    assert told["unloaded_because"] == "least-recently-used"
    assert told["story"] == [
        {"ago_s": 110.0, "what": "prepare", "why": "first-call"},
        {"ago_s": 110.0, "what": "load", "why": "first-call"},
        {"ago_s": 110.0, "what": "loaded", "why": "first-call", "cost_s": 3.0},
        {
            "ago_s": 10.0, "what": "unload", "why": "least-recently-used", "made_room_for": "b",
            "cost_s": 3.0,
        },
        {"ago_s": 9.0, "what": "unloaded", "why": "least-recently-used"},
    ]  # fmt: skip


def test_82_a_shortage_of_accelerator_memory_evicts_nobody_who_holds_none() -> None:
    host = Host(1000, 100)
    host.bring("host-only", bytes_(100, 0), 0.0)
    host.bring("on-accelerator", bytes_(10, 60), 1.0)
    assert host.ask("new", bytes_(10, 60), 100.0) == [
        Unload("on-accelerator", "least-recently-used", "new")
    ]


def test_82_plenty_of_host_memory_is_no_accelerator_memory() -> None:
    host = Host(1000, 0)
    (refused,) = host.ask("new", bytes_(10, 1), 0.0)
    assert isinstance(refused, RefuseParked)
    assert refused.reason == "larger-than-budget"


def test_82_both_dimensions_are_kept_at_once() -> None:
    host = Host(100, 100)
    host.bring("a", bytes_(50, 10), 0.0)
    host.bring("b", bytes_(10, 50), 1.0)
    assert host.ask("c", bytes_(60, 60), 100.0) == [
        Unload("a", "least-recently-used", "c"),
        Unload("b", "least-recently-used", "c"),
    ]


@pytest.mark.parametrize("residency_s_min", [10.0, None])
def test_341_a_model_used_seconds_ago_stays_while_another_can_go(
    residency_s_min: float | None,
) -> None:
    host = Host(100, residency_s_min=residency_s_min)
    host.bring("used", 50, 0.0)
    host.bring("unused", 50, 1.0, load_s=100.0)  # dearer to reload, and still
    host.called("used", 98.0)
    assert host.ask("new", 50, 100.0) == [Unload("unused", "least-recently-used", "new")]


@pytest.mark.parametrize(("residency_s_min", "load_s"), [(10.0, 1.0), (None, 3.5)])
def test_341_models_called_by_turns_do_not_evict_each_other_without_end(
    residency_s_min: float | None, load_s: float
) -> None:
    """Three models of which two fit, each called every second: nobody loads a model per call."""
    host = Host(100, residency_s_min=residency_s_min)
    loads: Counter[str] = Counter()
    for tick in range(60):
        now = float(tick)
        due = host.deadline
        actions = host.timer(now) if due is not None and now >= due else []
        for model in ("a", "b", "c"):
            if host.machine.is_loaded(model):
                actions += host.called(model, now)
            else:
                actions += host.request(model, now)
        while actions:
            action = actions.pop(0)
            if isinstance(action, Prepare):
                actions += host.prepared(action.model, 50, now)
            elif isinstance(action, Unload):
                actions += host.unloaded(action.model, now)
            elif isinstance(action, Load):
                loads[action.model] += 1
                actions += host.loaded(action.model, 50, now, load_s)
            elif isinstance(action, Admit):
                host.began(action.model, now)
                actions += host.idle(action.model, now)
    assert loads.total() <= 2 + 60 / 10 * 2, "two at first, then at most two per minimum residency"
    assert min(loads[model] for model in "abc") >= 2, "and each of them has its turn"


def test_142_a_model_that_drains_answers_what_is_in_flight_and_is_loaded_again_for_new_calls() -> (
    None
):
    host = Host(100)
    host.bring("a", 50, 0.0)
    host.began("a", 1.0)
    host.replaced("a", 2.0)
    assert host.request("a", 3.0) == []
    assert host.idle("a", 4.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 5.0) == [Prepare("a", "called-again")]


def test_142_a_model_that_is_dismissed_is_never_loaded_and_answering_nobody() -> None:
    host = Host(100)
    host.bring("a", 50, 0.0)
    host.began("a", 1.0)
    host.dismiss("a", 2.0)
    assert host.request("a", 3.0) == [Admit("a", "still-loaded")]


def test_341_one_that_was_used_seconds_ago_does_not_go_instead_of_many_unused() -> None:
    host = Host(100, residency_s_min=10.0)
    for at in range(5):
        host.bring(f"unused-{at}", 10, 0.0, load_s=1.0)
    host.bring("used", 50, 1.0, load_s=0.1)
    host.called("used", 95.0)
    assert [action.model for action in host.ask("new", 50, 100.0)] == [
        f"unused-{at}" for at in range(5)
    ]
