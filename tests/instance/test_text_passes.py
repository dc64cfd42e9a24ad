"""What a text model is run on: one pass for all heads, in the width of the batch's bucket.

The runtime is a fake that remembers what it was given; threads are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files

from penstock.artifacts.description.description import (
    Batching,
    Head,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.instance.codecs.base import CodecModel
from penstock.instance.engines.text import TextEngine
from penstock.instance.request import Item
from penstock.runtimes.base import Tensors
from penstock.wire.frames import RequestMeta, encode_request_meta

META = encode_request_meta(RequestMeta())
HEADS = (
    Head(name="long", task="classification", output="logits", labels=("no", "yes")),
    Head(name="words", task="regression", output="count"),
)


class RecordingRuntime:
    """`logits` says whether a text has more than 3 tokens, `count` how many it has."""

    lanes = 1

    def __init__(self, *, rows: int = -1, types: bool = False) -> None:
        names = ("input_ids", "attention_mask", *(["token_type_ids"] if types else []))
        self.inputs = tuple(
            TensorSpec(name=name, dtype="INT64", shape=(rows, -1)) for name in names
        )
        self.outputs: tuple[TensorSpec, ...] = ()
        self.runs: list[dict[str, np.ndarray]] = []

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        self.runs.append(dict(inputs))
        count = inputs["attention_mask"].sum(axis=1).astype(np.float32)
        return {"logits": np.stack([3.5 - count, count - 3.5], axis=1), "count": count}

    def close(self) -> None: ...


class NoThreads:
    def submit(self, lane: int, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())


def made(
    folder: Path,
    runtime: RecordingRuntime,
    *,
    buckets: tuple[int, ...] = (4, 8),
    warm_up: bool = True,
) -> TextEngine:
    model_files.tokenizer(folder)
    description = ModelDescription(
        runtime="openvino",
        task="multi-head",
        file="model.xml",
        heads=HEADS,
        tokenizer=Tokenizer(tokens_max=16),
        batching=Batching(rows_max=8, buckets=buckets),
    )
    model = CodecModel(name="m", version="1", inputs=(), outputs=(), batched=True)
    threads: Any = NoThreads()
    engine = TextEngine(runtime, description, model, folder, threads, warm_up=warm_up)
    if warm_up:
        runtime.runs.clear()
    return engine


def item(engine: TextEngine, *texts: Any, heads: list[str] | None = None) -> Item:
    body = {"inputs": list(texts), "parameters": {"heads": heads} if heads else {}}
    decoded, data, _ = engine.decode(META, json.dumps(body).encode())
    return Item(None, data, decoded.rows)


def answers(engine: TextEngine, items: list[Item], bucket: int) -> list[dict[str, Any]]:
    results: list[Any] = []
    engine.run(0, items, bucket, results.extend)
    return [{name: array.tolist() for name, array in result.items()} for result in results]


def test_heads_of_several_requests_come_out_of_one_pass(tmp_path: Path) -> None:
    runtime = RecordingRuntime()
    engine = made(tmp_path, runtime)
    items = [
        item(engine, "good film", heads=["words"]),
        item(engine, "bad", "not very good book", heads=["long"]),
        item(engine, "book"),
    ]
    first, second, third = answers(engine, items, 4)
    assert len(runtime.runs) == 1
    assert first == {"words.score": [[2.0]]}
    assert [row[1] > 0.5 for row in second["long.score"]] == [False, True]
    assert list(second) == ["long.score"]
    assert list(third) == ["long.score", "words.score"]


@pytest.mark.parametrize(
    ("text", "buckets", "width"),
    [
        ("good film", (4, 8), 4),
        ("good film very bad book", (4, 8), 8),
        ("good " * 12, (4, 8), 12),  # beyond the buckets: as it is
        ("good " * 12, (4, 64), 16),  # no wider than texts are cut to
        ("good film", (), 2),
    ],
)
def test_rows_are_padded_to_the_bucket_and_masked(
    tmp_path: Path, text: str, buckets: tuple[int, ...], width: int
) -> None:
    runtime = RecordingRuntime()
    engine = made(tmp_path, runtime, buckets=buckets)
    count = float(len(text.split()))
    assert answers(engine, [item(engine, text, heads=["words"])], 0) == [{"words.score": [[count]]}]
    assert runtime.runs[0]["input_ids"].shape == (1, width)
    assert runtime.runs[0]["attention_mask"].sum() == count


def test_short_texts_of_a_long_request_do_not_pay_for_its_long_ones(tmp_path: Path) -> None:
    """Two of sixteen texts are long: the batch of the first eight by length stays narrow, and the
    answer comes in the order of the request."""
    runtime = RecordingRuntime()
    engine = made(tmp_path, runtime)
    lengths = [7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 6]
    texts = ["good " * length for length in lengths]
    body = json.dumps({"inputs": texts, "parameters": {"heads": ["words"]}}).encode()
    decoded, data, _ = engine.decode(META, body)
    parts = [Item(None, engine.cut(data, at, at + 8), 8) for at in (0, 8)]
    results: list[Any] = []
    for part in parts:
        engine.run(0, [part], 8, results.extend)
    assert [run["input_ids"].shape for run in runtime.runs] == [(8, 4), (8, 8)]
    content, _ = decoded.encode(engine.join(results))
    assert [each["words"]["score"] for each in json.loads(content)] == lengths


def test_a_request_says_how_long_it_is_so_that_short_ones_queue_apart(tmp_path: Path) -> None:
    engine = made(tmp_path, RecordingRuntime())
    body = json.dumps({"inputs": ["good", {"text": "very good", "text_pair": "book"}]}).encode()
    assert engine.decode(META, body)[2] == 3


def test_rows_are_padded_to_a_few_sizes_that_no_one_sees(tmp_path: Path) -> None:
    runtime = RecordingRuntime()
    engine = made(tmp_path, runtime)
    result = answers(engine, [item(engine, "good", "bad", "film", heads=["words"])], 4)
    assert runtime.runs[0]["input_ids"].shape == (4, 4)
    assert result == [{"words.score": [[1.0], [1.0], [1.0]]}]


def test_a_graph_made_for_one_batch_size_is_always_given_that_many_rows(tmp_path: Path) -> None:
    runtime = RecordingRuntime(rows=6)
    engine = made(tmp_path, runtime, buckets=())
    assert answers(engine, [item(engine, "good film", heads=["words"])], 0) == [
        {"words.score": [[2.0]]}
    ]
    assert runtime.runs[0]["input_ids"].shape == (6, 2)


def test_segments_reach_a_model_that_asks_for_them(tmp_path: Path) -> None:
    runtime = RecordingRuntime(types=True)
    engine = made(tmp_path, runtime)
    items = [item(engine, {"text": "good", "text_pair": "very bad"}), item(engine, "film")]
    answers(engine, items, 4)
    assert runtime.runs[0]["token_type_ids"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]


def test_a_model_is_warmed_up_in_every_bucket(tmp_path: Path) -> None:
    runtime = RecordingRuntime()
    shapes: list[tuple[int, ...]] = []
    run = runtime.run

    def noted(lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        shapes.append(inputs["input_ids"].shape)
        return run(lane, inputs)

    runtime.run = noted  # type: ignore[method-assign]
    made(tmp_path, runtime, buckets=(4, 8))
    assert {(1, 4), (1, 8)} <= set(shapes)


class ShapedRuntime(RecordingRuntime):
    """A graph that gives the shapes of what it answers, as far as `scores` is one."""

    def __init__(self, scores: int) -> None:
        super().__init__()
        self.outputs = (
            TensorSpec(name="logits", dtype="FP32", shape=(-1, scores)),
            TensorSpec(name="count", dtype="FP32", shape=(-1,)),
        )


@pytest.mark.parametrize(("scores", "runs"), [(2, 0), (-1, 1)])
def test_whoever_waits_for_a_model_waits_for_no_run_where_its_graph_gives_its_shapes(
    tmp_path: Path, scores: int, runs: int
) -> None:
    runtime = ShapedRuntime(scores)
    engine = made(tmp_path, runtime, warm_up=False)
    assert len(runtime.runs) == runs
    items = [item(engine, "good film", heads=["words"])]
    assert answers(engine, items, 4) == [{"words.score": [[2.0]]}]
