"""A cache of answers: what stays, what goes, and how large it may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.response_cache import ENTRY_BYTES, ResponseCache

EACH = ENTRY_BYTES + 100


def test_the_answer_that_was_used_least_recently_goes_first() -> None:
    cache: ResponseCache[str] = ResponseCache(2 * EACH)
    assert cache.keep("m", 1, "one", 100)
    assert cache.keep("m", 2, "two", 100)
    assert cache.find("m", 1) == "one"
    assert cache.keep("m", 3, "three", 100)
    assert [cache.find("m", key) for key in (1, 2, 3)] == ["one", None, "three"]


def test_an_answer_that_is_too_large_displaces_nothing() -> None:
    cache: ResponseCache[str] = ResponseCache(EACH)
    assert cache.keep("m", 1, "one", 100)
    assert not cache.keep("m", 2, "two", 101)
    assert not ResponseCache[str](0).keep("m", 1, "one", 0)
    assert cache.find("m", 1) == "one"


def test_models_have_their_own_answers_which_go_with_them() -> None:
    cache: ResponseCache[str] = ResponseCache(10 * EACH)
    cache.keep("a", 1, "of a", 100)
    cache.keep("b", 1, "of b", 100)
    assert (cache.find("a", 1), cache.find("b", 1)) == ("of a", "of b")
    cache.forget("a")
    assert (cache.find("a", 1), cache.find("b", 1)) == (None, "of b")
    assert cache.bytes_used == EACH


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3000)), max_size=60))
def test_it_never_holds_more_than_its_bytes(kept: list[tuple[int, int, int]]) -> None:
    cache: ResponseCache[int] = ResponseCache(3 * ENTRY_BYTES)
    sizes: dict[tuple[int, int], int] = {}
    for owner, key, size in kept:
        if cache.keep(owner, key, size, size):
            sizes[owner, key] = size
        assert cache.bytes_used <= cache.bytes_max
    held = [cache.find(*entry) for entry in sizes]
    found = [size for size in held if size is not None]
    assert len(found) == len(cache)
    assert cache.bytes_used == sum(size + ENTRY_BYTES for size in found)
    for owner in range(4):
        cache.forget(owner)
    assert (len(cache), cache.bytes_used) == (0, 0)
