"""When a new generation is surely worse, surely as good, or neither."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from penstock.core.rollout.agreement import (
    AS_GOOD,
    UNDECIDED,
    WORSE,
    AgreementCounts,
    AgreementSpec,
    judge,
)
from penstock.core.rollout.sequential import evidence_above, evidence_below

SPEC = AgreementSpec()
#: Only answers and errors: time is judged in tests of its own.
TIMELESS = AgreementSpec(slower_max=0.0)


def verdict(counts: AgreementCounts, spec: AgreementSpec = SPEC) -> str:
    return judge(spec, counts).verdict


def test_nothing_seen_says_nothing() -> None:
    assert evidence_above(0, 0, 0.01) == evidence_below(0, 0, 0.01) == 1.0
    assert verdict(AgreementCounts()) == UNDECIDED


def test_two_answers_that_disagree_are_enough_where_one_of_a_hundred_may() -> None:
    assert verdict(AgreementCounts(differ=1)) == UNDECIDED
    found = judge(SPEC, AgreementCounts(differ=2))
    assert found.verdict == WORSE
    assert found.why == "2 of 2 answers disagree (sure to 99.97% that it is above 1.00%)"


def test_no_number_of_pairs_makes_it_sure_to_100_percent() -> None:
    found = judge(SPEC, AgreementCounts(agree=5_000))
    assert found.why.startswith(
        "0 of 5000 answers disagree (sure to 99.99% that it is below 1.00%)"
    )


def test_agreement_takes_hundreds_of_pairs_to_be_sure_of() -> None:
    assert verdict(AgreementCounts(agree=550)) == UNDECIDED
    assert verdict(AgreementCounts(agree=600)) == AS_GOOD
    assert verdict(AgreementCounts(agree=600, slower=300)) == UNDECIDED, "half are slower"
    assert verdict(AgreementCounts(agree=600, new_failed=5)) == UNDECIDED, "maybe one of a hundred"


def test_errors_count_against_it_where_the_old_one_makes_fewer() -> None:
    assert verdict(AgreementCounts(agree=500, new_failed=10)) == UNDECIDED
    assert verdict(AgreementCounts(agree=500, new_failed=11)) == WORSE
    assert verdict(AgreementCounts(agree=500, new_failed=40, old_failed=40)) == UNDECIDED
    assert verdict(AgreementCounts(agree=600, both_failed=400)) == AS_GOOD, "both fail alike"


def test_time_counts_against_it_where_most_answers_take_longer() -> None:
    assert verdict(AgreementCounts(agree=500, slower=290)) == UNDECIDED
    assert verdict(AgreementCounts(agree=500, slower=320)) == WORSE
    assert verdict(AgreementCounts(agree=600, slower=600), TIMELESS) == AS_GOOD


def test_evidence_beyond_all_numbers_is_no_error() -> None:
    assert evidence_above(10**6, 10**6, 0.01) == math.inf
    assert verdict(AgreementCounts(differ=10**6)) == WORSE
    assert evidence_above(0, 10**6, 0.01) < 1e-9


@pytest.mark.parametrize("bound", [0.0001, 0.01, 0.5])
def test_the_bet_is_fair_at_the_bound(bound: float) -> None:
    """The mean of what one observation makes of a fortune of 1 is 1 there; so it is a martingale,
    and by Ville's inequality 1 in 1/a is all that ever reaches a."""
    for evidence in (evidence_above, evidence_below):
        mean = bound * evidence(1, 1, bound) + (1 - bound) * evidence(0, 1, bound)
        assert mean == pytest.approx(1.0)


def looked_at(chance: random.Random, *, differ: float, new: float, old: float) -> str:
    """What is decided of a model that is looked at after each second of 200 requests."""
    counts: Counter[str] = Counter()
    for _ in range(60):
        for _ in range(200):
            failed = chance.random() < new, chance.random() < old
            if any(failed):
                counts[{(True, False): "new_failed", (False, True): "old_failed"}.get(
                    failed, "both_failed"
                )] += 1  # fmt: skip
            else:
                counts["differ" if chance.random() < differ else "agree"] += 1
                counts["slower"] += chance.random() < 0.4
        found = verdict(AgreementCounts(**counts))
        if found != UNDECIDED:
            return found
    return UNDECIDED


def test_looking_again_and_again_sends_almost_no_equal_model_back() -> None:
    chance = random.Random(1)
    ends = Counter(looked_at(chance, differ=0.008, new=0.01, old=0.01) for _ in range(100))
    assert ends[WORSE] <= 3, "1 of 100 at most are expected"


def test_a_little_worse_is_found() -> None:
    chance = random.Random(2)
    ends = Counter(looked_at(chance, differ=0.0, new=0.03, old=0.01) for _ in range(20))
    assert ends[WORSE] >= 18


