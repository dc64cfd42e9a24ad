"""`control/reconcile/agreements.py`: whose pairs are counted, what is remembered of them, and how a
server goes on with what another one saved."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_components import chat, revision

from penstock.control.reconcile.agreements import Agreements
from penstock.control.store.compared_pairs import ComparedPairs
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


class Registry:
    """What one process has counted for rollout 7 of component `chat`."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def compared(self, endpoint: str, rollout: int, component: str) -> dict[str, int]:
        return self.counts if (endpoint, rollout, component) == ("Shop", 7, "chat") else {}


def chat_pairs(rollout: int = 7, **counts: int) -> ComparedPairs:
    return ComparedPairs(
        endpoint="Shop", component="chat", rollout=rollout, spec=EXACT, counts=counts
    )


def found(known: Agreements, rollout: int = 7) -> AgreementCounts:
    return known.of_components(shop(("chat", rollout)))["chat"]


def test_what_differs_from_the_database_is_unsaved_until_it_is_written() -> None:
    registry = Registry(agree=3)
    known = Agreements(registry.compared)
    assert known.unsaved() == []
    found(known)
    for _ in range(2):  # the first write failed
        assert known.unsaved() == [chat_pairs(agree=3)]
    registry.counts = {"agree": 4}  # while the second one wrote
    known.saved([chat_pairs(agree=3)])
    assert known.unsaved() == [chat_pairs(agree=4)]
    known.saved([chat_pairs(agree=4)])
    assert known.unsaved() == []


def test_pairs_that_end_after_their_rollout_are_saved() -> None:
    registry = Registry(agree=3)
    known = Agreements(registry.compared)
    found(known)
    known.saved(known.unsaved())
    registry.counts = {"agree": 3, "differ": 1}
    assert known.unsaved() == [chat_pairs(agree=3, differ=1)]


def test_a_rollout_without_a_pair_yet_replaces_the_one_before_it_in_the_database() -> None:
    known = Agreements(Registry().compared)
    known.restore([chat_pairs(agree=10)])
    assert found(known, 8) == AgreementCounts()
    assert known.unsaved() == [chat_pairs(8)]


def test_a_server_goes_on_with_what_another_one_saved() -> None:
    registry = Registry()
    known = Agreements(registry.compared)
    known.restore([chat_pairs(agree=10, differ=1)])
    assert known.latest("Shop", "chat") == (EXACT, AgreementCounts(agree=10, differ=1))
    assert known.unsaved() == []
    registry.counts = {"agree": 2, "new-failed": 1}
    assert found(known) == AgreementCounts(agree=12, differ=1, new_failed=1)


def test_a_process_that_leads_again_counts_nothing_twice() -> None:
    """It counted 3 pairs in its first term; they are among the 10 that the next leader saved."""
    registry = Registry(agree=3)
    known = Agreements(registry.compared)
    known.restore([chat_pairs(agree=10)])
    assert found(known) == AgreementCounts(agree=10)
    registry.counts = {"agree": 4}
    assert found(known) == AgreementCounts(agree=11)


def test_pairs_stay_counted_when_a_variant_leaves_the_registry() -> None:
    registry = Registry(agree=5)
    known = Agreements(registry.compared)
    assert found(known) == AgreementCounts(agree=5)
    registry.counts = {"agree": 2}  # those of the other variant
    assert found(known) == AgreementCounts(agree=5)
    registry.counts = {"agree": 3}
    assert found(known) == AgreementCounts(agree=6)
    registry.counts = {}
    assert found(known) == AgreementCounts(agree=6)
    registry.counts = {"agree": 1}
    assert found(known) == AgreementCounts(agree=7)


def test_an_endpoint_and_its_target_models_have_pairs_of_their_own() -> None:
    known = Agreements(Registry().compared)
    own = ComparedPairs(endpoint="Shop", rollout=1, spec=EXACT, counts={"agree": 1})
    known.restore([own, replace(own, model="b", rollout=2, counts={"differ": 2})])
    assert known.latest("Shop") == (EXACT, AgreementCounts(agree=1))
    assert known.latest("Shop", model="b") == (EXACT, AgreementCounts(differ=2))


def test_what_is_gone_is_saved_no_more() -> None:
    known = Agreements(Registry(agree=3).compared)
    for forgotten in (("shop", "chat"), ("shop",)):
        found(known)
        known.forget(*forgotten)
        assert known.unsaved() == []
