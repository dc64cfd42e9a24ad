"""Value is followed while it does better than LRU, and no longer."""

from __future__ import annotations

from tests.core.residency.residency_words import Host, bytes_

from penstock.core.residency.contest import Contest
from penstock.core.residency.history import Population
from penstock.core.residency.model import TargetModel


class Calls:
    """A contest of models of ten bytes, fed with calls."""

    def __init__(self, room: int = 100, models_max: int = 0) -> None:
        self.population = Population()
        self.contest = Contest(self.population, models_max)
        self.contest.room = bytes_(room)
        self.models: dict[str, TargetModel] = {}

    def call(self, name: str, now: float, size: int = 10, load_s: float = 1.0) -> None:
        model = self.models.setdefault(name, TargetModel(name))
        model.taken = bytes_(size)
        model.load_s = load_s
        model.history.called(now, self.population)
        self.contest.called(model, now=now)

    def round(self, models: int, *, rounds: int, gap_s: float = 10.0, start: float = 0.0) -> None:
        for at in range(models * rounds):
            self.call(f"m-{at % models}", start + at * gap_s)


def test_without_evidence_lru_is_followed() -> None:
    assert Calls().contest.snapshot() == {
        "follows": "last-use", "value_only": 0.0, "last_use_only": 0.0, "saved_s": 0.0,
    }  # fmt: skip


def test_a_round_over_more_than_fits_is_told_within_a_few_rounds() -> None:
    calls = Calls()
    calls.round(12, rounds=4)
    assert not calls.contest.by_value, "three gaps make a period"
    calls.round(12, rounds=3, start=480.0)
    assert calls.contest.by_value
    assert calls.contest.use_only == 0.0


def test_what_both_hold_or_neither_tells_nothing() -> None:
    calls = Calls()
    calls.round(10, rounds=20)
    assert calls.contest.value_only == calls.contest.use_only == 0.0


def test_a_lead_that_chance_explains_is_not_followed() -> None:
    """Three standard deviations and two: twelve of twelve are too few, thirteen are not."""
    model = TargetModel("m")
    contest = Calls().contest
    for _ in range(12):
        contest._weigh(model, valued=True)
    assert not contest.by_value
    contest._weigh(model, valued=True)
    assert contest.by_value


def test_value_is_left_as_soon_as_it_does_worse() -> None:
    model = TargetModel("m")
    contest = Calls().contest
    for _ in range(20):
        contest._weigh(model, valued=True)
    assert contest.by_value
    for _ in range(20):
        contest._weigh(model, valued=False)
    assert contest.by_value, "as good is good enough to stay"
    contest._weigh(model, valued=False)
    assert not contest.by_value
    assert (contest.value_only, contest.use_only) == (20.0, 21.0)


def test_fewer_reloads_that_take_longer_are_not_followed() -> None:
    dear, cheap = TargetModel("dear"), TargetModel("cheap")
    dear.load_s, cheap.load_s = 100.0, 1.0
    contest = Calls().contest
    contest._weigh(dear, valued=False)
    for _ in range(60):
        contest._weigh(cheap, valued=True)
    assert not contest.by_value
    for _ in range(41):
        contest._weigh(cheap, valued=True)
    assert contest.by_value


def test_old_evidence_counts_half() -> None:
    model = TargetModel("m")
    contest = Calls().contest
    for _ in range(399):
        contest._weigh(model, valued=True)
    assert contest.value_only == 399.0
    contest._weigh(model, valued=True)
    assert contest.value_only == 200.0


def test_a_model_larger_than_the_room_takes_no_part() -> None:
    calls = Calls()
    calls.call("small", 0.0)
    calls.call("large", 1.0, size=101)
    calls.call("small", 2.0)
    assert calls.contest.use_only == calls.contest.value_only == 0.0
    assert list(calls.contest._by_use.held) == ["small"]


def test_places_bound_the_caches_as_well() -> None:
    calls = Calls(models_max=2)
    for at, name in enumerate("abc"):
        calls.call(name, 10.0 * at)
    assert list(calls.contest._by_use.held) == ["b", "c"]
    assert len(calls.contest._by_value.held) == 2


def test_a_model_that_grew_takes_its_new_size_there_too() -> None:
    calls = Calls()
    calls.call("a", 0.0)
    calls.call("b", 1.0)
    calls.models["a"].taken = bytes_(85)
    calls.contest.resized(calls.models["a"])
    calls.call("c", 2.0)
    assert list(calls.contest._by_use.held) == ["b", "c"]


