"""Scorer of prefixes: how much of a prompt a copy was sent before, and still holds.

A prompt is cut into blocks from its beginning. The key of each block is a hash of the block and of
all before it, so equal keys mean equal beginnings: a radix tree without pointers, as prefix caches
of generation engines keep it (Kwon et al., 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention"). Each key has the copies that were sent such a prompt. Blocks
grow with their distance from the beginning: a prompt of 64 KiB has about 40, and a match is known
to an eighth of its length.

What a copy still holds is modelled by a list per copy. An engine forgets the least recently used
blocks, the last ones of a prompt first, and so does the list. It holds as many bytes as the engine
reports for its cache (`CopyState.cache_bytes`; 0: not reported, and only the bound of all blocks
applies). The rest of a prompt behind its last block takes room in it as well, without a key.
Prompts sent by others and generated text are not seen here, so a list rather overestimates. A copy
that dies loses its cache: its `life` changes, and entries of an earlier life no longer count.

Python's own hash is enough: it has a random key per process, so nobody can craft collisions, and a
chance collision costs one cold prefill. Hash values never decide anything, only their equality.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Final

from penstock.core.routing.copies import CopyState

#: Size of the first blocks: about 30 tokens; a shorter match is not worth waiting for a certain
#: copy.
_BLOCK_BYTES_MIN = 128
#: Some 400 bytes of memory each: 26 MB per variant, for the beginnings of several thousand prompts.
BLOCKS_MAX = 65_536
#: Rough value for English text with today's vocabularies.
TOKEN_BYTES: Final = 4
#: Rests without a key are recorded in such parts of a cache: they are never looked up.
_RESTS: Final = 32
#: Larger than every hash: the first name of a rest.
_FIRST_REST: Final = 1 << 64

#: A copy, and the life in which it was sent the block.
Holder = tuple[CopyState, int]


class _Cache:
    """What one copy holds in one life."""

    __slots__ = ("blocks", "known", "life", "rest", "used")

    def __init__(self, life: int) -> None:
        self.life = life
        #: key -> bytes; the block unused for longest comes first
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.known = 0  #: number of blocks with a key
        self.used = 0  #: bytes in use
        self.rest = 0  #: bytes behind last blocks that are not recorded yet


class PrefixIndex:
    """Which copies of one variant hold which beginnings. Bounded by `blocks_max`."""

    __slots__ = (
        "_blocks", "_blocks_max", "_caches", "_rests", "_sizes", "ends", "prefix_length_max",
    )  # fmt: skip

    def __init__(self, prefix_length_max: int, blocks_max: int = BLOCKS_MAX) -> None:
        self.prefix_length_max = prefix_length_max
        self.ends = block_ends(prefix_length_max)  #: where each block ends, bytes
        #: bytes of each block; the first size is also used for a key of a salt alone
        self._sizes = [after - before for before, after in pairwise((0, *self.ends))] or [0]
        #: key -> holders; the block unused for longest comes first
        self._blocks: OrderedDict[int, tuple[Holder, ...]] = OrderedDict()
        self._blocks_max = blocks_max
        self._caches: dict[CopyState, _Cache] = {}
        self._rests = _FIRST_REST  #: the next rest's name

    def __len__(self) -> int:
        """Number of known blocks."""
        return len(self._blocks)

    def keys(self, prompt: bytes, salt: bytes | None) -> list[int]:
        """One key per whole block within the compared length; `salt` keeps callers apart.

        A prompt without a whole block has one key if there is a salt: the key of the salt alone.
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
        """Holders of the first block, of the first two, and so on, up to the first without holders.

        In each, the copy that was sent it last comes first.
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
        """The copy is sent a prompt with these keys, of `length` bytes in all."""
        if not keys:
            return
        cache = self._cache_of(state)
        holder, sizes, limit = (state, state.life), self._sizes, state.cache_bytes
        if limit and self.ends:
            self._remember_rest(cache, length - self.ends[len(keys) - 1], limit)
        # The last block first: a beginning must not be forgotten before the blocks that follow it.
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
        """Puts the holder first under the key; removes holders that have died since."""
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
        """The copy does not hold the block any more."""
        self._drop(key, state)
        if key >= _FIRST_REST:
            return
        left = tuple(held for held in self._blocks[key] if held[0] is not state)
        if left:
            self._blocks[key] = left
        else:
            del self._blocks[key]

    def _drop(self, key: int, state: CopyState) -> None:
        """Removes the block from the copy's own list only."""
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
    """Whether the copy is still in the life in which it was sent the block."""
    state, life = holder
    return state.life == life


def block_ends(length_max: int) -> tuple[int, ...]:
    """Where blocks end: every 128 bytes at first, then each an eighth further, up to the end."""
    ends: list[int] = []
    end = 0
    while end < length_max:
        end = min(end + max(_BLOCK_BYTES_MIN, end // 8), length_max)
        ends.append(end)
    return tuple(ends)
