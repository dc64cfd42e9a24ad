"""Scorer of prefixes: how much of a prompt a copy has been sent before.

A prompt is cut into blocks from its beginning, and each block is known by a hash of itself and of
all before it, so equal keys mean equal beginnings: a radix tree without pointers, as prefix caches
of generation engines keep it (Kwon et al., 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention"). Under each key stand the copies that were sent such a prompt.
Blocks grow with their distance from the beginning: a prompt of 64 KiB has about 40, and a match is
known to an eighth of its length.

What a copy still holds is not known here, only what it was sent; the least recently used blocks are
forgotten first, here as there. A copy that dies loses its cache: its `life` ends, and what is
written under an earlier life counts no more.

Python's own hash serves: it is keyed per process, so nobody can craft prompts that meet, and a
chance meeting costs one cold prefill. Its values never reach a decision, only their equality.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.core.routing.copies import CopyState

#: About 30 tokens: less is not worth waiting for a certain copy.
_BLOCK_BYTES_MIN = 128
#: Some 200 bytes each: 13 MB per variant, the beginnings of several thousand prompts.
BLOCKS_MAX = 65_536

#: A copy, and the life in which it was sent the block.
Holder = tuple[CopyState, int]


class PrefixIndex:
    """Which copies of one variant were sent which beginnings. Bounded by `blocks_max`."""

    __slots__ = ("_blocks", "_blocks_max", "ends", "prefix_length_max")

    def __init__(self, prefix_length_max: int, blocks_max: int = BLOCKS_MAX) -> None:
        self.prefix_length_max = prefix_length_max
        self.ends = block_ends(prefix_length_max)  #: where each block ends, bytes
        self._blocks: OrderedDict[int, tuple[Holder, ...]] = OrderedDict()  #: oldest use first
        self._blocks_max = blocks_max

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
        """Who was sent the first block, the first two, ...: up to the first that nobody was.

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

    def remember(self, keys: list[int], state: CopyState) -> None:
        """The copy is sent a prompt with these keys."""
        blocks, holder = self._blocks, (state, state.life)
        # The last block first: a beginning must not be forgotten before what it begins.
        for key in reversed(keys):
            holders = blocks.get(key)
            if holders is None:
                blocks[key] = (holder,)
                continue
            blocks.move_to_end(key)
            if holders[0] != holder:
                others = (held for held in holders if held != holder and is_alive(held))
                blocks[key] = (holder, *others)
        while len(blocks) > self._blocks_max:
            blocks.popitem(last=False)

    def check_invariants(self) -> None:
        assert len(self._blocks) <= self._blocks_max, "more blocks than allowed"
        for holders in self._blocks.values():
            assert holders, "a block that nobody holds"
            assert len(set(holders)) == len(holders), "a copy holds a block twice"


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
