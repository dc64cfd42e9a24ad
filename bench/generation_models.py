"""The language models that the generation benchmarks run, and their prompts.

Models have real shapes and random weights, made once into `.cache/bench-generate` by a seed
(`peers/generate_prepare.py`). Prompts are sentences of words that are single tokens wherever they
stand, so that a text has exactly as many tokens as it has words, and no two share a beginning
unless they are meant to.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

from tokenizers import Tokenizer
from tools.environments import make

from bench.report import ROOT

CACHE = ROOT / ".cache" / "bench-generate"
PEERS = Path(__file__).parent / "peers"


class Model:
    """`source`: Hugging Face's format, BF16. `artifact`: ours, weights in INT8; `bf16`: in BF16."""

    def __init__(self, shape: str) -> None:
        folder = CACHE / shape
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / f"{shape}.log").open("w") as log:
            made = subprocess.run(
                [str(make("compile")), str(PEERS / "generate_prepare.py"), str(folder), shape],
                check=False, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"the model was not made: see {log.name}")
        self.shape = shape
        self.source = folder / "source"
        self.artifact, self.bf16 = folder / "artifact", folder / "bf16"
        self._words: list[str] = json.loads((folder / "words.json").read_text())
        self._tokenizer = Tokenizer.from_file(str(self.artifact / "tokenizer.json"))

    def text(self, tokens: int, chance: random.Random) -> str:
        return "".join(chance.choices(self._words, k=tokens))

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decoded(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def cache_mb(model: Model, tokens: int) -> int:
    """MiB of a cache that holds so many tokens: 8 bits a number, and 8 bytes for each head."""
    config = json.loads((model.artifact / "config.json").read_text())
    heads: int = config["num_hidden_layers"] * config["num_key_value_heads"] * 2
    return -int(-tokens * heads * (config["head_dim"] + 8) // (1 << 20))


@contextlib.contextmanager
def with_engine(artifact: Path, **engine: Any) -> Iterator[Path]:
    """A copy of the artifact with settings of its engine; everything else stays."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(copytree(artifact, Path(folder, "artifact")))
        described = copy / "model.yaml"
        text = described.read_text()
        for name, value in engine.items():
            line = f"  {name}: {value}"
            text, changed = re.subn(rf"(?m)^  {name}: .*$", line, text)
            if not changed:
                text = text.replace("engine:\n", f"engine:\n{line}\n", 1)
        described.write_text(text)
        yield copy
