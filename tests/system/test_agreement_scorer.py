"""Updates whose answers another endpoint judges: it decides, and where it fails the old model
serves on, and no caller loses anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server
from tests.system.test_agreement import settled, shop, story, update

pytestmark = pytest.mark.system

#: Judges pairs of scores.
JUDGE = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    pair = json.loads(body)
    assert len(pair["request"]) == 4, "the caller's request"
    apart = abs(pair["old"]["score"] - pair["new"]["score"])
    return json.dumps({{"agree": {says}}}), "application/json"
"""


@contextmanager
def judged(server: Server, folder: Path, says: str, **models: float) -> Iterator[Any]:
    """`shop` under load with the first model, and `judge`; yields SageMaker's client. `models`: by
    what their scores are off."""
    python_model(folder / "judge", JUDGE.format(says=says))
    server.deploy("judge", folder / "judge")
    with shop(server, folder, **{name: (off, 0) for name, off in models.items()}) as client:
        with Load(server.port, "/endpoints/shop/invocations", workers=1) as load:
            yield client
        assert (set(load.statuses), load.broken) == ({200}, 0), load.errors


def test_the_scorer_decides(empty_server: Server, tmp_path: Path) -> None:
    """For scores that are apart by five hundredths, which `scores` would not let pass, and then
    against some that are apart by half."""
    bounds = "scorer=judge disagree=0.05 errors=0.05 slower=0"
    with judged(empty_server, tmp_path, "apart < 0.1", old=0.0, new=0.05, worse=0.5) as client:
        update(client, "new", bounds)
        assert settled(client)["EndpointConfigName"] == "new"
        told = story(empty_server)["agreement"]
        assert (told["verdict"], told["held_to"]["scorer"]) == ("as-good", "judge")
        assert told["pairs"]["scored"] == told["pairs"]["agree"] > 100
        assert told["pairs"]["unscored"] == told["pairs"]["differ"] == 0

        update(client, "worse", bounds)
        described = settled(client)
        assert described["EndpointConfigName"] == "new"
        assert "answers disagree (sure to" in described["FailureReason"]
    [requests] = [
        family
        for family in text_string_to_metric_families(empty_server.page())
        if family.name == "penstock_requests"
    ]
    labels = {"endpoint": "judge", "door": "scorer", "outcome": "ok"}
    counted = [one.value for one in requests.samples if labels.items() <= one.labels.items()]
    assert sum(counted) > 100, "it is asked as its own callers ask it"


def test_a_scorer_that_raises_sends_it_back(empty_server: Server, tmp_path: Path) -> None:
    offset = empty_server.log_path.stat().st_size
    with judged(empty_server, tmp_path, "1 / 0", old=0.0, new=0.001) as client:
        update(client, "new", "scorer=judge slower=0")
        described = settled(client)
    assert described["EndpointConfigName"] == "old"
    pairs = story(empty_server)["agreement"]["pairs"]
    assert pairs["unscored"] > 10
    assert pairs["differ"] == pairs["new_failed"] == 0
    why = described["FailureReason"]
    assert "the update to configuration new failed, old serves on: the scorer judge failed" in why
    assert "pairs: model-code-failed; 'penstock logs judge' and the server's log say more" in why
    told = empty_server.log(offset).count("the scorer judge failed for a pair of answers")
    assert 1 <= told <= 2, "once for each gateway, not for each pair"


def test_a_scorer_that_is_deleted_meanwhile_sends_it_back(
    empty_server: Server, tmp_path: Path
) -> None:
    with judged(empty_server, tmp_path, "apart < 0.1", old=0.0, new=0.001) as client:
        update(client, "new", "scorer=judge disagree=0.0001 slower=0")
        wait_until(
            lambda: (story(empty_server)["agreement"] or {}).get("pairs", {}).get("scored"),
            "a pair that is judged",
            60,
        )
        client.delete_endpoint(EndpointName="judge")
        described = settled(client)
    assert described["EndpointConfigName"] == "old"
    assert "the scorer judge failed for" in described["FailureReason"]
    assert "pairs: endpoint-not-found;" in described["FailureReason"]
