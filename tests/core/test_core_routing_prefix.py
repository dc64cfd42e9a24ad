"""PREFIX_AWARE: prompts that begin alike meet on a copy, up to a threshold."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.core.deployment.deployment import (
    PREFIX_AWARE,
    RANDOM,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.routing.prefixes import PrefixIndex, block_ends

SHOP = b"You are the assistant of a shop for outdoor things. " * 40  # 2080 bytes
BANK = b"You are the assistant of a bank. Never speak of money. " * 40


def routes(
    *copies: int,
    threshold: int = 4,
    length: int = 2048,
    outstanding_max: int = 100,
    cache_tokens: int = 0,
) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="chat",
        variants=(
            VariantRoutes(
                name="blue",
                weight=1.0,
                strategy=PREFIX_AWARE,
                copies=tuple(
                    CopyRoute(
                        copy=copy,
                        instance_id="i",
                        outstanding_max=outstanding_max,
                        cache_tokens=cache_tokens,
                    )
                    for copy in copies
                ),
                prefix_length_max=length,
                concurrency_threshold=threshold,
            ),
        ),
    )


def router_of(*copies: int, **spec: int) -> EndpointRouter:
    return EndpointRouter(routes(*copies, **spec), random.Random(1))


def ask(router: EndpointRouter, prompt: bytes, **more: object) -> tuple[int, str]:
    """Copy and reason; the request stays outstanding."""
    routed = router.pick(prompt=prompt, **more)  # type: ignore[arg-type]
    assert isinstance(routed, Routed)
    router.check_invariants()
    return routed.state.copy, routed.reason


def test_prompts_that_begin_alike_go_where_the_first_of_them_went() -> None:
    router = router_of(1, 2, 3)
    assert router.reads_prompts
    assert ask(router, SHOP + b"tents?") == (1, "least-outstanding")
    assert ask(router, BANK + b"rates?") == (2, "least-outstanding")
    assert ask(router, SHOP + b"boots?") == (1, "prefix-match")
    assert ask(router, BANK + b"loans?") == (2, "prefix-match")
    assert ask(router, b"hello") == (3, "least-outstanding")


def test_prompts_are_read_where_one_of_several_variants_compares_them() -> None:
    compares = routes(1).variants[0]
    other = replace(compares, name="green", strategy=RANDOM)
    both = EndpointRoutes(endpoint="chat", variants=(compares, other))
    assert EndpointRouter(both, random.Random(1)).reads_prompts


def test_at_the_threshold_a_prefix_spills_and_is_known_there_from_then_on() -> None:
    router = router_of(1, 2, 3, threshold=2)
    asked = [ask(router, SHOP) for _ in range(6)]
    assert asked == [
        (1, "least-outstanding"),
        (1, "prefix-match"),
        (2, "prefix-spill"),
        (2, "prefix-match"),
        (3, "prefix-spill"),
        (3, "prefix-match"),
    ]
    # All are at the threshold and as busy: it stays where it is known, and nothing is refused.
    assert ask(router, SHOP) == (3, "prefix-match")


def test_at_the_threshold_a_copy_is_passed_over_only_for_one_with_two_fewer() -> None:
    """Near the limit of an endpoint all copies have as many: a prompt would wait as long on
    another, and be read there at everybody's cost."""
    router = router_of(1, 2, threshold=2, cache_tokens=4096)
    assert [ask(router, SHOP)[0] for _ in range(2)] == [1, 1]
    assert ask(router, BANK) == (2, "least-outstanding")
    assert ask(router, SHOP) == (1, "prefix-match")  # 2 against 1
    assert ask(router, SHOP) == (2, "prefix-spill")  # 3 against 1
    assert ask(router, SHOP) == (2, "prefix-match")  # 3 against 2, which holds it too now


def test_an_idle_copy_is_taken_before_one_at_the_threshold_that_holds_the_prefix() -> None:
    router = router_of(1, 2, threshold=2, cache_tokens=4096)
    assert [ask(router, SHOP) for _ in range(3)][2] == (2, "prefix-spill")  # 2 against 0


def test_a_copy_that_may_hold_no_more_takes_none_however_busy_the_others_are() -> None:
    router = router_of(1, 2, threshold=1, outstanding_max=2, cache_tokens=4096)
    assert ask(router, SHOP) == (1, "least-outstanding")
    assert ask(router, BANK) == (2, "least-outstanding")
    assert ask(router, SHOP) == (1, "prefix-match")
    assert ask(router, SHOP) == (2, "prefix-spill")
    assert router.pick(prompt=SHOP) == NoRoute("all-copies-full", 0.1)


