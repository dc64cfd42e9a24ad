"""Pairs of product titles as a batch job finds them: candidates of a catalogue, by blocks.

Blocking puts listings that may be the same product into one block and compares them with each
other, so a title comes in several pairs that follow each other closely. Titles are those of
`examples/duplicates`. A file is made once for its size and kept under .cache/bench/transform.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.report import ROOT

CACHE = ROOT / ".cache" / "bench" / "transform"
EXAMPLES = ROOT / "examples"
SEED = 12
#: Listings of a block, and the candidate pairs of it that are compared: a title is in ten of them.
BLOCK_LISTINGS = 20
BLOCK_PAIRS = 100


def pairs_file(pairs: int) -> Path:
    """`{"text": ..., "text_pair": ...}` lines, `pairs` of them."""
    path = CACHE / f"pairs-{pairs}-{SEED}.jsonl"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            for text, other in itertools.islice(_candidates(pairs), pairs):
                file.write(json.dumps({"text": text, "text_pair": other}) + "\n")
        draft.rename(path)
    return path


def read_pairs(path: Path) -> list[tuple[str, str]]:
    with path.open("rb") as file:
        return [(each["text"], each["text_pair"]) for each in map(json.loads, file)]


def _candidates(pairs: int) -> Iterator[tuple[str, str]]:
    sys.path[:0] = [str(EXAMPLES / "duplicates"), str(EXAMPLES / "query_intent")]
    from pairs import make_pairs, shelves  # noqa: PLC0415 - the example's own folder of scripts

    shelf = shelves(SEED)[1]
    rng = random.Random(SEED)
    for block in range(-(-pairs // BLOCK_PAIRS)):
        made = make_pairs(shelf, BLOCK_LISTINGS // 2, f"{SEED}-{block}")
        titles = [title for pair in made for title in (pair.text, pair.text_pair)]
        possible = list(itertools.combinations(titles, 2))
        yield from rng.sample(possible, BLOCK_PAIRS)
