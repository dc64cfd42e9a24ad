"""Eviction by value: calls, the time of a reload, and size; and when it is left for LRU."""

from __future__ import annotations

from tests.core.residency.residency_words import Host

from penstock.core.residency import Load, Prepare, Unload


def test_the_model_that_is_called_less_goes_though_it_was_called_last() -> None:
    host = Host()
    host.follow_value()
    host.bring("often", 50, 0.0)
    for at in (3.0, 9.0, 14.0, 40.0, 55.0):
        host.called("often", at)
    host.bring("once", 50, 60.0)
    assert host.ask("new", 50, 100.0) == [Unload("once", "lowest-value", "new")]


def test_the_model_that_is_cheap_to_reload_goes() -> None:
    host = Host()
    host.follow_value()
    host.bring("cheap", 50, 1.0, load_s=0.5)
    host.bring("dear", 50, 1.0, load_s=5.0)
    assert host.ask("new", 50, 100.0) == [Unload("cheap", "lowest-value", "new")]


def test_the_time_to_fetch_an_artifact_is_part_of_a_reload() -> None:
    host = Host()
    host.follow_value()
    for model, prepare_s in (("near", 0.0), ("far", 9.0)):
        host.request(model, 1.0)
        host.prepared(model, 50, 1.0, prepare_s=prepare_s)
        host.loaded(model, 50, 1.0, load_s=1.0)
        host.idle(model, 1.0)
    assert host.ask("new", 50, 100.0) == [Unload("near", "lowest-value", "new")]


def test_the_larger_of_two_models_that_are_alike_otherwise_goes() -> None:
    host = Host()
    host.follow_value()
    host.bring("small", 20, 1.0)
    host.bring("large", 80, 1.0)
    assert host.ask("new", 60, 100.0) == [Unload("large", "lowest-value", "new")]


def test_the_rate_of_a_model_that_nobody_calls_any_more_falls() -> None:
    host = Host()
    host.follow_value()
    host.bring("yesterday", 50, 0.0)
    for at in range(40):
        host.called("yesterday", 2.0 + 3 * at + at % 3)
    host.bring("today", 50, 10_000.0)
    host.called("today", 10_300.0)
    assert host.ask("new", 50, 10_400.0) == [Unload("yesterday", "lowest-value", "new")]


def test_of_a_round_the_one_called_last_goes_for_it_is_needed_last() -> None:
    """LRU would unload `b`, whose turn is next."""
    host = Host()
    host.follow_value()
    for start in (0.0, 300.0, 600.0, 900.0):
        for at, model in enumerate("abc"):
            if start:
                host.called(model, start + 100.0 * at)
            else:
                host.bring(model, 33, 100.0 * at)
    assert host.ask("new", 20, 1150.0) == [Unload("c", "lowest-value", "new")]


def test_a_model_called_a_moment_ago_goes_only_where_others_are_not_enough() -> None:
    host = Host(residency_s_min=10.0)
    host.follow_value()
    host.bring("dear", 50, 0.0, load_s=100.0)
    host.bring("cheap", 50, 0.0, load_s=0.1)
    host.called("cheap", 95.0)
    assert host.ask("new", 50, 100.0) == [Unload("dear", "lowest-value", "new")]
    host.abandoned("new", 100.0)
    host.unloaded("dear", 100.0)
    assert host.ask("newer", 60, 101.0) == [Unload("cheap", "lowest-value", "newer")]


def test_ten_seconds_after_its_call_a_model_is_like_any_other() -> None:
    host = Host(residency_s_min=10.0)
    host.follow_value()
    host.bring("dear", 50, 0.0, load_s=100.0)
    host.bring("cheap", 50, 0.0, load_s=0.1)
    host.called("cheap", 90.0)
    assert host.ask("new", 50, 100.0) == [Unload("cheap", "lowest-value", "new")]


def test_lru_is_lru_whatever_value_says() -> None:
    host = Host(policy="LRU")
    host.follow_value()
    host.bring("often", 50, 0.0, load_s=100.0)
    for at in (3.0, 9.0, 14.0):
        host.called("often", at)
    host.bring("once", 50, 60.0)
    assert host.ask("new", 50, 100.0) == [Unload("often", "least-recently-used", "new")]


def test_plain_lru_takes_the_oldest_even_in_vain() -> None:
    host = Host(policy="LRU")
    host.bring("small", 10, 0.0)
    host.bring("large", 90, 1.0)
    assert host.ask("new", 90, 100.0) == [
        Unload("small", "least-recently-used", "new"),
        Unload("large", "least-recently-used", "new"),
    ]


