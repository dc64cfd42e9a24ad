"""PREFIX_AWARE: prompts that begin alike go to the copy whose cache has seen their beginning.

    filter   copies with room, below the concurrency threshold or nearly as idle as any (`_NEARLY`)
    score    bytes of the prompt, up to the prefix length, that the copy holds still (`prefixes.py`)
    pick     the longest match; among equals the least outstanding copy

A match counts if it covers at least half of what is looked at. Less of it (everybody's greeting,
say) saves less than half a prefill, and would gather strangers on one copy while others idle. Where
no copy matches the least outstanding one is taken, and learns the prefix (`least-outstanding`);
where all that match are at the threshold too (`prefix-spill`), so a popular prefix spreads over as
many copies as its load needs.

At the threshold a copy is passed over only for one that has less to do. Where all have as much, as
near the limit of an endpoint, another copy would let the prompt wait as long and then read it too,
at everybody's cost there: prompts stay with their prefix, and where an endpoint is half idle none
waits for its cache.

Where engines do not say how much they hold, among equals the copy that was sent it last is taken:
it is the likeliest to have the prefix still. Taking the least outstanding of all that ever had it
would, in time, spread every prefix over every copy, and no cache would hold them all (in
simulation, assistant_prefix.toml near its limit: nine first tokens in ten within 0.10 s instead of
0.25 s). Where they do, a copy that is passed over forgets by itself, here as there, and equals are
as many as their load needs.

Near its limit an endpoint loses its caches all at once where matches are believed that are none: a
cold prefill takes its copy longer, so its places are full when the next such prompts come, which
are then cold elsewhere (three regions in the twin, bench/regions_twin.py). There an answer that
ends is worth waiting for, about as long as a prefill.

`salt` is Prefix-Aware-Id: it keeps equal beginnings of different callers apart. Prompts that are
too short to compare go together if they have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.core.routing.copies import CopyState
from penstock.core.routing.pickers import least_outstanding
from penstock.core.routing.prefixes import PrefixIndex, is_alive

#: A copy at the threshold takes a prompt that it holds while no other has so many fewer: nothing is
#: moved for a difference of one (as in `rebalance.py`). With more, queues of popular prefixes grow
#: beside idle places (docs/decisions/0019).
_NEARLY: Final = 2


class PrefixAware:
    """The strategy's state for one variant."""

    __slots__ = ("_index", "_threshold")

    def __init__(self, *, prefix_length_max: int, concurrency_threshold: int) -> None:
        self._index = PrefixIndex(prefix_length_max)
        self._threshold = concurrency_threshold

    def serves(self, *, prefix_length_max: int, concurrency_threshold: int) -> bool:
        """Whether new routes want just this, so that what was learned can be kept."""
        return (self._index.prefix_length_max, self._threshold) == (
            prefix_length_max,
            concurrency_threshold,
        )

    def choose(
        self,
        copies: Sequence[CopyState],
        prompt: bytes,
        salt: bytes | None,
        least: Callable[[Sequence[CopyState]], CopyState | None] = least_outstanding,
    ) -> tuple[CopyState | None, str]:
        """A copy with room among `copies` (all open ones of the variant), and why it. `least`:
        the one that is taken among equals."""
        index = self._index
        keys = index.keys(prompt, salt)
        length = min(len(prompt), index.prefix_length_max)
        state, reason = self._longest(copies, keys, length, least)
        if state is None:
            state = least(copies)
        if state is not None:
            index.remember(keys, state, len(prompt))
        return state, reason

    def remember(self, prompt: bytes, salt: bytes | None, state: CopyState) -> None:
        """The copy was picked for another reason than its cache, and has the prompt now."""
        self._index.remember(self._index.keys(prompt, salt), state, len(prompt))

    def _longest(
        self,
        copies: Sequence[CopyState],
        keys: list[int],
        length: int,
        least: Callable[[Sequence[CopyState]], CopyState | None],
    ) -> tuple[CopyState | None, str]:
        ends = self._index.ends
        found = self._index.holders(keys)
        reason = "least-outstanding"
        looked_at = None
        while found and 2 * ends[len(found) - 1] >= length:
            holders = found.pop()
            if holders == looked_at:
                continue  # one block shorter, the same copies
            looked_at = holders
            able = [
                holder[0]
                for holder in holders
                if is_alive(holder) and holder[0].healthy and not holder[0].paused
            ]
            reason = "prefix-spill" if able else reason
            state = self._among(able, copies, least)
            if state is not None:
                return state, "prefix-match"
        return None, reason

    def _among(
        self,
        equals: list[CopyState],
        copies: Sequence[CopyState],
        least: Callable[[Sequence[CopyState]], CopyState | None],
    ) -> CopyState | None:
        """Of copies that hold as much, in the order in which they were sent it last."""
        roomy = [one for one in equals if one.outstanding < one.outstanding_max]
        below = [one for one in roomy if one.outstanding + one.others < self._threshold]
        if roomy and not below:
            open_ = [one for one in copies if one.outstanding < one.outstanding_max]
            fewest = min(one.outstanding + one.others for one in open_ or roomy)
            below = [one for one in roomy if one.outstanding + one.others < fewest + _NEARLY]
        if all(one.cache_bytes for one in below):
            return least(below)
        return below[0]

    def snapshot(self) -> dict[str, Any]:
        return {
            "prefix_length_max": self._index.prefix_length_max,
            "concurrency_threshold": self._threshold,
            "blocks_known": len(self._index),
        }

    def check_invariants(self) -> None:
        self._index.check_invariants()