def test_a_copy_that_may_hold_no_more_is_none_to_go_to_instead() -> None:
    """It has fewer, as it may hold fewer: the prompt stays with those that can take it."""
    told = routes(1, 2, threshold=2, cache_tokens=4096)
    (variant,) = told.variants
    wide, narrow = variant.copies
    narrow = replace(narrow, outstanding_max=1)
    router = EndpointRouter(
        replace(told, variants=(replace(variant, copies=(wide, narrow)),)), random.Random(1)
    )
    assert [ask(router, SHOP)[0] for _ in range(2)] == [1, 1]
    assert ask(router, BANK) == (2, "least-outstanding")
    assert [ask(router, SHOP) for _ in range(2)] == [(1, "prefix-match")] * 2  # 3 and 4 against 1


def test_what_other_gateways_have_on_copies_counts_in_the_difference() -> None:
    router = router_of(1, 2, threshold=2, cache_tokens=4096)
    assert [ask(router, SHOP)[0] for _ in range(2)] == [1, 1]
    router.set_others(2, 1)
    assert ask(router, SHOP) == (1, "prefix-match")  # 2 against 0 + 1


def test_without_word_of_caches_the_copy_that_was_sent_a_prefix_last_takes_it() -> None:
    """Its cache is the likeliest to have it still; the others may forget it."""
    router = router_of(1, 2, threshold=2)
    states = [state_of(router, SHOP) for _ in range(3)]
    assert [state.copy for state in states] == [1, 1, 2]
    for state in states:
        router.release(state)
    assert [ask(router, SHOP) for _ in range(3)] == [
        (2, "prefix-match"),
        (2, "prefix-match"),
        (1, "prefix-match"),
    ]


def test_of_the_copies_that_hold_a_prefix_the_least_outstanding_takes_it() -> None:
    router = router_of(1, 2, threshold=3, cache_tokens=4096)
    states = [state_of(router, SHOP) for _ in range(5)]
    assert [state.copy for state in states] == [1, 1, 1, 2, 2]
    for state in states[:2]:
        router.release(state)
    assert ask(router, SHOP) == (1, "prefix-match")  # 1 against 2
    router.release(states[3])
    router.release(states[4])
    assert ask(router, SHOP) == (2, "prefix-match")  # 2 against 0


def test_the_longest_match_wins() -> None:
    """A conversation grows: its next turn begins with all that was said before."""
    router = router_of(1, 2, threshold=2)
    first, second = SHOP[:700], SHOP[:700] + BANK[:500]
    assert ask(router, first) == (1, "least-outstanding")
    assert ask(router, first) == (1, "prefix-match")
    assert ask(router, second) == (2, "prefix-spill")
    # Both copies know the first 700 bytes, and copy 2 the rest too.
    assert ask(router, second + b"and so on") == (2, "prefix-match")


def test_a_shorter_match_below_the_threshold_is_taken_before_a_spill() -> None:
    router = router_of(1, 2, 3, threshold=2)
    longer = SHOP[:1024] + BANK[:256]
    states = [state_of(router, SHOP[:1024]) for _ in range(3)]  # 1, 1, and 2 by a spill
    assert state_of(router, longer).copy == 2
    router.release(states[0])
    # Only copy 2 knows all of it, and is full of it; copy 1 knows four fifths.
    assert ask(router, longer) == (1, "prefix-match")


def state_of(router: EndpointRouter, prompt: bytes) -> CopyState:
    routed = router.pick(prompt=prompt)
    assert isinstance(routed, Routed)
    return routed.state


def test_less_than_half_in_common_is_no_reason_to_meet() -> None:
    router = router_of(1, 2)
    greeting = SHOP[:256]
    assert ask(router, greeting + BANK[:1000]) == (1, "least-outstanding")
    assert ask(router, greeting + bytes(1000)) == (2, "least-outstanding")
    assert ask(router, greeting + b"x" * 256) == (2, "prefix-match")
    assert ask(router, greeting + b"y" * 257) == (1, "least-outstanding")


def test_prompts_that_differ_in_their_first_byte_have_nothing_in_common() -> None:
    router = router_of(1, 2)
    assert ask(router, b"A" + SHOP) == (1, "least-outstanding")
    assert ask(router, b"B" + SHOP) == (2, "least-outstanding")


def test_only_the_prefix_length_counts() -> None:
    router = router_of(1, 2, length=1024)
    assert ask(router, SHOP[:1024] + BANK) == (1, "least-outstanding")
    assert ask(router, SHOP[:1024] + bytes(60_000)) == (1, "prefix-match")


def test_an_identifier_keeps_callers_with_the_same_prompt_apart() -> None:
    router = router_of(1, 2)
    assert ask(router, SHOP, prefix=b"app-1") == (1, "least-outstanding")
    assert ask(router, SHOP, prefix=b"app-2") == (2, "least-outstanding")
    assert ask(router, SHOP, prefix=b"app-2") == (2, "prefix-match")
    assert ask(router, SHOP, prefix=b"app-1") == (1, "prefix-match")