def test_a_host_finds_out_by_itself_that_value_does_better() -> None:
    """Rounds over six models of which five fit: LRU would miss each call."""
    host = Host(50, prefetch=False)
    misses = 0
    for at in range(120):
        model, now = f"m-{at % 6}", 60.0 * at
        if host.machine.is_loaded(model):
            host.called(model, now)
            continue
        misses += 1
        host.swap(model, 10, now)
    assert host.machine.snapshot()["eviction"]["follows"] == "value"
    # After 40 calls every sixth miss or fewer; before, each.
    assert misses < 60


# guesses


def regular(host: Host, model: str, size: int = 10) -> None:
    """Called every 600 s, at 0, 600, 1200 and 1800."""
    host.bring(model, size, 0.0, load_s=2.0)
    for at in (600.0, 1200.0, 1800.0):
        host.called(model, at)


def test_a_regular_call_is_awaited_with_the_model_loaded_into_free_room() -> None:
    host = Host()
    regular(host, "a")
    host.dismiss("a", 1900.0)
    host.unloaded("a", 1900.0)
    assert host.deadline is None, "dismissed is dismissed"
    assert host.request("a", 2400.0) == [Prepare("a", "called-again")]
    host.prepared("a", 10, 2400.0)
    host.loaded("a", 10, 2402.0, load_s=2.0)
    host.idle("a", 2402.0)
    host.bring("b", 80, 2410.0)
    host.swap("c", 95, 2420.0)
    # The next call is due at 3000; twice a load of 2 s, and 5 s, before that:
    assert host.deadline == 2991.0
    host.dismiss("c", 2500.0)
    host.unloaded("c", 2500.0)
    assert host.timer(2990.9) == []
    assert host.timer(2991.0) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2991.0) == [Load("a", "prefetch")]
    assert host.loaded("a", 10, 2993.0, load_s=2.0) == []
    assert host.machine.is_loaded("a")
    assert host.deadline is None


def evicted(host: Host, model: str, size: int = 10) -> None:
    """A regular model that a larger one drove out at 1900; its call is due at 2400."""
    regular(host, model, size)
    assert host.swap("large", 95, 1900.0) == [model]
    assert host.deadline == 2391.0


def test_while_lru_is_followed_a_guess_evicts_nobody_and_fetches_nothing_in_vain() -> None:
    host = Host()
    evicted(host, "a")
    assert host.timer(2391.0) == []
    assert host.machine.snapshot()["queue"] == []


def test_a_guess_whose_room_is_gone_when_it_is_prepared_evicts_nobody() -> None:
    host = Host()
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    host.measured(2391.5, grown=95)
    assert host.prepared("a", 10, 2392.0) == []
    assert host.machine.snapshot()["queue"] == []


def test_by_value_a_guess_evicts_what_is_worth_far_less() -> None:
    host = Host()
    evicted(host, "a")
    host.follow_value()
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2391.0) == [Unload("large", "lowest-value", "a")]
    assert host.unloaded("large", 2391.0) == [Load("a", "room-made")]


def test_by_value_a_guess_does_not_evict_what_is_worth_nearly_as_much() -> None:
    host = Host()
    evicted(host, "a")
    host.follow_value()
    for at in (2000.0, 2030.0, 2075.0, 2200.0, 2300.0, 2350.0, 2380.0):
        host.called("large", at)
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2391.0) == []


def test_a_guess_waits_behind_everybody_and_leaves_a_place_free() -> None:
    host = Host(loads_max=2)
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    host.request("b", 2391.0)
    assert host.timer(2391.0) == []
    assert host.prepared("b", 10, 2391.5) == [Load("b", "first-call")]
    host.request("c", 2391.6)
    host.abandoned("c", 2391.6)
    assert host.prepared("c", 10, 2391.7) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2392.0) == [], "b loads: the other place is kept for callers"
    assert host.loaded("b", 10, 2393.0)[1:] == [Load("a", "prefetch")]


def test_a_guess_takes_no_room_that_a_caller_waits_for() -> None:
    host = Host(loads_max=3)
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    host.bring("busy", 50, 2100.0)
    host.began("busy", 2101.0)
    assert host.ask("big", 60, 2390.0) == []
    assert host.timer(2391.0) == []
    host.abandoned("big", 2391.5)
    assert host.explain("a")["state"] == "preparing"


def test_a_call_makes_a_guess_a_call() -> None:
    host = Host()
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    host.timer(2391.0)
    assert host.request("a", 2391.5) == []
    assert host.prepared("a", 10, 2392.0) == [Load("a", "called-again")]


