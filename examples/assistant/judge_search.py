"""Compiles what `train_embedder.py` made, measures the search with it, writes `embed/`.

    PYTHONPATH=examples/assistant/pipeline/code \\
        python examples/assistant/judge_search.py --source build/assistant-embed

Held-out searches are phrased in a way that training never met, and begin with products that it
never saw; the index holds the whole catalogue. Recall is the share of products among the first ten
that are all that was asked for (of ten, or of as many as there are). Ways: words alone (BM25),
vectors alone, both fused, and as the pipeline searches: fused, and filtered by what the question
says outright. Figures go to `metrics.json` under "embed".
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from catalogue import make_catalogue
from files import keep, write_metrics
from retrieval import Retrieval, fuse, product_text, write
from searches import Fields, Search, make_search, share_found
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
SEARCHES = 600
KEPT = ("model.yaml", "model.xml", "model.bin", "tokenizer.json")
RECALL_MIN = 0.7
_PACKAGES = ("openvino", "tokenizers", "bm25s", "faiss-cpu", "numpy")


class Encoder:
    """The artifact's vectors, one text at a time: no padding, as the model is served."""

    def __init__(self, artifact: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
        self._model = ov.Core().compile_model(
            artifact / "model.xml", "CPU", {"INFERENCE_NUM_THREADS": 1}
        )

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([self._one(text) for text in texts])

    def _one(self, text: str) -> np.ndarray:
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        found: np.ndarray = self._model({"input_ids": ids, "attention_mask": np.ones_like(ids)})[
            "embedding"
        ]
        return found


def main() -> None:
    arguments = _arguments()
    products: list[Fields] = [asdict(each) for each in make_catalogue()]
    rng = random.Random("judge")
    held_out = [each for each in products if int(each["id"][1:]) % 10 == 0]
    searches = [make_search(rng.choice(held_out), rng, held_out=True) for _ in range(SEARCHES)]
    with tempfile.TemporaryDirectory() as made:
        artifact = Path(made) / "embed"
        compile_artifact(arguments.source, artifact)
        encoder = Encoder(artifact)
        write(Path(made) / "index", products, encoder.vectors([product_text(p) for p in products]))
        index = Retrieval.read(Path(made) / "index")
        trained = json.loads((arguments.source / "training.json").read_text(encoding="utf-8"))
        figures: dict[str, Any] = {
            **trained,
            "searches": SEARCHES,
            "products": len(products),
            "recall_at_10": recalls(index, encoder, searches, products),
        }
        print(json.dumps(figures, indent=2))
        if figures["recall_at_10"]["vectors"] < RECALL_MIN:
            raise SystemExit(f"vectors find less than {RECALL_MIN}: nothing is written")
        figures["size_bytes"] = keep(artifact, arguments.out / "embed", KEPT)
    figures["versions"] = {
        "python": platform.python_version(), **{name: version(name) for name in _PACKAGES}
    }  # fmt: skip
    write_metrics(arguments.out / "metrics.json", "embed", figures)


def compile_artifact(source: Path, artifact: Path) -> None:
    command = [
        sys.executable, "-m", "penstock", "compile", str(source), "-o", str(artifact),
        "--target", "cpu-int8", "--name", "assistant-embed", "--measure-s", "0",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    # OpenVINO obeys bf16 on processors that must emulate it, however slow that is; this one is
    # small enough to be quick in f32 everywhere.
    described = artifact / "model.yaml"
    text = re.sub(r"(?m)^precision: .*$", "precision: f32", described.read_text(encoding="utf-8"))
    described.write_text(text, encoding="utf-8")


def recalls(
    index: Retrieval, encoder: Encoder, searches: Sequence[Search], products: Sequence[Fields]
) -> dict[str, float]:
    ways: dict[str, Callable[[str, np.ndarray], list[int]]] = {
        "bm25": lambda text, _: index.keywords(text),
        "vectors": lambda _, vector: index.nearest(vector),
        "both fused": lambda text, vector: fuse((index.keywords(text), index.nearest(vector))),
        "as served": lambda text, vector: index.find(text, vector, count=10),
    }
    shares: dict[str, list[float]] = {name: [] for name in ways}
    for search in searches:
        relevant = sum(search.answers(product) for product in products)
        (vector,) = encoder.vectors([search.question])
        for name, way in ways.items():
            found = [products[at] for at in way(search.question, vector)]
            shares[name].append(share_found(found, search, relevant))
    return {name: round(float(np.mean(found)), 4) for name, found in shares.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", type=Path, required=True, help="what train_embedder.py wrote")
    parser.add_argument("--out", type=Path, default=HERE, help="where embed/ and figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
