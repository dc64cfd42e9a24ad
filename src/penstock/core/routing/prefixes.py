"""Scorer of prefixes: how much of a prompt a copy has been sent before, and has still.

A prompt is cut into blocks from its beginning, and each block is known by a hash of itself and of
all before it, so equal keys mean equal beginnings: a radix tree without pointers, as prefix caches
of generation engines keep it (Kwon et al., 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention"). Under each key stand the copies that were sent such a prompt.
Blocks grow with their distance from the beginning: a prompt of 64 KiB has about 40, and a match is
known to an eighth of its length.

What a copy still holds follows from what it was sent: its engine forgets the least recently used
blocks, of one prompt the last ones first, and so does its list here, which holds as many bytes as
the engine says that its cache does (`CopyState.cache_bytes`; 0: it does not say, and only the bound
of all blocks applies). The rest of a prompt behind the blocks takes its place as well, under no
key. What others send there and what is generated is not seen: a list errs on the side of too much.
A copy that dies loses its cache: its `life` ends, and what is written under an earlier life counts
no more.

Python's own hash serves: it is keyed per process, so nobody can craft prompts that meet, and a
chance meeting costs one cold prefill. Its values never reach a decision, only their equality.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Final

from penstock.core.routing.copies import CopyState

#: About 30 tokens: less is not worth waiting for a certain copy.
_BLOCK_BYTES_MIN = 128
#: Some 400 bytes each: 26 MB per variant, the beginnings of several thousand prompts.
BLOCKS_MAX = 65_536
#: Of English text, roughly, with the vocabularies of today.
TOKEN_BYTES: Final = 4
#: What stands under no key is written down in such parts of a cache: it is never looked up.
_RESTS: Final = 32
#: Above every hash: what names a rest.
_FIRST_REST: Final = 1 << 64

#: A copy, and the life in which it was sent the block.
Holder = tuple[CopyState, int]


class _Cache:
    """What one copy holds in one life."""

    __slots__ = ("blocks", "known", "life", "rest", "used")

    def __init__(self, life: int) -> None:
        self.life = life
        self.blocks: OrderedDict[int, int] = OrderedDict()  #: key -> bytes; oldest use first
        self.known = 0  #: blocks that stand under a key
        self.used = 0  #: bytes
        self.rest = 0  #: bytes behind blocks that are not written down yet


class PrefixIndex:
    """Which copies of one variant hold which beginnings. Bounded by `blocks_max`."""

    __slots__ = (
        "_blocks", "_blocks_max", "_caches", "_rests", "_sizes", "ends", "prefix_length_max",
    )  # fmt: skip

    def __init__(self, prefix_length_max: int, blocks_max: int = BLOCKS_MAX) -> None:
        self.prefix_length_max = prefix_length_max
        self.ends = block_ends(prefix_length_max)  #: where each block ends, bytes
        #: of each block; the first is that of a salt alone, too
        self._sizes = [after - before for before, after in pairwise((0, *self.ends))] or [0]
        self._blocks: OrderedDict[int, tuple[Holder, ...]] = OrderedDict()  #: oldest use first
        self._blocks_max = blocks_max
        self._caches: dict[CopyState, _Cache] = {}
        self._rests = _FIRST_REST  #: the next one's name

    def __len__(self) -> int:
        """Blocks known."""
        return len(self._blocks)

    def keys(self, prompt: bytes, salt: bytes | None) -> list[int]:
        """One key per whole block within the length that counts; `salt` keeps callers apart.

        A prompt without a whole block has one key if there is a salt: that of the salt alone.
        """
        keys: list[int] = []
        key, start, length = hash(salt or b""), 0, len(prompt)
        for end in self.ends:
            if end > length:
                break
            key = hash((key, prompt[start:end]))
            keys.append(key)
            start = end
        if not keys and salt:
            keys.append(key)
        return keys

    def holders(self, keys: list[int]) -> list[tuple[Holder, ...]]:
        """Who holds the first block, the first two, ...: up to the first that nobody does.

        In each the copy that was sent it last comes first.
        """
        blocks = self._blocks
        found: list[tuple[Holder, ...]] = []
        for key in keys:
            holders = blocks.get(key)
            if holders is None:
                break
            found.append(holders)
        return found

    def remember(self, keys: list[int], state: CopyState, length: int = 0) -> None:
        """The copy is sent a prompt with these keys, of so many bytes in all."""
        if not keys:
            return
        cache = self._cache_of(state)
        holder, sizes, limit = (state, state.life), self._sizes, state.cache_bytes
        if limit and self.ends:
            self._remember_rest(cache, length - self.ends[len(keys) - 1], limit)
        # The last block first: a beginning must not be forgotten before what it begins.
        for at in range(len(keys) - 1, -1, -1):
            key = keys[at]
            if key not in cache.blocks:
                cache.known += 1
                cache.used += sizes[at]
            cache.blocks[key] = sizes[at]
            cache.blocks.move_to_end(key)
            self._hold(key, holder)
        while limit and cache.used > limit and cache.known:
            self._forget(next(iter(cache.blocks)), state)
        while len(self._blocks) > self._blocks_max:
            key, holders = self._blocks.popitem(last=False)
            for held, _ in holders:
                self._drop(key, held)

    def _cache_of(self, state: CopyState) -> _Cache:
        cache = self._caches.get(state)
        if cache is not None and cache.life != state.life:
            for key in [key for key in cache.blocks if key < _FIRST_REST]:
                self._forget(key, state)
            cache = None
        if cache is None:
            cache = self._caches[state] = _Cache(state.life)
        return cache

    def _remember_rest(self, cache: _Cache, length: int, limit: int) -> None:
        cache.rest += max(0, length)
        if cache.rest * _RESTS > limit:
            cache.blocks[self._rests] = cache.rest
            cache.used += cache.rest
            cache.rest = 0
            self._rests += 1

    def _hold(self, key: int, holder: Holder) -> None:
        """Under the key the holder comes first; those that died since are found out here."""
        blocks = self._blocks
        holders = blocks.get(key)
        if holders is None:
            blocks[key] = (holder,)
            return
        blocks.move_to_end(key)
        if holders[0] == holder:
            return
        blocks[key] = (holder, *(one for one in holders if one != holder and is_alive(one)))
        for held in holders:
            if not is_alive(held):
                self._drop(key, held[0])

    def _forget(self, key: int, state: CopyState) -> None:
        """The copy does not hold a block any more."""
        self._drop(key, state)
        if key >= _FIRST_REST:
            return
        left = tuple(held for held in self._blocks[key] if held[0] is not state)
        if left:
            self._blocks[key] = left
        else:
            del self._blocks[key]

    def _drop(self, key: int, state: CopyState) -> None:
        """From the copy's own list alone."""
        cache = self._caches[state]
        cache.used -= cache.blocks.pop(key)
        cache.known -= key < _FIRST_REST
        if not cache.known:
            del self._caches[state]

    def check_invariants(self) -> None:
        assert len(self._blocks) <= self._blocks_max, "more blocks than allowed"
        for key, holders in self._blocks.items():
            assert holders, "a block that nobody holds"
            assert len({state for state, _ in holders}) == len(holders), "a block is held twice"
            for state, life in holders:
                cache = self._caches[state]
                assert key in cache.blocks, "it is not in the copy's list"
                assert cache.life == life, "the list is of another life"
        for cache_of, cache in self._caches.items():
            known = sum(key < _FIRST_REST for key in cache.blocks)
            assert known == cache.known > 0, "a copy without a block is kept"
            assert sum(cache.blocks.values()) == cache.used, "bytes are counted wrongly"
            for key in cache.blocks:
                held = self._blocks.get(key, ())
                assert key >= _FIRST_REST or any(one is cache_of for one, _ in held), (
                    "half forgotten"
                )


def is_alive(holder: Holder) -> bool:
    """Whether the copy is in the life in which it was sent the block."""
    state, life = holder
    return state.life == life


def block_ends(length_max: int) -> tuple[int, ...]:
    """Where blocks end: every 128 bytes at first, then an eighth further each, last at the end."""
    ends: list[int] = []
    end = 0
    while end < length_max:
        end = min(end + max(_BLOCK_BYTES_MIN, end // 8), length_max)
        ends.append(end)
    return tuple(ends)
