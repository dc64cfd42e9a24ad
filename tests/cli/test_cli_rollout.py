"""What `penstock rollout show` prints of pairs of answers, and of what is old and new."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.kit import http_servers

from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec, judge

MISSING = ("old", "new", "policy", "progress", "agreement", "failure_reason")


def shown(penstock: Callable[..., tuple[int, str, str]], **story: Any) -> str:
    whole = dict.fromkeys(MISSING) | {"status": "Updating", "under_way": True} | story
    reply = (200, {}, json.dumps(whole).encode())
    with http_servers.answering(lambda _: reply) as url:
        status, out, _ = penstock("rollout", "show", "shop", "--url", url)
    assert status == 0
    return out


def test_the_error_of_a_scorer_is_no_count(
    penstock: Callable[..., tuple[int, str, str]],
) -> None:
    counts = AgreementCounts(agree=3, scored=2, unscored=40, scorer_error="endpoint-not-found")
    verdict = judge(AgreementSpec(scorer="judge"), counts)
    agreement = {
        "pairs": asdict(counts),
        "verdict": verdict.verdict,
        "why": verdict.why,
        "tests": [one.snapshot() for one in verdict.tests],
    }
    out = shown(penstock, agreement=agreement)
    assert "3 agree, 2 scored, 40 unscored\n" in out.replace(" \n", "\n").replace("  ", "")
    assert "the scorer judge failed for 40 of 42 pairs: endpoint-not-found" in out


def test_two_revisions_with_one_name_are_told_apart_by_where_they_come_from(
    penstock: Callable[..., tuple[int, str, str]],
) -> None:
    """Both of an adapter have its component's name."""

    def revision(number: int, model: str, source: str) -> dict[str, Any]:
        return {"revision": number, "model": model, "source": source, "copies_ready": 1}

    old, new = revision(1, "own", "s3://loras/first"), revision(2, "own", "s3://loras/second")
    out = shown(penstock, old=old, new=new)
    assert "own from s3://loras/first (revision 1, 1 copies ready)" in out
    assert "own from s3://loras/second (revision 2, 1 copies ready)" in out
    out = shown(penstock, old=old, new=revision(2, "better", "s3://loras/second"))
    assert "own (revision 1, 1 copies ready)" in out
    assert "better (revision 2, 1 copies ready)" in out
    out = shown(penstock, old=old, under_way=False)
    assert "own (revision 1, 1 copies ready)" in out
