"""`control/reconcile/agreements.py`: whose pairs are counted, and what is remembered of them."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_components import chat, revision

from penstock.control.reconcile.agreements import Agreements
from penstock.core.deployment.endpoint_state import IN_SERVICE, UPDATING, EndpointSpec
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec

EXACT = AgreementSpec(kind="exact")
#: (endpoint, rollout, component) -> pairs
PAIRS = {("Shop", 7, "chat"): 3, ("Shop", 7, "rank"): 5, ("Shop", 8, "chat"): 1}


def agreements() -> Agreements:
    def compared(endpoint: str, rollout: int, component: str) -> dict[str, int]:
        count = PAIRS.get((endpoint, rollout, component), 0)
        return {"agree": count} if count else {}

    return Agreements(compared)


def shop(*rollouts: tuple[str, int]) -> EndpointSpec:
    """Components whose updates are held to an agreement; and one whose update is not."""
    held = replace(revision(2, batch=1), agreement=EXACT)
    return EndpointSpec(
        endpoint="Shop",
        status=IN_SERVICE,
        components=(
            *(chat(1, UPDATING, target=replace(held, rollout=n), name=one) for one, n in rollouts),
            chat(1, UPDATING, target=revision(2, batch=1), name="free"),
        ),
    )


def test_each_component_has_the_pairs_of_its_own_rollout() -> None:
    assert agreements().of_components(shop(("chat", 7), ("rank", 7))) == {
        "chat": AgreementCounts(agree=3), "rank": AgreementCounts(agree=5),
    }  # fmt: skip
    assert agreements().of_components(shop()) == {}


def test_the_latest_rollout_is_remembered_until_what_it_was_of_is_gone() -> None:
    known = agreements()
    assert known.latest("Shop", "chat") is None
    for number in (7, 8):
        known.of_components(shop(("chat", number), ("rank", 7)))
    known.of_components(shop())  # both are over
    assert known.latest("Shop", "chat") == (EXACT, AgreementCounts(agree=1))
    assert known.latest("Shop") is None, "the endpoint's own had none"
    known.forget("shop", "chat")
    assert known.latest("Shop", "chat") is None
    assert known.latest("Shop", "rank") == (EXACT, AgreementCounts(agree=5))
    known.forget("shop")
    assert known.latest("Shop", "rank") is None
