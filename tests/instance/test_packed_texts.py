"""An encoder that is asked often gets graphs with texts side by side; its answers stay the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from tests.kit import model_files
from tests.kit.played_lanes import played

from penstock.artifacts.detection.detect import detect
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.text import input_specs
from penstock.instance.codecs.text_heads import heads_of, output_specs
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.engines.text import TextEngine
from penstock.instance.request import Item
from penstock.runtimes.base import LoadContext
from penstock.runtimes.native import native_lane
from penstock.runtimes.openvino import shapes
from penstock.runtimes.openvino.packed_graphs import PackedGraphs
from penstock.runtimes.openvino.runtime import OpenVinoRuntime
from penstock.wire.frames import RequestMeta, encode_request_meta

ARTIFACT = Path(__file__).resolve().parents[2] / "examples" / "query_intent" / "artifact"
META = encode_request_meta(RequestMeta())
QUERIES = [
    "where is my order", "red running shoes size 42 for men", "returns",
    "how do I change the address of an order that was already paid", "gift for my mother",
    "cheap laptops", "is this jacket waterproof", "log in",
]  # fmt: skip


class Alone:
    """Lanes' threads of a process with one thread."""

    takes_native = False

    def submit(self, lane: int, work: Any, done: Any) -> None:
        done(work())


class Served:
    """A runtime, and the engine of its texts."""

    def __init__(self, folder: Path, cache: Path, threads: Any, memory: int = 0) -> None:
        found = detect(folder)
        context = LoadContext(
            model_dir=found.root, description=found.description, cache_dir=cache,
            endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=memory,
        )  # fmt: skip
        self.runtime = OpenVinoRuntime(context)
        model = CodecModel(
            name="m", version="1", inputs=input_specs(found.description.task),
            outputs=output_specs(heads_of(found.description)), batched=True,
        )  # fmt: skip
        self.engine = TextEngine(self.runtime, found.description, model, found.root, threads)

    def item(self, *texts: str) -> tuple[Item, int]:
        """With the length that the batcher is told."""
        decoded, data, length = self.engine.decode(META, orjson.dumps({"inputs": list(texts)}))
        return Item(None, data, decoded.rows), length

    def scores(self, *texts: str) -> np.ndarray:
        results: list[Any] = []
        self.engine.run(0, [self.item(*texts)[0]], 0, results.extend)
        return np.asarray(next(iter(results[0].values())))

    @property
    def packs(self) -> bool:
        texts = self.runtime.packed_texts()
        return texts is not None and texts.layout is not None

    def ask_often(self) -> None:
        for _ in range(70):
            self.scores("where is my order")
        self.runtime.wait_compiled()


@pytest.fixture
def made() -> Iterator[list[Served]]:
    served: list[Served] = []
    yield served
    for each in served:
        each.runtime.close()
    assert shapes._MEMORY._taken == 0, "graphs that nobody has any more count as memory"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the example's graphs, which one copy has made."""
    folder = tmp_path_factory.mktemp("cache")
    first = Served(ARTIFACT, folder, Alone())
    first.ask_often()
    assert first.packs
    first.runtime.close()
    return folder


def served(made: list[Served], folder: Path, cache: Path, **more: Any) -> Served:
    made.append(Served(folder, cache, Alone(), **more))
    return made[-1]


def test_texts_are_packed_once_the_model_is_asked_often(tmp_path: Path, made: list[Served]) -> None:
    model = served(made, ARTIFACT, tmp_path)
    assert not model.packs
    assert model.engine.explain() == {"texts": "padded"}
    before = [model.scores(query) for query in QUERIES]
    lengths = [model.item(query)[1] for query in QUERIES]
    model.ask_often()
    assert model.packs
    assert model.engine.explain() == {"texts": "packed"}
    for query, scores in zip(QUERIES, before, strict=True):
        np.testing.assert_allclose(model.scores(query), scores, atol=0.01)
    together = model.scores(*QUERIES)
    np.testing.assert_allclose(together, np.concatenate(before), atol=0.01)
    assert len(set(lengths)) > 1
    assert {model.item(query)[1] for query in QUERIES} == {64}, "all of them share batches"

    again = served(made, ARTIFACT, tmp_path)
    assert again.packs, "another copy has it from the first request on"
    np.testing.assert_array_equal(again.scores(*QUERIES), together)


def test_every_usual_size_has_its_graph_before_it_comes(cache: Path, made: list[Served]) -> None:
    """A graph that is made when its size comes often is made while the cores are busiest."""
    packs = served(made, ARTIFACT, cache).runtime.packed_texts()
    assert isinstance(packs, PackedGraphs)
    layout = packs.layout
    assert layout is not None
    missing = [each for each in layout.usual_shapes(32) if not packs._graphs.is_made(each)]
    assert not missing, "one query alone was asked"


