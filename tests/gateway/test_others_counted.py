"""A dispatcher that shares its copies with other gateways: what instances say of them counts."""

from __future__ import annotations

from tests.kit.gateway import Bench, routes

ASKED = {"op": "share-counts"}


def sent(bench: Bench) -> dict[int, int]:
    return {copy: len(bench.link(copy).sent) for copy in (1, 2)}


def invoke(bench: Bench, count: int) -> list[str]:
    """How those end that are refused at once."""
    told = [bench.invoke()[1].told for _ in range(count)]
    return [entry[0][1] for entry in told if entry]


def test_only_who_shares_its_copies_asks_for_counts_and_does_on_each_connection() -> None:
    """With one gateway nothing is asked, so that nothing is counted and no byte more is sent."""
    alone, shared = Bench(1), Bench(1, shared=True)
    assert alone.link(1).told == []
    assert shared.link(1).told == [ASKED]
    shared.link(1).lose()
    shared.link(1).come_back()
    assert shared.link(1).told == [ASKED, ASKED]


def test_a_request_goes_where_all_gateways_together_have_the_fewest() -> None:
    bench = Bench(1, 2, shared=True)
    bench.dispatcher.on_counts("i1", [(1, 2)])
    assert invoke(bench, 3) == []
    assert sent(bench) == {1: 1, 2: 2}
    assert bench.dispatcher.outstanding(1) == 3
    bench.dispatcher.on_counts("i1", [(1, 0)])
    assert invoke(bench, 1) == []
    assert sent(bench) == {1: 2, 2: 2}


def test_others_take_of_a_copys_limit() -> None:
    bench = Bench(1, 2, outstanding_max=2, shared=True)
    bench.dispatcher.on_counts("i1", [(1, 2)])
    bench.dispatcher.on_counts("i2", [(2, 1)])
    assert invoke(bench, 2) == ["all-copies-full"]
    assert sent(bench) == {1: 0, 2: 1}


def test_counts_that_come_before_the_routes_are_kept_for_them() -> None:
    bench = Bench(1, 2, shared=True)
    bench.dispatcher.withdraw("echo")
    bench.dispatcher.on_counts("i1", [(1, 1)])
    bench.dispatcher.publish(routes(1, 2))
    assert invoke(bench, 1) == []
    assert sent(bench) == {1: 0, 2: 1}


def test_what_an_instance_said_is_void_on_a_new_connection() -> None:
    bench = Bench(1, 2, shared=True)
    bench.dispatcher.on_counts("i1", [(1, 3)])
    bench.link(1).lose()
    bench.link(1).come_back()
    assert bench.dispatcher.outstanding(1) == 0
    assert invoke(bench, 1) == []
    assert sent(bench) == {1: 1, 2: 0}


def test_an_instance_is_believed_of_its_own_copies_alone() -> None:
    bench = Bench(1, 2, shared=True)
    bench.dispatcher.on_counts("i1", [(2, 4), (9, 4)])
    assert invoke(bench, 2) == []
    assert sent(bench) == {1: 1, 2: 1}


def test_admission_counts_what_others_have_and_not_what_is_on_no_copy() -> None:
    """Whether a deadline can be met follows from all that is before a request."""
    bench = Bench(1, 2, shared=True)
    endpoint = bench.dispatcher.table.endpoints["echo"]
    bench.dispatcher.on_counts("i1", [(1, 3)])
    bench.dispatcher.on_counts("i2", [(2, 1)])
    assert endpoint.beside == 4
    endpoint.hold(10)
    assert endpoint.beside == 3
    bench.dispatcher.on_counts("i2", [(2, 0)])
    assert endpoint.beside == 2
    endpoint.let_go(10)
    bench.dispatcher.publish(routes(2))
    assert endpoint.beside == 0