def test_short_prompts_go_together_only_by_their_identifier() -> None:
    router = router_of(1, 2, 3)
    assert ask(router, b"hi", prefix=b"app-1") == (1, "least-outstanding")
    assert ask(router, b"ho", prefix=b"app-1") == (1, "prefix-match")
    assert ask(router, b"hi") == (2, "least-outstanding")
    assert ask(router, b"hi") == (3, "least-outstanding")


def test_a_copy_that_died_has_lost_its_cache() -> None:
    router = router_of(1, 2)
    assert ask(router, SHOP) == (1, "least-outstanding")
    router.set_healthy(1, False)
    router.set_healthy(1, True)
    assert ask(router, SHOP) == (2, "least-outstanding")
    assert ask(router, SHOP) == (2, "prefix-match")


def test_a_copy_that_left_the_routes_is_never_matched() -> None:
    router = router_of(1, 2)
    assert ask(router, SHOP) == (1, "least-outstanding")
    router.replace(routes(2, 3))
    assert ask(router, SHOP) == (2, "least-outstanding")


def test_new_routes_keep_what_was_learned_unless_the_setting_changed() -> None:
    router = router_of(1, 2)
    ask(router, SHOP)
    router.replace(routes(1, 2, 3))
    assert ask(router, SHOP) == (1, "prefix-match")
    router.replace(routes(1, 2, 3, length=1024))
    assert router.snapshot()["variants"][0]["blocks_known"] == 0
    assert ask(router, SHOP) == (2, "least-outstanding")
    assert ask(router, SHOP) == (2, "prefix-match")
    router.replace(routes(1, 2, 3, length=1024, threshold=3))
    assert router.snapshot()["variants"][0]["blocks_known"] == 0
    assert ask(router, SHOP) == (3, "least-outstanding")


def test_a_single_copy_learns_for_the_time_when_it_is_not_alone() -> None:
    router = router_of(1)
    assert ask(router, SHOP) == (1, "only-copy")
    router.replace(routes(2, 1))
    assert ask(router, SHOP) == (1, "prefix-match")


def test_a_retry_goes_elsewhere_and_the_prompt_is_known_there() -> None:
    router = router_of(1, 2, threshold=1)
    assert ask(router, SHOP) == (1, "least-outstanding")
    assert ask(router, SHOP, exclude=(1,)) == (2, "retry")
    router.set_healthy(1, False)
    router.set_healthy(1, True)  # its cache is lost
    assert ask(router, SHOP) == (2, "prefix-match")


def test_a_retry_waits_at_a_paused_copy_before_it_meets_the_one_that_failed_it() -> None:
    router = router_of(1, 2)
    router.set_paused(1, True)
    assert ask(router, SHOP) == (2, "only-copy")
    assert ask(router, SHOP, exclude=(2,)) == (1, "retry")


def test_full_copies_refuse() -> None:
    router = router_of(1, 2, threshold=5, outstanding_max=1)
    assert [ask(router, SHOP) for _ in range(2)] == [
        (1, "least-outstanding"),
        (2, "prefix-spill"),
    ]
    assert router.pick(prompt=SHOP) == NoRoute("all-copies-full", 0.1)


def test_the_snapshot_tells_the_setting_and_what_was_learned() -> None:
    router = router_of(1, 2, length=1024)
    ask(router, SHOP)
    told = router.snapshot()["variants"][0]
    assert told["strategy"] == "PREFIX_AWARE"
    assert (told["prefix_length_max"], told["concurrency_threshold"]) == (1024, 4)
    assert told["blocks_known"] == 8


# the index


@pytest.mark.parametrize(
    ("length", "ends"),
    [
        (0, ()),
        (100, (100,)),
        (1000, (128, 256, 384, 512, 640, 768, 896, 1000)),
        (1300, (128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1296, 1300)),
    ],
)
def test_blocks_are_short_at_the_beginning(length: int, ends: tuple[int, ...]) -> None:
    assert block_ends(length) == ends


def test_the_longest_prompt_has_few_blocks() -> None:
    ends = block_ends(65_536)
    assert (len(ends), ends[-1]) == (44, 65_536)


def test_the_least_recently_used_prefix_is_forgotten_first() -> None:
    index = PrefixIndex(1024, blocks_max=16)
    state = CopyState(1, "i-1", "blue", 10)
    keys = {name: index.keys(name * 1024, None) for name in (b"a", b"b", b"c")}
    assert [len(found) for found in keys.values()] == [8, 8, 8]
    index.remember(keys[b"a"], state)
    index.remember(keys[b"b"], state)
    index.remember(keys[b"a"], state)
    index.remember(keys[b"c"], state)
    index.check_invariants()
    assert [len(index.holders(keys[name])) for name in (b"a", b"b", b"c")] == [8, 0, 8]


