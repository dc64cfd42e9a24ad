"""A text's answer never depends on batch mates, padding, or the heads that others ask for.

On the graph of `text_task_files`, where answers are equal to the last digit that addition in
another order leaves; through a real instance, in one write, so that requests share batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instance_harness import Answer, FrameClient, instance
from tests.fakes.model_files import WORDS
from text_task_files import multi_head, pair_classifier

PAIRS, HEADED = 1, 2

relaxed = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
texts = st.lists(st.sampled_from(WORDS[1:]), max_size=20).map(" ".join)
pairs = st.fixed_dictionaries({"text": texts, "text_pair": texts})
heads = st.lists(st.sampled_from(["better", "gap", "mean-worth"]), min_size=1, unique=True)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("task-mates")
    with instance(folder) as running:
        made = running.client()
        for copy, model in (
            (PAIRS, pair_classifier(folder / "pairs")),
            (HEADED, multi_head(folder / "headed")),
        ):
            loaded = made.load(copy, model)
            assert loaded.get("ok"), loaded
        yield made


def together_and_alone(
    client: FrameClient, copy: int, bodies: list[Any]
) -> Iterator[tuple[Any, Any]]:
    encoded = [json.dumps(body).encode() for body in bodies]
    first = client.next_id + 1
    client.next_id += len(bodies)
    client.socket.sendall(
        b"".join(client.frame(first + at, copy, body) for at, body in enumerate(encoded))
    )
    together = [Answer(client.answer(first + at)) for at in range(len(bodies))]
    for body, answer in zip(encoded, together, strict=True):
        yield answer.json, client.invoke(copy, body).json


def numbers(answer: Any) -> list[float]:
    if isinstance(answer, dict):
        return [number for name in sorted(answer) for number in numbers(answer[name])]
    if isinstance(answer, list):
        return [number for each in answer for number in numbers(each)]
    return [answer] if isinstance(answer, float) else []


@relaxed
@given(bodies=st.lists(st.lists(pairs, min_size=1, max_size=4), min_size=1, max_size=6))
def test_pairs(client: FrameClient, bodies: list[list[dict[str, str]]]) -> None:
    requests = [{"inputs": body, "parameters": {"top_k": None}} for body in bodies]
    for together, alone in together_and_alone(client, PAIRS, requests):
        for ours, theirs in zip(together, alone, strict=True):
            by_label = {each["label"]: each["score"] for each in theirs}
            assert {each["label"]: each["score"] for each in ours} == pytest.approx(by_label)


@relaxed
@given(
    bodies=st.lists(
        st.tuples(st.lists(texts | pairs, min_size=1, max_size=11), heads), min_size=1, max_size=6
    )
)
def test_heads(client: FrameClient, bodies: list[tuple[list[Any], list[str]]]) -> None:
    requests = [
        {"inputs": body, "parameters": {"heads": asked, "top_k": None}} for body, asked in bodies
    ]
    for (body, asked), (together, alone) in zip(
        bodies, together_and_alone(client, HEADED, requests), strict=True
    ):
        assert len(together) == len(body)
        assert all(set(each) == set(asked) for each in together)
        for each in (*together, *alone):
            if "better" in each:  # labels of equal scores may come in either order
                each["better"] = {entry["label"]: entry["score"] for entry in each["better"]}
        assert numbers(together) == pytest.approx(numbers(alone), abs=1e-5)
