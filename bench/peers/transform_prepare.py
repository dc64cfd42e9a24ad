"""Makes the pair model of bench/transform.py, as `examples/duplicates` ships its own, and the same
weights for PyTorch.

`python transform_prepare.py FOLDER`; runs where the extra `compile` is installed. Backbone, heads,
conversion and quantisation are the example's own, in a larger size; weights are random, as time
depends on their shape and not on what they say. Heads are drawn wide, so that answers differ from
pair to pair and can be compared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "duplicates"), str(EXAMPLES / "query_intent")]
import export  # noqa: E402 - a folder of scripts
from encoder import EncoderShape  # noqa: E402
from pair_model import PairHeads  # noqa: E402
from pairs import make_pairs, shelves  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from train import HEADS, TOKENS_MAX  # noqa: E402

#: 6.3 million weights beside the 1.5 million of the vocabulary: 1,000,000 pairs take some minutes.
SHAPE = {"hidden": 256, "layers": 6, "heads": 4, "feed_forward": 1024}
SEED = 12
CALIBRATION = 300


def main(folder: Path) -> None:
    torch.manual_seed(SEED)
    tokenizer = Tokenizer.from_file(str(EXAMPLES / "duplicates" / "artifact" / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS_MAX)
    shape = EncoderShape(vocabulary=tokenizer.get_vocab_size(), positions=TOKENS_MAX, **SHAPE)
    model = PairHeads(shape, HEADS)
    for head in model.heads.values():
        torch.nn.init.normal_(head.weight, std=0.3)
    model.eval()
    calibration = make_pairs(shelves(SEED)[1], CALIBRATION, f"{SEED}-calibration")
    quantised = export.quantise(export.convert(model), tokenizer, calibration)
    folder.mkdir(parents=True, exist_ok=True)
    export._write(folder / "artifact", quantised, model, tokenizer)
    torch.save(model.state_dict(), folder / "weights.pt")
    facts = {
        "shape": SHAPE,
        "heads": HEADS,
        "weights": sum(p.numel() for n, p in model.named_parameters() if "matcher" not in n),
    }
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