def test_without_prefetch_nothing_is_foreseen() -> None:
    host = Host(prefetch=False)
    regular(host, "a")
    assert host.swap("large", 95, 1900.0) == ["a"]
    assert host.deadline is None


def test_a_call_that_is_too_near_is_not_guessed_for_who_was_just_evicted() -> None:
    host = Host()
    regular(host, "a")
    assert host.swap("large", 95, 2392.0) == ["a"]
    assert host.deadline is None


def test_a_model_that_fails_is_not_guessed_at() -> None:
    host = Host(failure_s=1000.0, failure_s_max=1000.0)
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    host.request("a", 2100.0)
    host.failed("a", 2100.0)
    assert host.timer(2391.0) == []
    assert host.deadline is None


def test_a_guess_does_not_evict_who_was_just_loaded() -> None:
    host = Host(residency_s_min=100.0)
    host.follow_value()
    regular(host, "a")
    assert host.swap("large", 95, 1900.0) == ["a"]
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    host.bring("young", 95, 2390.0, load_s=1e-3)
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2391.0) == []
    assert host.loaded_models == ["young"]


def test_a_model_that_was_forgotten_is_not_guessed_at() -> None:
    host = Host()
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    del host.machine._table.models["a"]
    assert host.timer(2391.0) == []


def test_with_one_place_for_loads_a_guess_takes_it_while_nobody_else_does() -> None:
    host = Host(loads_max=1)
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    assert host.prepared("a", 10, 2391.0) == [Load("a", "prefetch")]


def test_a_guess_that_finds_its_room_taken_while_lru_is_followed_goes_home() -> None:
    host = Host(loads_max=2)
    evicted(host, "a")
    host.dismiss("large", 2000.0)
    host.unloaded("large", 2000.0)
    assert host.timer(2391.0) == [Prepare("a", "prefetch")]
    host.bring("other", 95, 2392.0)
    assert host.prepared("a", 10, 2393.0) == []
    assert host.loaded_models == ["other"]
    assert host.explain("a")["state"] == "unloaded"


def guesses(host: Host, first: int, second: int) -> list[int]:
    """How many go for each of two regular models, which a large one drove out together."""
    host.follow_value()
    regular(host, "a", first)
    regular(host, "b", second)
    assert sorted(host.swap("large", 100, 1900.0)) == ["a", "b"]
    host.dismiss("large", 1950.0)
    host.unloaded("large", 1950.0)
    for at in range(20):
        host.bring(f"idle-{at:02}", 5, 1960.0, load_s=1e-3)
    assert host.timer(2391.0) == [Prepare("a", "prefetch"), Prepare("b", "prefetch")]
    found = []
    for model, size in (("a", first), ("b", second)):
        begun = host.prepared(model, size, 2391.0)
        gone = [action.model for action in begun if isinstance(action, Unload)]
        found.append(len(gone))
        for victim in gone:
            host.unloaded(victim, 2391.0)
        if gone:
            host.loaded(model, size, 2391.0)
    return found


def test_guesses_that_evict_hold_no_more_than_an_eighth() -> None:
    assert guesses(Host(loads_max=3), 6, 6) == [2, 1], "12 of 100; 4 were free already"
    assert guesses(Host(loads_max=3), 6, 7) == [2, 0]


def test_one_guess_may_be_as_large_as_it_is() -> None:
    assert guesses(Host(loads_max=3), 20, 1) == [4, 0]


def test_a_guess_that_came_true_and_is_not_young_any_more_is_no_guess() -> None:
    host = Host(residency_s_min=0.0)
    host.follow_value()
    host.bring("guessed", 20, 0.0)
    host.machine._table.models["guessed"].guessed_hits = 0
    model = host.machine._table.of("next")
    model.need = model.taken = host.machine._table.models["guessed"].taken
    assert not host.machine._loads._guesses_are_few(model, 5.0)
    host.called("guessed", 6.0)
    assert host.machine._loads._guesses_are_few(model, 7.0)


def test_while_more_than_a_quarter_is_young_nobody_goes_for_a_guess() -> None:
    host = Host(residency_s_min=10.0)
    for at in range(7):
        host.bring(f"m-{at}", 10, 0.0 if at < 6 else 100.0)
    model = host.machine._table.of("next")
    model.need = host.machine._table.models["m-0"].taken
    few = host.machine._loads._guesses_are_few
    assert few(model, 109.0), "one of seven"
    host.bring("m-7", 10, 105.0)
    assert few(model, 109.0), "two of eight"
    host.bring("m-8", 10, 105.0)
    assert not few(model, 109.0), "three of nine"
    assert few(model, 115.0)
