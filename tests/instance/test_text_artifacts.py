"""The committed text models, loaded as they are: answers are right and never depend on batch mates.

Both are INT8 with fixed ranges, so the same text in a longer or fuller batch may only be rounded
otherwise; TOLERANCE is what the examples' own `metrics.json` allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_mates import always
from hypothesis import strategies as st
from tests.kit.instances import FrameClient, serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INTENT, DUPLICATES = 1, 2
TOLERANCE = 0.02

KETTLE = "halloway electric kettle 1.7 l black"
MONITOR = "vantrix monitor 27 inch vx-270"


def lines(example: str) -> list[list[str]]:
    text = (EXAMPLES / example / "handwritten.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line]


queries = st.sampled_from([line[0] for line in lines("query_intent")])
pairs = st.sampled_from(
    [{"text": line[0], "text_pair": line[1]} for line in lines("duplicates")]
    + [{"text": KETTLE * 4, "text_pair": "x"}, {"text": "", "text_pair": ""}]
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    artifacts = {INTENT: "query_intent", DUPLICATES: "duplicates"}
    models = {copy: EXAMPLES / example / "artifact" for copy, example in artifacts.items()}
    with serving(tmp_path_factory.mktemp("artifacts"), models) as made:
        yield made


def scores(answer: Any) -> Any:
    """Every number of an answer under the label or key that it belongs to."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict) and "label" in answer[0]:
        return {entry["label"]: pytest.approx(entry["score"], abs=TOLERANCE) for entry in answer}
    if isinstance(answer, list):
        return [scores(each) for each in answer]
    if isinstance(answer, dict):
        return {name: scores(value) for name, value in answer.items()}
    return pytest.approx(answer, abs=TOLERANCE)


def plain(answer: Any) -> Any:
    if isinstance(answer, list) and answer and isinstance(answer[0], dict) and "label" in answer[0]:
        return {entry["label"]: entry["score"] for entry in answer}
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items()}
    return answer


def test_query_intent(client: FrameClient) -> None:
    def holds(_: Any, together: Any, alone: Any) -> None:
        assert plain(together) == scores(alone)

    requests = st.lists(queries, min_size=1, max_size=40).map(
        lambda texts: {"inputs": texts, "parameters": {"top_k": None}}
    )
    always(client, INTENT, st.lists(requests, min_size=1, max_size=5), holds)


def test_duplicates(client: FrameClient) -> None:
    def holds(_: Any, together: Any, alone: Any) -> None:
        assert plain(together) == scores(alone)

    requests = st.builds(
        lambda texts, heads: {"inputs": texts, "parameters": {"top_k": None, "heads": heads}},
        st.lists(pairs, min_size=1, max_size=40),
        st.sampled_from([["duplicate"], ["similarity", "difference"], None]),
    )
    always(client, DUPLICATES, st.lists(requests, min_size=1, max_size=5), holds)


@pytest.mark.parametrize(
    ("text", "text_pair", "duplicate"),
    [
        (KETTLE, "Halloway Kettle, electric, 1700 ml, black", "yes"),
        (KETTLE, "halloway electric kettle 1.7 l white", "no"),
        (KETTLE, "halloway electric kettle 1.7 l black", "yes"),
        (MONITOR, 'Vantrix VX270 27" monitor', "yes"),
        (MONITOR, "vantrix monitor 32 inch vx-270", "no"),
        (MONITOR, "norbexa usb hub", "no"),
    ],
)
def test_plain_pairs_are_judged_as_a_person_would(
    client: FrameClient, text: str, text_pair: str, duplicate: str
) -> None:
    body = {"inputs": {"text": text, "text_pair": text_pair}}
    answer = client.invoke(DUPLICATES, json.dumps(body).encode()).json
    assert answer["duplicate"]["label"] == duplicate
    assert set(answer) == {"duplicate", "same-brand", "same-type", "difference", "similarity"}
    assert 0.0 <= answer["similarity"]["score"] <= 1.0


def test_the_duplicates_artifact_stays_small_enough_to_be_committed() -> None:
    folder = EXAMPLES / "duplicates" / "artifact"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8_000_000
