"""W3C Trace Context: what is read, what is passed on, and who decides what is recorded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request import trace_context
from penstock.core.request.trace_context import STATE_CHARS_MAX, TraceContext

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
SPAN = 0x00F067AA0BA902B7
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_standards_own_example_is_read_and_written() -> None:
    found = trace_context.read(PARENT, "congo=t61rcWkgMzE")
    assert found == TraceContext(TRACE, SPAN, sampled=True, state="congo=t61rcWkgMzE")
    assert found.traceparent == PARENT


def test_flags_other_than_sampled_are_not_passed_on() -> None:
    found = trace_context.read(PARENT[:-2] + "fe")
    assert found == TraceContext(TRACE, SPAN, sampled=False)
    assert found.traceparent.endswith("-00")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        PARENT.upper(),
        PARENT + "-more",  # version 00 has nothing more
        PARENT + "0",
        "ff" + PARENT[2:],
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT.replace("-", "_"),
        PARENT[:-1],
    ],
)
def test_what_is_no_context_is_as_if_it_had_not_come(text: str) -> None:
    assert trace_context.read(text, "congo=1") is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert trace_context.read("01" + PARENT[2:] + "-what-comes") == TraceContext(TRACE, SPAN, True)
    assert trace_context.read("01" + PARENT[2:] + "x") is None


def test_blanks_around_a_header_are_no_part_of_it() -> None:
    assert trace_context.read(f" {PARENT} ", " a=1 ") == TraceContext(TRACE, SPAN, True, "a=1")


def test_a_state_that_is_too_long_is_dropped_and_the_context_is_not() -> None:
    kept, dropped = "a" * STATE_CHARS_MAX, "a" * (STATE_CHARS_MAX + 1)
    assert trace_context.read(PARENT, kept) == TraceContext(TRACE, SPAN, True, kept)
    assert trace_context.read(PARENT, dropped) == TraceContext(TRACE, SPAN, True)


def test_a_state_that_could_be_more_than_a_header_is_dropped() -> None:
    for state in ("a=1\r\nx: y", "a=\x00", "a=\u00e9"):
        assert trace_context.read(PARENT, state) == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_callers_decision_is_followed_whatever_share_is_wanted(
    sampled: bool, share: float
) -> None:
    caller = TraceContext(TRACE, SPAN, sampled, "a=1")
    own = trace_context.begin(caller, share=share, rng=random.Random(1))
    assert own is not None
    assert (own.trace_id, own.sampled, own.state) == (TRACE, sampled, "a=1")
    assert own.span_id not in (0, SPAN)


def test_where_no_caller_decides_the_share_is_taken() -> None:
    rng = random.Random(1)
    begun = [trace_context.begin(None, share=0.25, rng=rng) for _ in range(4000)]
    found = [one for one in begun if one is not None]
    assert 900 <= len(found) <= 1100
    assert all(one.sampled and one.trace_id and one.span_id for one in found)
    assert len({one.trace_id for one in found}) == len(found)
    assert trace_context.begin(None, share=0.0, rng=rng) is None
    assert trace_context.begin(None, share=1.0, rng=rng) is not None


def test_what_is_not_recorded_is_a_trace_of_its_own_all_the_same() -> None:
    """Who is told of it follows the decision, instead of taking a share once more."""
    rng = random.Random(1)
    own = trace_context.unrecorded(rng)
    assert not own.sampled
    after = trace_context.begin(trace_context.read(own.traceparent), share=1.0, rng=rng)
    assert after is not None
    assert (after.trace_id, after.sampled) == (own.trace_id, False)


class _Zeros(random.Random):
    def getrandbits(self, k: int) -> int:
        return 0


def test_no_id_is_ever_zero() -> None:
    own = trace_context.begin(None, share=1.0, rng=_Zeros(1))
    assert own is not None
    assert (own.trace_id, own.span_id) == (1, 1)
    silent = trace_context.unrecorded(_Zeros(1))
    assert (silent.trace_id, silent.span_id) == (1, 1)


@given(st.text(max_size=80))
def test_any_text_is_read_or_nothing(text: str) -> None:
    found = trace_context.read(text)
    assert found is None or trace_context.read(found.traceparent) == found


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
def test_what_is_written_is_read_again(trace_id: int, span_id: int, sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, sampled)
    assert trace_context.read(context.traceparent) == context
