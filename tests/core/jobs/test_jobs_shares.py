"""Who does which span next: shares of neighbours, and what is stolen when one has none left."""

from __future__ import annotations

from penstock.core.jobs.spec import FIRST, STOLEN, Span, SpanQueues, span_bytes_for

MIB = 2**20


def span(number: int, one: int = 0) -> Span:
    return Span(object=one, number=number, start=number * 10, stop=number * 10 + 10)


def spans(count: int) -> list[Span]:
    return [span(number) for number in range(count)]


def taken(shares: SpanQueues, copy: int, copies: int) -> tuple[int, str] | None:
    found = shares.take(copy, copies)
    return None if found is None else (found[0].number, found[1])


def test_each_copy_goes_through_a_part_of_neighbours() -> None:
    shares = SpanQueues(spans(6))
    assert [taken(shares, copy, 2) for copy in (1, 2, 1, 2, 1, 2)] == [
        (0, FIRST), (3, FIRST), (1, FIRST), (4, FIRST), (2, FIRST), (5, FIRST),
    ]  # fmt: skip
    assert taken(shares, 1, 2) is None
    assert len(shares) == 0


def test_one_with_nothing_left_steals_the_farther_half_of_the_longest_share() -> None:
    shares = SpanQueues(spans(10))
    assert taken(shares, 1, 1) == (0, FIRST)  # 1..9 are the first copy's
    assert taken(shares, 2, 2) == (5, STOLEN)  # 5..9 are the second's now
    assert [taken(shares, 2, 2) for _ in range(4)] == [(n, FIRST) for n in (6, 7, 8, 9)]
    assert taken(shares, 2, 2) == (3, STOLEN)  # of 1..4
    assert taken(shares, 1, 2) == (1, FIRST)


def test_the_last_one_of_a_share_can_be_stolen() -> None:
    shares = SpanQueues(spans(2))
    assert taken(shares, 1, 1) == (0, FIRST)
    assert taken(shares, 2, 2) == (1, STOLEN)
    assert taken(shares, 1, 2) is None


def test_what_a_copy_that_is_gone_had_left_is_anybodys() -> None:
    shares = SpanQueues(spans(4))
    assert taken(shares, 1, 2) == (0, FIRST)
    assert taken(shares, 2, 2) == (2, FIRST)
    shares.keep([2])
    assert [taken(shares, 2, 1) for _ in range(2)] == [(3, FIRST), (1, FIRST)]


def test_spans_of_an_object_that_has_failed_are_dropped_wherever_they_are() -> None:
    shares = SpanQueues([span(0, 0), span(0, 1), span(1, 2), span(1, 1), span(2, 2), span(3, 1)])
    assert taken(shares, 1, 2) == (0, FIRST)  # (1, 0) and (2, 1) are in its share, three in none
    assert len(shares) == 5
    shares.drop(1)
    assert len(shares) == 2  # of the third object, in a share and in none
    assert taken(shares, 1, 2) == (1, FIRST)
    assert taken(shares, 1, 2) == (2, FIRST)
    assert taken(shares, 1, 2) is None


def test_the_last_span_in_somebodys_share_may_be_dropped() -> None:
    shares = SpanQueues([span(0, 0), span(0, 1)])
    assert taken(shares, 1, 1) == (0, FIRST)
    shares.drop(1)
    assert len(shares) == 0
    assert taken(shares, 1, 1) is None
    assert taken(shares, 2, 2) is None  # nor is there anything to steal


def test_after_a_stop_there_is_nothing_in_any_share() -> None:
    shares = SpanQueues(spans(6))
    assert taken(shares, 1, 2) == (0, FIRST)
    shares.clear()
    assert len(shares) == 0
    assert taken(shares, 1, 2) is None


def test_more_shares_than_copies_leave_all_of_the_rest_to_who_asks() -> None:
    """A copy that is gone may have a share until its driver says so."""
    shares = SpanQueues(spans(4))
    assert taken(shares, 1, 2) == (0, FIRST)
    assert taken(shares, 2, 1) == (2, FIRST)
    assert taken(shares, 2, 1) == (3, FIRST)


def test_spans_are_many_for_each_instance_but_not_tiny_nor_huge() -> None:
    assert span_bytes_for(0, 1) == MIB // 4
    assert span_bytes_for(16 * MIB, 1) == MIB
    assert span_bytes_for(16 * MIB, 2) == MIB // 2
    assert span_bytes_for(1_000_000 * MIB, 4) == 8 * MIB