def test_forgotten_models_leave_no_trace() -> None:
    calls = Calls()
    calls.call("a", 0.0)
    calls.contest.forget("a")
    calls.contest.forget("never-seen")
    calls.call("b", 1.0)
    assert list(calls.contest._by_use.held) == ["b"]
    assert list(calls.contest._by_value.held) == ["b"]


def test_an_eviction_by_value_looks_at_a_bounded_number_of_models() -> None:
    """A thousand are held; the sample moves on, so that all have their turn."""
    calls = Calls(room=10_000)
    for at in range(1000):
        calls.call(f"m-{at:04}", float(at))
    held = list(calls.contest._by_value.held.values())
    seen = {model.name for _ in range(16) for model in calls.contest._sampled(held)}
    assert len(calls.contest._sampled(held)) == 64
    assert len(seen) == 1000


def test_few_models_are_all_looked_at() -> None:
    calls = Calls()
    for at, name in enumerate("abc"):
        calls.call(name, 10.0 * at)
    held = list(calls.contest._by_value.held.values())
    for _ in range(3):
        assert [model.name for model in calls.contest._sampled(held)] == ["a", "b", "c"]


def test_saved_time_fades_like_the_evidence() -> None:
    model = TargetModel("m")
    model.load_s = 2.0
    contest = Calls().contest
    for _ in range(400):
        contest._weigh(model, valued=True)
    assert contest.saved_s == 400.0


def test_a_host_s_caches_have_the_room_that_models_can_have() -> None:
    host = Host(100, used=10)
    contest = host.machine._table.contest
    assert contest.room == bytes_(90)
    host.bring("a", 20, 0.0)
    assert contest.room == bytes_(90)
    host.measured(1.0, grown=5)
    assert contest.room == bytes_(85)
    host.measured(2.0, a=30)
    assert contest._by_use._sizes == contest._by_value._sizes == {"a": bytes_(30)}


def proven(contest: Contest, times: int) -> None:
    for _ in range(times):
        contest._weigh(TargetModel("m"), valued=True)


def test_a_host_that_loads_more_than_lru_would_goes_back_to_lru() -> None:
    contest = Calls().contest
    proven(contest, 13)
    for _ in range(7):
        contest.loads()
    assert contest.by_value
    contest.loads()
    assert not contest.by_value
    assert contest.value_only == 0.0
    # The next time it asks for a lead that is larger by six: 23 of 23, not 22.
    proven(contest, 22)
    assert not contest.by_value
    proven(contest, 1)
    assert contest.by_value
    for _ in range(7):
        contest.loads()
    assert contest.by_value, "it begins anew"


def test_loads_that_lru_would_have_made_too_are_no_reason_to_leave_value() -> None:
    calls = Calls(room=10)
    proven(calls.contest, 13)
    for at in range(150):
        calls.call(f"m-{at}", 10.0 * at)
        calls.contest.loads()
    assert calls.contest.by_value
    for _ in range(8):
        assert calls.contest.by_value
        calls.contest.loads()
    assert not calls.contest.by_value


def test_loads_while_lru_is_followed_are_held_against_nobody() -> None:
    contest = Calls().contest
    for _ in range(50):
        contest.loads()
    proven(contest, 13)
    assert contest.by_value
    contest.loads()
    assert contest.by_value


def test_a_lead_that_was_asked_for_in_doubt_is_halved_as_value_proves_itself() -> None:
    calls = Calls(room=10)
    contest = calls.contest
    contest._lead_min = 32.0
    contest.by_value = True
    for at in range(200):
        calls.call(f"m-{at}", 10.0 * at)
        contest.loads()
    assert contest._lead_min == 16.0
    assert (contest._loads, contest._missed) == (100.0, 100.0)


def test_who_joins_others_that_wait_for_a_model_tells_nothing_and_is_a_call_all_the_same() -> None:
    """One load answers them all, whichever order is followed."""
    calls = Calls()
    calls.round(12, rounds=6)
    before = calls.contest.snapshot()
    assert before["value_only"] > 0.0
    for at in range(24):
        model = calls.models[f"m-{at % 12}"]
        calls.contest.called(model, now=1000.0 + at, joins=True)
    assert calls.contest.snapshot() == before
    assert list(calls.contest._by_use.held) == [f"m-{at}" for at in range(2, 12)]


def test_calls_of_a_model_that_is_on_its_way_are_one_miss_of_lru_as_they_are_one_load() -> None:
    """Two models, of which one fits, called by turns while both wait to be loaded."""
    host = Host()
    host.bring("a", 60, 0.0)
    assert host.swap("b", 60, 10.0) == ["a"]
    host.crashed("b", 20.0)
    host.follow_value()
    for at in range(8):
        host.request("ab"[at % 2], 30.0 + at)
    assert host.machine._table.contest._missed == 2
