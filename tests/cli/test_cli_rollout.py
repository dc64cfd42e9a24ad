"""What `penstock rollout show` prints of pairs of answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from tests.kit import http_servers

from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec, judge


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
    missing = dict.fromkeys(("old", "new", "policy", "progress", "failure_reason"))
    story = missing | {"status": "Updating", "under_way": True, "agreement": agreement}
    reply = (200, {}, json.dumps(story).encode())
    with http_servers.answering(lambda _: reply) as url:
        status, out, _ = penstock("rollout", "show", "shop", "--url", url)
    assert status == 0
    assert "3 agree, 2 scored, 40 unscored\n" in out.replace(" \n", "\n").replace("  ", "")
    assert "the scorer judge failed for 40 of 42 pairs: endpoint-not-found" in out
