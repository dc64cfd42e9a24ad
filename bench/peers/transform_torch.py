"""A plain PyTorch loop over a DataLoader, batches sorted by length, from pairs to answers.

`python transform_torch.py FOLDER`, which transform_prepare.py made; asked with `threads`, `rows` of
a batch and `dtype`. See transform_loop.py.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "duplicates"), str(EXAMPLES / "query_intent")]
import torch  # noqa: E402 - after the examples' folders of scripts
from encoder import EncoderShape  # noqa: E402
from pair_model import PairHeads  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from train import TOKENS_MAX  # noqa: E402
from transform_loop import SHOWN, pairs_of, serve  # noqa: E402


class Torch:
    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "facts.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "artifact" / "tokenizer.json"))
        self.tokenizer.no_padding()
        vocabulary = self.tokenizer.get_vocab_size()
        shape = EncoderShape(vocabulary=vocabulary, positions=TOKENS_MAX, **facts["shape"])
        self.model = PairHeads(shape, facts["heads"])
        self.model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        self.model.eval()

    def run(self, asked: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(asked["threads"])
        pairs = pairs_of(asked["file"], asked["skip"], asked["count"])
        answers: dict[int, list[list[float]]] = {}
        with torch.inference_mode(), _precision(asked["dtype"]):
            self.batch(self.tokenizer.encode_batch(pairs[: asked["rows"]]))  # warms up
            begun = time.perf_counter()
            encodings = self.tokenizer.encode_batch(pairs)
            order = sorted(range(len(pairs)), key=lambda at: len(encodings[at].ids))
            loader = DataLoader(
                order, batch_size=asked["rows"],
                collate_fn=lambda batch: (batch, [encodings[row] for row in batch]),
            )  # fmt: skip
            for rows, batch in loader:
                outputs = self.batch(batch)
                for at, row in enumerate(rows):
                    if row < SHOWN:
                        answers[row] = [array[at].tolist() for array in outputs]
            seconds = time.perf_counter() - begun
        return {"s": seconds, "answers": [answers[row] for row in sorted(answers)]}

    def batch(self, encodings: list[Any]) -> list[Any]:
        width = max(len(each.ids) for each in encodings)
        tensors = [torch.zeros((len(encodings), width), dtype=torch.int64) for _ in range(3)]
        for at, each in enumerate(encodings):
            for tensor, values in zip(
                tensors, (each.ids, each.attention_mask, each.type_ids), strict=True
            ):
                tensor[at, : len(values)] = torch.tensor(values)
        return [array.float() for array in self.model(*tensors)]


def _precision(dtype: str) -> Any:
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=getattr(torch, dtype))


if __name__ == "__main__":
    serve(Torch(Path(sys.argv[1])).run)
