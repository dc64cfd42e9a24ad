"""PREFIX_AWARE: prompts that begin alike go to the copy whose cache has seen their beginning.

    filter   copies with room, below the concurrency threshold or nearly as idle as any (`_NEARLY`)
    score    bytes of the prompt, up to the prefix length, that the copy still holds (`prefixes.py`)
    pick     the longest match; among equals the least outstanding copy

A match counts if it covers at least half of the compared length. A shorter one (a common greeting,
say) saves less than half a prefill, and would gather unrelated prompts on one copy while others are
idle. Where no copy matches, the least outstanding one is taken and learns the prefix
(`least-outstanding`). The same happens where all matching copies are at the threshold
(`prefix-spill`), so a popular prefix spreads over as many copies as its load needs.

A copy at the threshold is passed over only for one that has less to do. Where all have as much, as
near the limit of an endpoint, the prompt would wait as long on another copy and then need a prefill
too, which delays all others there. So prompts stay with their prefix; and where an endpoint is half
idle, no prompt waits for its cache.

Where engines do not report their cache size, the copy that was sent the prefix last is taken among
equals: it is the likeliest to have the prefix still. Taking the least outstanding of all that ever
had it would, in time, spread every prefix over every copy, and no cache would hold them all (in
simulation, assistant_prefix.toml near its limit: nine first tokens in ten within 0.10 s instead of
0.25 s). Where engines report it, the index forgets prefixes as their caches do, and there are as
many equals as the load needs.

Near its limit an endpoint loses its caches all at once if it trusts matches that are none: a cold
prefill takes longer, so the copy is full when the next such prompts come, which are then cold on
another copy (three regions in the twin, bench/regions_twin.py). There it is worth waiting for an
answer to end, for about as long as a prefill.

`salt` is Prefix-Aware-Id: it keeps equal beginnings of different callers apart. Prompts that are
too short to compare go to the same copy if they have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.core.routing.copies import CopyState
from penstock.core.routing.pickers import least_outstanding
from penstock.core.routing.prefixes import PrefixIndex, is_alive

#: A copy at the threshold takes a prompt that it holds unless another copy has this many fewer
#: requests: a difference of one moves nothing (as in `rebalance.py`). A larger value lets queues of
#: popular prefixes grow beside idle copies (docs/decisions/0019).
_NEARLY: Final = 2


class PrefixAware:
    """The strategy's state for one variant."""

    __slots__ = ("_index", "_threshold")

    def __init__(self, *, prefix_length_max: int, concurrency_threshold: int) -> None:
        self._index = PrefixIndex(prefix_length_max)
        self._threshold = concurrency_threshold

    def serves(self, *, prefix_length_max: int, concurrency_threshold: int) -> bool:
        """Whether the new routes need the same strategy, so that what was learned can be kept."""
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
        """A copy with room among `copies` (all open ones of the variant), and the reason. `least`:
        chooses among equals."""
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
        """The copy was picked for a reason other than its cache, and has the prompt now."""
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
                continue  # the same copies, with a match one block shorter
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
        """Chooses among copies with an equal match; the one that was sent it last comes first."""
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
