"""The models of bench/multi_model.py: the support example's encoders, made once in other sizes."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.report import ROOT

SUPPORT = ROOT / "examples" / "support"
TOKENIZER = ROOT / "examples" / "query_intent" / "artifact" / "tokenizer.json"
CACHE = ROOT / ".cache" / "bench" / "multi-model"
#: layers, width, heads, whether weights have 16 bits, threads (0: the instance's cores). The large
#: ones have the bytes of the seed's models, 292 MB, as files: in 32 bits, and twice the weights.
SHAPES = {
    "tiny": (1, 32, 2, True, 1),
    "small": (4, 256, 8, True, 1),
    "large-fp32": (6, 960, 15, False, 0),
    "large-fp16": (11, 1024, 16, True, 0),
}
#: Words of the tokenizer that are one token each.
_WORD = "order"


def made(shape: str, count: int) -> Path:
    """A prefix of `count` models of that shape, as folders model-000 ... of one tokenizer."""
    sys.path.insert(0, str(SUPPORT))
    import embedder  # noqa: PLC0415 - of an example, whose folder is no package

    sizes = repr(SHAPES[shape]).encode()
    made_by = hashlib.sha256(Path(embedder.__file__).read_bytes() + sizes).hexdigest()
    prefix = CACHE / f"{shape}-{made_by[:12]}"
    layers, width, heads, half, threads = SHAPES[shape]
    for number in range(count):
        folder = prefix / name_of(number)
        if (folder / "model.yaml").exists():
            continue
        print(f"making {shape} model {number + 1} of {count} ...", flush=True)
        hidden = prefix / f".{name_of(number)}.part"
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        shutil.copyfile(TOKENIZER, hidden / "tokenizer.json")
        shaped = embedder.Shape(layers=layers, width=width, heads=heads, half=half)
        name = name_of(number)
        embedder.write(hidden, customer=number, name=name, seed=0, shape=shaped, threads=threads)
        hidden.rename(folder)
    for extra in prefix.glob("model-*"):
        if extra.name >= name_of(count):
            shutil.rmtree(extra)
    return prefix


def name_of(number: int) -> str:
    return f"model-{number:03}"


def names(count: int) -> list[str]:
    return [name_of(number) for number in range(count)]


def size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def body(tokens: int) -> bytes:
    """A text of about so many tokens; what surrounds it counts with two."""
    return json.dumps({"inputs": " ".join([_WORD] * max(1, tokens - 2))}).encode()


def prefix_in(folder: Path, prefix: Path, wanted: Sequence[str]) -> Path:
    """A folder of its own with hard links to some of the models."""
    for name in wanted:
        shutil.copytree(prefix / name, folder / name, copy_function=_link)
    return folder


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
