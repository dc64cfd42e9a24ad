"""The committed `spelling` artifact on the decode loop that serves it, without a server.

It pins what the example promises: misspelt queries come back as a person would write them, what is
spelt well comes back as it was, batch mates change nothing, and the recorded figures are those of
a model that corrects most of what is misspelt, with a classical speller's beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.clock import SystemClock
from penstock.runtimes.base import LoadContext
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spelling"
ARTIFACT = EXAMPLE / "artifact"
SHIPPED = "int8 (shipped)"

CORRECTIONS = {
    "wireles headphones": "wireless headphones",
    "coffe maker": "coffee maker",
    "stainles steel water botle": "stainless steel water bottle",
    "vaccum cleaner": "vacuum cleaner",
    "jewlery box": "jewelry box",
    "where is my pakage": "where is my package",
}
LEFT_ALONE = (
    "black dress",
    "office chair ergonomic",
    "aa batteries 24 pack",
    "kx-240 battery",
    "zq9000 remote control",
)

#: Run on its own: the example's modules have names that other examples' have too.
SPLIT = """
import json
from pathlib import Path
from pairs import Corpus
from typos import is_held_form, is_held_word
corpus = Corpus(7, held_out=300, new_words=100, handwritten=Path("handwritten.tsv"))
def errors(pairs):
    return [
        (meant, typed)
        for pair in pairs
        if pair.typed.count(" ") == pair.meant.count(" ")
        for typed, meant in zip(pair.typed.split(" "), pair.meant.split(" "))
        if typed != meant
    ]
training = corpus.training(0, 3000)
held = {pair.meant for pair in (*corpus.held_out, *corpus.new_words, *corpus.handwritten)}
print(json.dumps({
    "errors": len(errors(training)),
    "held_words": [each for each in errors(training) if is_held_word(each[0])],
    "held_queries": [pair.meant for pair in training if pair.meant in held],
    "codes": [each for each in errors(training) if any(c.isdigit() for c in each[0])],
    "known": [each for each in errors(training) if each[1] in corpus.known],
    "new_words": [each for each in errors(corpus.new_words) if not is_held_word(each[0])],
    "unchanged": sum(pair.typed == pair.meant for pair in training) / len(training),
    "repeated": training == corpus.training(0, 3000),
}))
"""

Corrected = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    return model_yaml.load(ARTIFACT)


@pytest.fixture(scope="module")
def corrected(description: ModelDescription) -> Iterator[Corrected]:
    """Answers of texts that share the decode batch."""
    assert description.tokenizer is not None
    assert description.generation is not None
    tokenizer = Tokenizer.from_file(str(ARTIFACT / description.tokenizer.file))
    model = Seq2SeqModel(
        LoadContext(
            model_dir=ARTIFACT,
            description=description,
            endpoint_name="spelling",
            variant_name="all",
            cores=1.0,
            memory_bytes_max=0,
        )
    )
    start_id, eos_ids = description.generation.decoder_start_id, description.generation.eos_ids

    def run(texts: list[str]) -> list[str]:
        loop = DecodeLoop(model, SystemClock(), start_id=start_id, eos_ids=eos_ids)
        answers: dict[int, Any] = {}
        request = GenerationRequest(max_new_tokens=48)
        for at, encoding in enumerate(tokenizer.encode_batch(texts)):
            loop.add(DecodingJob(encoding.ids, request, partial(answers.__setitem__, at)))
        while loop.busy:
            loop.turn()
        return [tokenizer.decode(answers[at], skip_special_tokens=True) for at in range(len(texts))]

    yield run
    model.close()


@pytest.mark.parametrize(("typed", "meant"), CORRECTIONS.items())
def test_a_misspelt_query_comes_back_as_it_was_meant(
    typed: str, meant: str, corrected: Corrected
) -> None:
    assert corrected([typed]) == [meant]


@pytest.mark.parametrize("query", LEFT_ALONE)
def test_what_is_spelt_well_and_what_is_a_code_comes_back_as_it_was(
    query: str, corrected: Corrected
) -> None:
    assert corrected([query]) == [query]


def test_an_answer_does_not_depend_on_the_mates_of_its_decode_batch(corrected: Corrected) -> None:
    lines = (EXAMPLE / "handwritten.tsv").read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0] for line in lines][:48]
    assert corrected(texts) == [corrected([text])[0] for text in texts]


def test_text_without_a_token_of_its_own_is_read_as_bytes_and_given_back(
    description: ModelDescription,
) -> None:
    """Encoding takes texts apart into characters; nothing a shopper types is unknown."""
    assert description.tokenizer is not None
    tokenizer = Tokenizer.from_file(str(ARTIFACT / description.tokenizer.file))
    ids = tokenizer.encode("Crème brûlée  日本 🎁").ids
    assert tokenizer.token_to_id("<unk>") not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "crème brûlée 日本 🎁"


def test_training_never_shows_what_is_held_out() -> None:
    """Nor does it misspell a code, or turn a word into another one that is known."""
    path = os.pathsep.join(str(EXAMPLE.with_name(name)) for name in ("spelling", "query_intent"))
    run = subprocess.run(
        [sys.executable, "-c", SPLIT],
        cwd=EXAMPLE, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    seen = json.loads(run.stdout)
    assert seen["errors"] > 1000
    assert seen["held_words"] == seen["held_queries"] == seen["new_words"] == []
    assert seen["codes"] == seen["known"] == []
    assert 0.35 < seen["unchanged"] < 0.5
    assert seen["repeated"]


def test_the_recorded_figures_stand_beside_doing_nothing_and_a_classical_speller() -> None:
    results = json.loads((EXAMPLE / "metrics.json").read_text(encoding="utf-8"))["results"]
    ours = results.pop(SHIPPED)["held_out"]
    others = {way: figures["held_out"] for way, figures in results.items()}
    assert set(others) == {"unchanged", "symspell, compound", "symspell, by word", "fp32"}
    assert ours["exact"] >= others["fp32"]["exact"] - 0.01
    assert ours["exact"] > others["unchanged"]["exact"] + 0.3
    assert ours["left_alone"] > 0.9


def test_the_artifact_stays_small_enough_to_be_committed() -> None:
    assert sum(path.stat().st_size for path in ARTIFACT.iterdir()) <= 8_000_000
