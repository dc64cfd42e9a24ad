"""The committed `query-intent` artifact, asked directly: OpenVINO and the tokenizer, no Penstock.

It pins what the example promises: plain queries get the label a person would give, and an answer
does not depend on padding or on the other rows of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
import yaml
from tokenizers import Tokenizer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "query_intent"
ARTIFACT = EXAMPLE / "artifact"

QUERIES = {
    "blue wireless headphones": "product-search",
    "stainless steel water bottle 500 ml": "product-search",
    "which laptop should i buy": "product-advice",
    "best tent for two people": "product-advice",
    "coupon code for running shoes": "price-deals",
    "birthday present for my grandma": "gifts",
    "listen to jazz music": "media",
    "watch the hidden valley season 2": "media",
    "where is my package": "order-status",
    "track order 204-88374": "order-status",
    "i want to return these shoes": "returns",
    "forgot my password": "account",
    "talk to a human": "help",
    "my coffee maker won't turn on": "help",
    "go to my cart": "navigation",
    "wher is my pakage": "order-status",  # misspelt on purpose
}

Scores = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def description() -> dict:
    return yaml.safe_load((ARTIFACT / "model.yaml").read_text())


@pytest.fixture(scope="module")
def scores(description: dict) -> Scores:
    """`scores(texts, width)`: softmax of the logits, texts padded to the longest or to `width`."""
    tokenizer = Tokenizer.from_file(str(ARTIFACT / description["tokenizer"]["file"]))
    compiled = ov.Core().compile_model(
        ARTIFACT / description["file"],
        "CPU",
        {"INFERENCE_PRECISION_HINT": description["precision"], "INFERENCE_NUM_THREADS": 1},
    )

    def run(texts: Sequence[str], width: int = 0) -> np.ndarray:
        encoded = [e.ids for e in tokenizer.encode_batch(list(texts))]
        width = max(width, *map(len, encoded))
        ids = np.zeros((len(encoded), width), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(encoded):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        logits = compiled({"input_ids": ids, "attention_mask": mask})["logits"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    return run


@pytest.mark.parametrize(("query", "label"), QUERIES.items())
def test_a_plain_query_gets_the_label_a_person_would_give(
    query: str, label: str, scores: Scores, description: dict
) -> None:
    assert description["labels"][int(scores([query])[0].argmax())] == label


@pytest.mark.parametrize("width", [0, 16, 32, 64])
def test_an_answer_depends_neither_on_padding_nor_on_batch_mates(
    width: int, scores: Scores
) -> None:
    alone = np.concatenate([scores([query]) for query in QUERIES])
    together = scores(list(QUERIES), width)
    assert together.argmax(axis=1).tolist() == alone.argmax(axis=1).tolist()
    np.testing.assert_allclose(together, alone, atol=1e-2)


def test_the_description_fits_the_model_and_the_recorded_figures(description: dict) -> None:
    model = ov.Core().read_model(ARTIFACT / description["file"])
    metrics = json.loads((EXAMPLE / "metrics.json").read_text())
    assert [port.any_name for port in model.inputs] == ["input_ids", "attention_mask"]
    assert model.outputs[0].any_name == "logits"
    assert model.outputs[0].partial_shape[1].get_length() == len(description["labels"])
    assert description["labels"] == metrics["labels"]
    assert description["tokenizer"]["tokens_max"] == description["batching"]["buckets"][-1] == 64


def test_the_artifact_stays_small_enough_to_be_committed() -> None:
    assert sum(path.stat().st_size for path in ARTIFACT.iterdir()) <= 6_000_000