def test_of_one_prompt_the_end_is_forgotten_before_the_beginning() -> None:
    index = PrefixIndex(1024, blocks_max=10)
    state = CopyState(1, "i-1", "blue", 10)
    first, second = index.keys(b"a" * 1024, None), index.keys(b"b" * 1024, None)
    index.remember(first, state)
    index.remember(second, state)
    assert [len(index.holders(first)), len(index.holders(second))] == [2, 8]
    assert len(index) == 10


# what a copy holds


def holding(cache_tokens: int, *, life: int = 0) -> CopyState:
    state = CopyState(1, "i-1", "blue", 10)
    state.cache_bytes = 4 * cache_tokens
    state.life = life
    return state


def held(index: PrefixIndex, state: CopyState, *names: bytes) -> list[int]:
    """Blocks of each prompt that the index thinks the copy holds, from the beginning."""
    index.check_invariants()
    return [
        sum(any(one is state for one, _ in holders) for holders in index.holders(keys))
        for keys in (index.keys(name * 1024, None) for name in names)
    ]


def test_a_copy_forgets_what_its_cache_has_no_space_for_least_recently_used_first() -> None:
    """512 tokens are 2048 bytes: two prompts of 1024. Another copy's cache is its own."""
    index = PrefixIndex(1024)
    small, large = holding(512), CopyState(2, "i-2", "blue", 10)
    keys = {name: index.keys(name * 1024, None) for name in (b"a", b"b", b"c")}
    for name in (b"a", b"b", b"a", b"c"):
        index.remember(keys[name], small, 1024)
        index.remember(keys[name], large, 1024)
    assert held(index, small, b"a", b"b", b"c") == [8, 0, 8]
    assert held(index, large, b"a", b"b", b"c") == [8, 8, 8]


def test_of_a_prompt_that_is_half_forgotten_the_beginning_is_left() -> None:
    index = PrefixIndex(1024)
    state = holding(320)  # ten blocks
    for name in (b"a", b"b"):
        index.remember(index.keys(name * 1024, None), state, 1024)
    assert held(index, state, b"a", b"b") == [2, 8]


def test_a_cache_that_holds_less_than_a_block_holds_nothing() -> None:
    index = PrefixIndex(1024)
    state = holding(10)
    index.remember(index.keys(b"a" * 1024, None), state, 1024)
    assert held(index, state, b"a") == [0]
    assert len(index) == 0


def test_the_rest_of_a_prompt_takes_its_place_too() -> None:
    """Four times 512 bytes that no other prompt has: half of what the cache holds."""
    index = PrefixIndex(1024)
    state = holding(1024)
    a, b = index.keys(b"a" * 1024, None), index.keys(b"b" * 1024, None)
    index.remember(a, state, 1024)
    for _ in range(4):
        index.remember(b, state, 1024 + 512)
    assert held(index, state, b"a", b"b") == [8, 8]
    index.remember(b, state, 1024 + 512)
    assert held(index, state, b"a", b"b") == [4, 8], "what is least recently used went first"


def test_a_copy_that_died_and_came_back_begins_with_an_empty_list() -> None:
    index = PrefixIndex(1024)
    state = holding(256)
    a, b = index.keys(b"a" * 1024, None), index.keys(b"b" * 1024, None)
    index.remember(a, state, 1024)
    state.life += 1
    index.remember(b[:4], state, 512)
    assert held(index, state, b"a", b"b") == [0, 4]


def test_copies_that_are_gone_leave_nothing_behind() -> None:
    """A beginning that is always in use, and a new copy for it each time: no list grows."""
    index = PrefixIndex(1024)
    keys = index.keys(b"a" * 1024, None)
    for number in range(50):
        state = CopyState(number, "i", "blue", 10)
        index.remember(keys, state, 1024)
        index.check_invariants()
        state.life += 1
        assert [len(one) for one in index.holders(keys)] == [1] * 8


def test_what_a_copy_has_forgotten_by_now_is_no_reason_to_go_there() -> None:
    """Its cache holds one such prompt; the router sends the first one where there is least to do
    again."""
    router = router_of(1, 2, cache_tokens=512)
    assert ask(router, SHOP) == (1, "least-outstanding")
    assert ask(router, SHOP) == (1, "prefix-match")
    assert ask(router, BANK) == (2, "least-outstanding")
    assert ask(router, SHOP.upper()) == (2, "least-outstanding")
    assert ask(router, BANK) == (1, "least-outstanding")