def test_company_changes_no_answer_at_all(cache: Path, made: list[Served]) -> None:
    """Rows of padded batches are rounded as their padding has it; side by side they are not."""
    model = served(made, ARTIFACT, cache)
    alone = [model.scores(query)[0] for query in QUERIES]
    for count in (2, 5, 8):
        np.testing.assert_allclose(model.scores(*QUERIES[:count]), alone[:count], atol=1e-6)


def test_what_does_not_fit_a_row_is_padded_as_before(
    tmp_path: Path, cache: Path, made: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that has a padding token, as a model that counts tokens must not count it."""
    padded, model = served(made, ARTIFACT, tmp_path), served(made, ARTIFACT, cache)
    padding = model.engine.tokenizer.decode([model.engine.pad_id], skip_special_tokens=False)
    odd = f"where is {padding} my order"
    before = padded.scores(odd, *QUERIES)
    assert model.packs
    monkeypatch.setattr(model.runtime.packed_texts(), "take", None)  # a packed batch would fail
    assert model.engine.pad_id in model.item(odd)[0].data.ids[0]
    np.testing.assert_allclose(model.scores(odd, *QUERIES), before, atol=0.01)


def test_a_model_that_can_not_be_packed_keeps_its_padded_graphs(
    tmp_path: Path, made: list[Served]
) -> None:
    """It takes no mask. What was found out is said, and is not asked again."""
    folder = model_files.embedder(tmp_path / "m")
    model = served(made, folder, tmp_path / "cache")
    for _ in range(70):
        model.scores("a b")
    model.runtime.wait_compiled()
    assert not model.packs
    layouts = list((tmp_path / "cache").rglob("layout.json"))
    assert len(layouts) == 1
    why = json.loads(layouts[0].read_text())["refused"]
    assert why == "its inputs are input_ids"
    assert model.engine.explain() == {"texts": "padded", "packing_refused": why}
    assert model.runtime.native_run(((1, 2),)) is not None
    again = served(made, folder, tmp_path / "cache")
    assert again.engine.explain() == {"texts": "padded", "packing_refused": why}
    written = layouts[0].stat().st_mtime_ns
    for _ in range(70):
        again.scores("a b")
    again.runtime.wait_compiled()
    assert layouts[0].stat().st_mtime_ns == written


def test_a_sum_over_the_words_of_a_text_is_packed(tmp_path: Path, made: list[Served]) -> None:
    """Each text's own: the words beside it count for nothing."""
    model = served(made, model_files.classifier(tmp_path / "m"), tmp_path / "cache")
    for _ in range(70):
        model.scores("good")
    model.runtime.wait_compiled()
    assert model.packs
    texts = ("good good", "bad", "good bad bad", "nice")
    alone = np.concatenate([model.scores(text) for text in texts])
    np.testing.assert_allclose(model.scores(*texts), alone, atol=1e-6)


def test_there_is_no_packing_without_room_for_its_graphs(
    tmp_path: Path, made: list[Served]
) -> None:
    model = served(made, ARTIFACT, tmp_path, memory=4 * (70 << 20))
    assert model.runtime.packed_texts() is None


def test_a_model_that_ends_while_its_graphs_are_made_ends_them(
    tmp_path: Path, made: list[Served]
) -> None:
    model = served(made, ARTIFACT, tmp_path)
    for _ in range(70):
        model.scores("where is my order")
    model.runtime.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"packed-layout", "shape-graph"}


@pytest.mark.skipif(native_lane() is None, reason="built without a C compiler")
def test_a_batch_of_packed_texts_runs_without_the_interpreter(
    cache: Path, monkeypatch: pytest.MonkeyPatch, made: list[Served]
) -> None:
    expected = served(made, ARTIFACT, cache).scores(*QUERIES)

    async def play(threads: LaneThreads) -> None:
        model = Served(ARTIFACT, cache, threads)
        made.append(model)
        monkeypatch.setattr(threads, "submit", None)  # the lane's thread of Python's would fail
        items = [model.item(*QUERIES[:3])[0], model.item(*QUERIES[3:])[0]]
        got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        model.engine.run(0, items, 0, got.set_result)
        rows = [next(iter(each.values())) for each in await got]
        assert [len(each) for each in rows] == [3, 5]
        np.testing.assert_array_equal(np.concatenate(rows), expected)

    played(play)
