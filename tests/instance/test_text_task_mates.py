"""A text's answer never depends on batch mates, padding, or the heads that others ask for.

On the graph of `text_task_files`, where answers are equal to the last digit that addition in
another order leaves; through a real instance, in one write, so that requests share batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from batch_mates import always
from hypothesis import strategies as st
from tests.kit.instances import FrameClient, serving
from tests.kit.model_files import WORDS
from text_task_files import multi_head, pair_classifier

PAIRS, HEADED = 1, 2

texts = st.lists(st.sampled_from(WORDS[1:]), max_size=20).map(" ".join)
pairs = st.fixed_dictionaries({"text": texts, "text_pair": texts})
heads = st.lists(st.sampled_from(["better", "gap", "mean-worth"]), min_size=1, unique=True)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("task-mates")
    models = {
        PAIRS: pair_classifier(folder / "pairs"),
        HEADED: multi_head(folder / "headed"),
    }
    with serving(folder, models) as made:
        yield made


def numbers(answer: Any) -> list[float]:
    if isinstance(answer, dict):
        return [number for name in sorted(answer) for number in numbers(answer[name])]
    if isinstance(answer, list):
        return [number for each in answer for number in numbers(each)]
    return [answer] if isinstance(answer, float) else []


def test_pairs(client: FrameClient) -> None:
    def holds(_: Any, together: Any, alone: Any) -> None:
        for ours, theirs in zip(together, alone, strict=True):
            by_label = {each["label"]: each["score"] for each in theirs}
            assert {each["label"]: each["score"] for each in ours} == pytest.approx(by_label)

    requests = st.lists(pairs, min_size=1, max_size=4).map(
        lambda each: {"inputs": each, "parameters": {"top_k": None}}
    )
    always(client, PAIRS, st.lists(requests, min_size=1, max_size=6), holds)


def test_heads(client: FrameClient) -> None:
    def holds(body: Any, together: Any, alone: Any) -> None:
        assert len(together) == len(body["inputs"])
        assert [set(each) for each in together] == [set(body["parameters"]["heads"])] * len(
            together
        )
        for each in (*together, *alone):
            if "better" in each:  # labels of equal scores may come in either order
                each["better"] = {entry["label"]: entry["score"] for entry in each["better"]}
        assert numbers(together) == pytest.approx(numbers(alone), abs=1e-5)

    requests = st.builds(
        lambda each, asked: {"inputs": each, "parameters": {"heads": asked, "top_k": None}},
        st.lists(texts | pairs, min_size=1, max_size=11),
        heads,
    )
    always(client, HEADED, st.lists(requests, min_size=1, max_size=6), holds)
