"""The support desk: one seed makes the same models and the same day, which customers fill."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.kit.servers import EXAMPLES
from tokenizers import Tokenizer

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.description import model_yaml
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.compile.seq2seq.seq2seq_parity import generate
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime
from penstock.runtimes.probe import graph_key
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

MODULES = ("customers", "traffic", "replies", "embedder", "autocomplete", "make_models")


@dataclass(frozen=True)
class Support:
    customers: ModuleType
    traffic: ModuleType
    replies: ModuleType
    embedder: ModuleType
    autocomplete: ModuleType
    make_models: ModuleType


@pytest.fixture(scope="module")
def support() -> Iterator[Support]:
    before = list(sys.path)
    sys.path.insert(0, str(EXAMPLES / "support"))
    yield Support(*(importlib.import_module(name) for name in MODULES))
    sys.path[:] = before
    for name in MODULES:
        sys.modules.pop(name, None)


def made(support: Support, folder: Path, *arguments: str) -> dict[str, bytes]:
    argv = sys.argv
    sys.argv = ["make_models.py", "--out", str(folder), "--small", *arguments]
    try:
        support.make_models.main()
    finally:
        sys.argv = argv
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_one_seed_makes_the_same_archives_however_many_were_made_before(
    support: Support, tmp_path: Path
) -> None:
    some = made(support, tmp_path / "a", "--customers", "3", "--autocomplete", "2")
    assert sorted(some) == [
        "autocomplete/customer-001.tar.gz",
        "autocomplete/customer-002.tar.gz",
        "embeddings/customer-001.tar.gz",
        "embeddings/customer-002.tar.gz",
        "embeddings/customer-003.tar.gz",
    ]
    (tmp_path / "a/embeddings/customer-002.tar.gz").unlink()
    assert made(support, tmp_path / "a", "--customers", "3", "--autocomplete", "2") == some
    assert len(set(some.values())) == 5
    other = made(support, tmp_path / "b", "--customers", "1", "--autocomplete", "1", "--seed", "1")
    assert other["embeddings/customer-001.tar.gz"] != some["embeddings/customer-001.tar.gz"]


def test_an_embedding_model_puts_texts_with_the_same_words_near_each_other_whatever_their_padding(
    support: Support, tmp_path: Path
) -> None:
    made(support, tmp_path / "m", "--customers", "1", "--autocomplete", "0")
    prefix = ModelPrefix(str(tmp_path / "m/embeddings"), ArtifactSettings())
    detected = prefix.fetch("customer-001.tar.gz", ArtifactCache(tmp_path / "cache")).detected
    assert detected.description.task == "feature-extraction"
    runtime = load_tensor_runtime(
        LoadContext(
            model_dir=detected.root,
            description=detected.description,
            endpoint_name="e",
            variant_name="v",
            cores=1,
            memory_bytes_max=0,
        )
    )
    tokenizer = Tokenizer.from_file(str(detected.root / "tokenizer.json"))
    tokenizer.no_padding()

    def vector(text: str, padding: int) -> np.ndarray:
        ids = tokenizer.encode(text).ids
        rows = np.array([ids + [0] * padding], dtype=np.int64)
        mask = np.array([[1] * len(ids) + [0] * padding], dtype=np.int64)
        return runtime.run(0, {"input_ids": rows, "attention_mask": mask})["embedding"][0]

    try:
        asked = vector("my headphones arrived broken", 0)
        near, far = vector("broken headphones arrived", 3), vector("how much is a tent", 0)
        assert np.linalg.norm(asked) == pytest.approx(1.0, abs=1e-3)
        assert np.allclose(asked, vector("my headphones arrived broken", 9), atol=0.02)
        assert asked @ near > asked @ far + 0.1
    finally:
        runtime.close()


def test_an_autocomplete_model_writes_the_reply_that_the_words_call_for(
    support: Support, tmp_path: Path
) -> None:
    """Its weights are set by hand: each word of a reply leads to it, and to its end."""
    (customer,) = support.customers.customers(1)
    known = support.replies.replies(customer, 0)
    support.autocomplete.write(tmp_path, known, name=customer.key, seed=0, layers=1)
    description = model_yaml.load(tmp_path)
    model = Seq2SeqModel(
        LoadContext(
            model_dir=tmp_path,
            description=description,
            endpoint_name="e",
            variant_name="v",
            cores=1,
            memory_bytes_max=0,
        )
    )
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    asked = [f"hello, {reply.words[0]} and {reply.words[2].upper()}!" for reply in known]
    try:
        answers = generate(
            model,
            description,
            [encoding.ids for encoding in tokenizer.encode_batch(asked)],
            GenerationRequest(max_new_tokens=8),
        )
    finally:
        model.close()
    written = [tokenizer.decode(ids, skip_special_tokens=True) for ids in answers]
    assert written == [" ".join(reply.pieces) for reply in known]


def test_all_models_of_a_kind_have_one_graph_so_that_one_is_probed_for_all(
    support: Support, tmp_path: Path
) -> None:
    made(support, tmp_path / "m", "--customers", "2", "--autocomplete", "2")
    prefix = ModelPrefix(str(tmp_path / "m"), ArtifactSettings())
    keys: dict[str, set[str | None]] = {}
    for kind in ("embeddings", "autocomplete"):
        for name in ("customer-001.tar.gz", "customer-002.tar.gz"):
            root = prefix.fetch(f"{kind}/{name}", ArtifactCache(tmp_path / "c")).detected.root
            for xml in sorted(root.glob("*.xml")):
                keys.setdefault(f"{kind}/{xml.name}", set()).add(graph_key(xml))
    assert {name: len(found) for name, found in keys.items()} == {
        "embeddings/model.xml": 1,
        "autocomplete/encoder.xml": 1,
        "autocomplete/decoder.xml": 1,
    }
    assert None not in set().union(*keys.values())


def test_replies_are_a_customers_own_and_fit_the_model(support: Support) -> None:
    people = support.customers.customers(200)
    written = set()
    for customer in people:
        own = support.replies.replies(customer, 0)
        assert own == support.replies.replies(customer, 0)
        vocabulary = support.autocomplete.Vocabulary.of(own)
        assert vocabulary.size + len(own) <= support.autocomplete.WIDTH
        # A piece of two replies would lead from the one into the other.
        pieces = Counter(piece for reply in own for piece in reply.pieces)
        assert set(pieces.values()) == {1}
        written.add(json.dumps([reply.pieces for reply in own]))
    assert len(written) == len(people)


def test_one_seed_gives_the_same_day_in_the_order_of_time(support: Support) -> None:
    people = support.customers.customers(50)

    def calls(**options: float) -> list[object]:
        return list(support.traffic.day(people, calls=3000, autocomplete=10, **options))

    first = calls()
    assert first == calls() == sorted(first)
    assert first != calls(seed=1)
    assert 2700 < len(first) < 3300
    assert len({call.customer for call in first}) == 50
    completing = {call.customer for call in first if call.kind == "autocomplete"}
    assert completing <= {f"customer-{number:03}" for number in range(1, 11)}
    assert completing


def test_customers_call_in_their_own_working_hours(support: Support) -> None:
    people = support.customers.customers(50)
    offsets = {each.key: each.utc_offset_h for each in people}
    local = Counter(
        int((call.at_s / 3600 + offsets[call.customer]) % 24)
        for call in support.traffic.day(people, calls=20_000)
    )
    working = sum(local[hour] for hour in range(9, 17))
    night = sum(local[hour] for hour in (22, 23, 0, 1, 2, 3, 4, 5))
    assert working > 0.8 * sum(local.values())
    assert 0 < night < 0.05 * sum(local.values())


def test_the_day_goes_on_tomorrow_and_can_be_played_faster(support: Support) -> None:
    people = support.customers.customers(10)
    two = list(support.traffic.day(people, calls=200, end_s=2 * 86_400.0))
    assert [call for call in two if call.at_s < 86_400.0] == list(
        support.traffic.day(people, calls=200)
    )
    played = list(support.traffic.compressed(iter(two), 1440.0))
    assert played[0][0] == 0.0
    assert played[-1][0] == pytest.approx((two[-1].at_s - two[0].at_s) / 1440.0)
