"""Ways of sending between three regions that `regions_twin.py` compares, and what they are sent."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.core.batching.generation_steps import GenerationSpec
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    ROUND_ROBIN,
)
from penstock.sim.regions.regions_scenario import (
    Balanced,
    InTurn,
    Policy,
    Pushing,
    RegionScenario,
    RegionsScenario,
)

#: Twelve copies as in scenarios/assistant_prefix.toml, bought in proportion to the users, which is
#: best for region_local. Peaks as those of America, Europe and East Asia lie apart.
SCENARIO = RegionsScenario(
    regions=(
        RegionScenario(name="america", copies=5, share=5 / 12, peak=0.0),
        RegionScenario(name="asia", copies=4, share=4 / 12, peak=9 / 24),
        RegionScenario(name="europe", copies=3, share=3 / 12, peak=17 / 24),
    ),
    delay_s=((0.005, 0.08, 0.04), (0.08, 0.005, 0.08), (0.04, 0.08, 0.005)),
    generation=GenerationSpec(
        sequences_max=8,
        step_s=0.0133,
        sequence_s=0.00145,
        prefill_token_s=0.00023,
        prefixes_cached_max=16,
        sigma=0.1,
    ),
    rate_rps=0.0,
    length_s=120.0,
    day_s=120.0,
    swing=0.8,
    prefix_tokens=1024,
)

#: Slots of a copy that a region tells of, and how many requests it may have for its cache.
_PUSHED = ((8, 8), (7, 9), (7, 8), (7, 10), (8, 9), (6, 8))
_LOR = LEAST_OUTSTANDING_REQUESTS
#: Of a copy: its 8 sequences, and how many may wait behind them for its cache.
POLICIES: dict[str, list[Policy]] = {
    "pushing": [Pushing(slots=slots, threshold=threshold) for slots, threshold in _PUSHED],
    "pushing_at_home": [
        Pushing(slots=slots, threshold=threshold, local=True) for slots, threshold in _PUSHED
    ],
    "region_local": [
        *(
            Balanced(strategy=PREFIX_AWARE, everywhere=False, threshold=t, outstanding_max=m)
            for t in (8, 9, 10)
            for m in (0, t)
        ),
        *(Balanced(strategy=_LOR, everywhere=False, outstanding_max=m) for m in (0, 8)),
    ],
    "round_robin": [
        Balanced(strategy=ROUND_ROBIN, everywhere=True, outstanding_max=m) for m in (0, 3, 4, 5, 8)
    ],
    "round_robin_unbounded": [Balanced(strategy=ROUND_ROBIN, everywhere=True)],
    "least_outstanding": [
        Balanced(strategy=_LOR, everywhere=True, outstanding_max=m) for m in (0, 4)
    ],
    "prefix_aware": [
        Balanced(strategy=PREFIX_AWARE, everywhere=True, threshold=t) for t in (3, 4, 5, 6)
    ],
}
#: Another demand: what of the scenario is changed, and with which seeds. Twice as many prefixes,
#: nearly alike in demand, are more than all caches of a region hold together. What a way of sending
#: makes of caches is worth as much as a prefix is long.
MIXES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "other seeds": ({}, (3, 4)),
    "many prefixes": ({"prefixes": 48, "prefixes_shared": 16, "prefix_skew": 0.4}, (1, 2)),
    "prefixes of 512 tokens": ({"prefix_tokens": 512}, (1, 2)),
    "prefixes of 1,536 tokens": ({"prefix_tokens": 1536}, (1, 2)),
    "prefixes of 2,048 tokens": ({"prefix_tokens": 2048}, (1, 2)),
}
#: One queue for the users of all regions, over all copies, and a copy is given what it can begin
#: with at once: no place is empty while anybody waits.
ORACLE = Balanced(strategy=_LOR, everywhere=True, outstanding_max=8, together=True)


def oracles(scenario: RegionsScenario) -> RegionsScenario:
    """The same demand where every prompt finds its prefix, and no way takes any time."""
    count = len(scenario.regions)
    return dataclasses.replace(
        scenario, delay_s=tuple((0.0,) * count for _ in range(count)), prefix_tokens=0
    )


def told(policy: Policy) -> str:
    words = [policy.strategy]
    if isinstance(policy, Pushing):
        words.append(f"slots {policy.slots}")
    if policy.threshold:
        words.append(f"threshold {policy.threshold}")
    if isinstance(policy, Balanced):
        words.append(f"at most {policy.outstanding_max}" if policy.outstanding_max else "unbounded")
    if isinstance(policy, InTurn):
        bound = f"at most {policy.in_region_max}" if policy.in_region_max else "unbounded"
        words.append(f"regions in turn, {bound} in each")
    return ", ".join(words)
