"""Whether a new generation answers as well as the one that it replaces, by what both answered.

While a part of the traffic is the new generation's, requests that one generation has answered are
copied to the other one (`gateway/dispatch/mirroring/comparing.py`). So there are pairs: one
request, two answers. Three shares are watched, each with a test that may be looked at at any time
(`sequential.py`):

    answers   of the pairs that both answered: those that disagree
    errors    of the pairs that only one answered: those that the new one failed; and, of all pairs:
              those that only the new one failed
    time      of the pairs that both answered: those for which the new one took longer than
              `slower_max` times what the old one took; of a stream until its first part or its end

Where another endpoint judges the answers (`scorer.py`), a fourth one is watched, and says nothing
for the new generation:

    scorer    of the pairs that the scorer was asked about: those for which it failed. They are in
              no other test

WORSE: one of them is surely above its bound (a half for the first share of errors, for time and for
the scorer). AS_GOOD: all of them are surely below. The level is shared out among the tests, so that
a generation that keeps all bounds is sent back with a probability of at most 1 - `confidence`, and
one that breaks a bound is promoted with no more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.rollout.sequential import evidence_above, evidence_below

WORSE: Final = "worse"
AS_GOOD: Final = "as-good"
UNDECIDED: Final = "undecided"

# What became of a pair.
AGREE: Final = "agree"
DIFFER: Final = "differ"
SLOWER: Final = "slower"  #: counted beside one of the two above
NEW_FAILED: Final = "new-failed"
OLD_FAILED: Final = "old-failed"
BOTH_FAILED: Final = "both-failed"
#: The pair has only one answer, as the copy was dropped or the caller left; or its scorer had no
#: room for it.
UNPAIRED: Final = "unpaired"
SCORED: Final = "scored"  #: counted beside agree or differ: it was the scorer that said so
#: The scorer failed. Written `unscored:CODE`, with the code of its error.
UNSCORED: Final = "unscored"

#: How two answers are compared (`comparison.py`).
KINDS: Final = ("scores", "classes", "ranking", "text", "exact")
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSpec:
    """What a new generation is held to."""

    kind: str = "scores"  #: one of KINDS; without a scorer
    scorer: str = ""  #: the endpoint that judges pairs of answers; "" = `kind` says how
    #: scores: of two numbers, absolute or relative; text: the part of the tokens that may differ
    tolerance: float = 0.01
    top: int = 10  #: ranking: places that count
    disagree_max: float = 0.01  #: share of the pairs whose answers may disagree
    errors_max: float = 0.01  #: share of the pairs that the new one alone may fail
    slower_max: float = 1.5  #: times what the old one takes; 0 = time does not count
    mirror: float = 1.0  #: share of the requests that are copied, 0 to 1
    confidence: float = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementCounts:
    """Pairs, by what became of them."""

    agree: int = 0
    differ: int = 0
    slower: int = 0
    new_failed: int = 0
    old_failed: int = 0
    both_failed: int = 0
    unpaired: int = 0
    scored: int = 0
    unscored: int = 0
    scorer_error: str = ""  #: code of the scorer's most frequent error

    @classmethod
    def of(cls, outcomes: Mapping[str, int]) -> AgreementCounts:
        counts: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for name, count in outcomes.items():
            outcome, _, code = name.partition(":")
            counts[outcome.replace("-", "_")] += count
            if code:
                errors[code] += count
        error = max(errors, key=lambda code: (errors[code], code), default="")
        return cls(**counts, scorer_error=error)

    @property
    def answered(self) -> int:
        """Pairs that both answered."""
        return self.agree + self.differ

    @property
    def pairs(self) -> int:
        return self.answered + self.new_failed + self.old_failed + self.both_failed


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementTest:
    """One share, and what is known of it."""

    name: str  #: answers | errors | failures | time | scorer
    hits: int
    trials: int
    bound: float
    #: e-values: the share is above its bound, or below
    above: float
    below: float

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready. `sure`: the always-valid probability that each side is not chance's."""
        return {
            "test": self.name,
            "hits": self.hits,
            "trials": self.trials,
            "share": self.hits / self.trials if self.trials else None,
            "bound": self.bound,
            "sure_above": _sure(self.above),
            "sure_below": _sure(self.below),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementVerdict:
    verdict: str  #: WORSE | AS_GOOD | UNDECIDED
    why: str  #: in words, with numbers
    tests: tuple[AgreementTest, ...]


def judge(spec: AgreementSpec, counts: AgreementCounts) -> AgreementVerdict:
    """What the pairs so far say of the new generation."""
    failed = counts.new_failed + counts.old_failed
    tests = [
        _test("answers", counts.differ, counts.answered, spec.disagree_max),
        _test("errors", counts.new_failed, failed, _HALF),
        _test("failures", counts.new_failed, counts.pairs, spec.errors_max),
    ]
    if spec.slower_max:
        tests.append(_test("time", counts.slower, counts.answered, _HALF))
    if spec.scorer:
        tests.append(_test("scorer", counts.unscored, counts.scored + counts.unscored, _HALF))
    against = [one for one in tests if one.name != "failures"]
    # The old one may fail requests as well, so more than `errors_max` alone says nothing against.
    needed = len(against) / (1.0 - spec.confidence)
    worse = [one for one in against if one.above >= needed]
    if worse:
        return AgreementVerdict(
            verdict=WORSE, why=_words(worse[0], spec, counts), tests=tuple(tests)
        )
    # All must hold, so none of these needs a part of the level.
    for_it = [one for one in tests if one.name not in ("errors", "scorer")]
    open_ = [one for one in for_it if one.below < 1.0 / (1.0 - spec.confidence)]
    if not open_:
        why = "; ".join(_words(one, spec, counts) for one in for_it)
        return AgreementVerdict(verdict=AS_GOOD, why=why, tests=tuple(tests))
    why = "not sure yet: " + "; ".join(_words(one, spec, counts) for one in open_)
    return AgreementVerdict(verdict=UNDECIDED, why=why, tests=tuple(tests))


def _test(name: str, hits: int, trials: int, bound: float) -> AgreementTest:
    return AgreementTest(
        name=name,
        hits=hits,
        trials=trials,
        bound=bound,
        above=evidence_above(hits, trials, bound),
        below=evidence_below(hits, trials, bound),
    )


def _words(test: AgreementTest, spec: AgreementSpec, counts: AgreementCounts) -> str:
    of = f"{test.hits} of {test.trials}"
    said = {
        "answers": f"{of} answers disagree",
        "errors": f"the new model alone failed {of} requests that one of both failed",
        "failures": f"the new model alone failed {of} requests",
        "time": f"{of} answers took more than {spec.slower_max:g} times the old model's time",
        "scorer": f"the scorer {spec.scorer} failed for {of} pairs: {counts.scorer_error};"
        f" 'penstock logs {spec.scorer}' and the server's log say more",
    }[test.name]
    side, sure = ("above", test.above) if test.above > test.below else ("below", test.below)
    shown = min(math.floor(_sure(sure) * 1e4), 9999) / 1e4  # a test is never sure to 100 %
    return f"{said} (sure to {shown:.2%} that it is {side} {test.bound:.2%})"


def _sure(evidence: float) -> float:
    return 0.0 if evidence <= 1.0 else 1.0 if math.isinf(evidence) else 1.0 - 1.0 / evidence