def test_what_is_read_of_a_verdict() -> None:
    found = judge(SPEC, AgreementCounts(agree=8, differ=2, slower=5, new_failed=3, old_failed=1))
    assert [(one.name, one.hits, one.trials, one.bound) for one in found.tests] == [
        ("answers", 2, 10, 0.01), ("errors", 3, 4, 0.5), ("failures", 3, 14, 0.01),
        ("time", 5, 10, 0.5),
    ]  # fmt: skip
    answers = found.tests[0].snapshot()
    assert answers | {"sure_above": 0.0} == {
        "test": "answers", "hits": 2, "trials": 10, "share": 0.2, "bound": 0.01,
        "sure_above": 0.0, "sure_below": 0.0,
    }  # fmt: skip
    assert 0.9 < answers["sure_above"] < 1.0
    nothing = judge(TIMELESS, AgreementCounts()).tests
    assert [one.snapshot()["share"] for one in nothing] == [None, None, None]
    assert [one.name for one in nothing] == ["answers", "errors", "failures"]
    (all_wrong, *_) = judge(SPEC, AgreementCounts(differ=10**6)).tests
    assert all_wrong.snapshot()["sure_above"] == 1.0


def test_all_pairs_are_what_failures_are_counted_of() -> None:
    one_of_each = AgreementCounts(
        agree=1, differ=1, slower=1, new_failed=1, old_failed=1, both_failed=1, unpaired=1
    )
    assert (one_of_each.answered, one_of_each.pairs) == (2, 5)
    assert AgreementCounts.of({"new-failed": 2, "slower": 1}) == AgreementCounts(
        new_failed=2, slower=1
    )
    assert AgreementCounts() == AgreementCounts.of({})


def test_only_what_is_not_sure_yet_is_named() -> None:
    found = judge(SPEC, AgreementCounts(agree=300, slower=10))
    assert found.verdict == UNDECIDED
    assert "answers disagree" in found.why
    assert "times the old model's time" not in found.why


#: Answers are judged by another endpoint.
JUDGED = AgreementSpec(scorer="judge")


def test_a_scorer_that_surely_fails_for_most_pairs_sends_it_back() -> None:
    """Nobody could say then whether the new answers are as good."""
    assert verdict(AgreementCounts(unscored=10), JUDGED) == UNDECIDED
    found = judge(JUDGED, AgreementCounts(unscored=11, scorer_error="endpoint-not-found"))
    assert found.verdict == WORSE
    assert found.why == (
        "the scorer judge failed for 11 of 11 pairs: endpoint-not-found; 'penstock logs judge' and"
        " the server's log say more (sure to 99.81% that it is above 50.00%)"
    )
    equal_ones_say_nothing = AgreementCounts(agree=600, unscored=11)
    assert verdict(equal_ones_say_nothing, JUDGED) == WORSE
    assert verdict(AgreementCounts(unscored=11)) == UNDECIDED, "there is no scorer"


def test_a_scorer_that_fails_now_and_then_does_no_harm() -> None:
    some = AgreementCounts(agree=600, scored=100, unscored=45, scorer_error="model-raised")
    assert verdict(some, JUDGED) == AS_GOOD
    found = judge(JUDGED, AgreementCounts(agree=60, differ=40, slower=9, scored=70, unscored=30))
    assert [(one.name, one.hits, one.trials, one.bound) for one in found.tests] == [
        ("answers", 40, 100, 0.01), ("errors", 0, 0, 0.5), ("failures", 0, 100, 0.01),
        ("time", 9, 100, 0.5), ("scorer", 30, 100, 0.5),
    ]  # fmt: skip


def test_a_scorer_that_answers_is_no_reason_to_promote_or_to_wait() -> None:
    assert verdict(AgreementCounts(agree=600, scored=1), JUDGED) == AS_GOOD
    unasked = judge(JUDGED, AgreementCounts(agree=1)).tests[-1]
    assert (unasked.name, unasked.hits, unasked.trials) == ("scorer", 0, 0)
    found = judge(JUDGED, AgreementCounts(agree=300, scored=300))
    assert found.verdict == UNDECIDED
    assert "scorer" not in found.why


def test_failures_of_a_scorer_are_counted_by_the_codes_of_their_errors() -> None:
    told = {"agree": 3, "scored": 2, "unscored:deadline-passed": 1, "unscored:model-raised": 4}
    assert AgreementCounts.of(told) == AgreementCounts(
        agree=3, scored=2, unscored=5, scorer_error="model-raised"
    )
    equally = {"unscored:b": 1, "unscored:a": 1}
    assert AgreementCounts.of(equally).scorer_error == "b", "not by their order"
    assert AgreementCounts.of(dict(reversed(equally.items()))).scorer_error == "b"
