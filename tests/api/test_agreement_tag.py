"""What the tag of an endpoint configuration, or of an inference component, may say of how answers
are compared while it is rolled out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.kit.core_components import revision
from tests.kit.core_reconcile import deployment

from penstock.api.sagemaker.agreements import TAG, agreeing, agreeing_revision
from penstock.core.deployment.deployment import AsyncSpec
from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.agreement_words import agreement_of
from penstock.core.rollout.policy import ALL_AT_ONCE, CANARY, RolloutPolicy
from penstock.errors import CallerError
from penstock.wire.aws.errors import AwsError

CANARIES = RolloutPolicy(kind=CANARY)


def test_words_in_any_order_with_a_default_for_each() -> None:
    assert agreement_of("") == AgreementSpec()
    assert agreement_of("mirror=0.5 ranking top=3 slower=0") == AgreementSpec(
        kind="ranking", top=3, mirror=0.5, slower_max=0.0
    )
    assert agreement_of("disagree=0.1 scorer=the-judge2") == AgreementSpec(
        scorer="the-judge2", disagree_max=0.1
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("scores tolerance=much", "'tolerance=much' has to be a number from 0 to 1"),
        ("scores tolerance=nan", "'tolerance=nan' has to be a number from 0 to 1"),
        ("scores disagree=0", "'disagree=0' has to be a number from 0.0001 to 0.5"),
        ("scores classes", "'classes' is there twice"),
        ("cosine", "'cosine' is none of its words: scores, classes,"),
        ("scorer", "'scorer' is none of its words: scores, classes, ranking, text, exact, scorer="),
        ("scorer=", "'scorer=' has to name an endpoint"),
        ("scorer=a/b", "'scorer=a/b' has to name an endpoint"),
        ("scorer=" + 64 * "a", "has to name an endpoint"),
        ("scorer=a scorer=b", "'scorer=b' is there twice"),
        ("scores scorer=a", "'scores' has no meaning beside 'scorer=a'"),
        ("scorer=a tolerance=0.01", "'tolerance=0.01' has no meaning beside 'scorer=a'"),
        ("scorer=a top=10", "'top=10' has no meaning beside 'scorer=a'"),
    ],
)
def test_what_says_nothing_sensible_is_refused(value: str, says: str) -> None:
    with pytest.raises(CallerError, match=re.escape(says)):
        agreement_of(value)
    with pytest.raises(AwsError, match=re.escape(says)):
        agreeing(CANARIES, {TAG: value}, deployment(generation=1), deployment(generation=2))


def test_only_a_rollout_with_two_generations_has_something_to_compare() -> None:
    old, new = deployment(generation=1), deployment(generation=2)
    assert agreeing(CANARIES, {}, old, new) == CANARIES
    found = agreeing(CANARIES, {TAG: "exact"}, old, new)
    assert found == replace(CANARIES, agreement=AgreementSpec(kind="exact"))
    for policy in (None, RolloutPolicy(kind=ALL_AT_ONCE)):
        with pytest.raises(AwsError, match="while two generations serve"):
            agreeing(policy, {TAG: "exact"}, old, new)
    no_model = replace(new.variants[0], model=None)
    with pytest.raises(AwsError, match="Of inference components, give it to the component"):
        agreeing(CANARIES, {TAG: "exact"}, old, replace(new, variants=(no_model,)))


def test_a_component_is_held_to_what_its_own_tag_says_from_its_update_on() -> None:
    rolling, shop = revision(2, batch=1), deployment(generation=1)
    assert agreeing_revision(rolling, {"team": "a"}, shop, copies=2, wall=9.0) == rolling
    found = agreeing_revision(rolling, {TAG: "exact"}, shop, copies=2, wall=1700.0259)
    assert found == replace(rolling, agreement=AgreementSpec(kind="exact"), rollout=1700025)


@pytest.mark.parametrize(
    ("changes", "copies", "asynchronous", "says"),
    [
        ({"batch": 0}, 2, False, "has RollingUpdatePolicy"),
        ({"base": "chat"}, 0, False, "without a copy of its base chat there are no answers"),
        ({}, 0, False, "raise CopyCount first"),
        ({}, 2, True, "answers of asynchronous endpoints"),
    ],
)
def test_a_component_that_has_nothing_to_compare_refuses_the_tag(
    changes: dict[str, object], copies: int, asynchronous: bool, says: str
) -> None:
    shop = deployment(generation=1)
    if asynchronous:
        shop = replace(shop, asynchronous=AsyncSpec(output_uri="file:///out"))
    made = replace(revision(2, batch=1), **changes)  # type: ignore[arg-type]
    with pytest.raises(AwsError, match=re.escape(says)):
        agreeing_revision(made, {TAG: "exact"}, shop, copies=copies, wall=0.0)
    with pytest.raises(AwsError, match="'cosine' is none of its words"):
        agreeing_revision(made, {TAG: "cosine"}, shop, copies=copies, wall=0.0)
