"""Trains the heads for duplicate products on query intent's backbone and writes the artifact.

    python examples/query_intent/train.py --checkpoint build/query-intent.pt
    PYTHONPATH=examples/query_intent python examples/duplicates/train.py \\
        --backbone build/query-intent.pt

Encoder, vocabulary and the split of the words are query intent's, hence the path.

Makes the pairs, trains backbone and heads together on one CPU core, measures on held-out products,
exports to OpenVINO, quantises to INT8, checks that the answers survived, and writes `artifact/` and
`metrics.json` next to this file. `--checkpoint FILE` with `--seconds N` trains in parts: the run
stops after N seconds and the next one goes on from there.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from encoder import EncoderShape
from export import export_artifact
from pair_model import PairHeads
from pairs import DIFFERENCES, Pair, make_pairs, shelves
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

HERE = Path(__file__).resolve().parent
TOKENS_MAX = 64
BATCH_ROWS = 64
BATCHES_PER_GROUP = 32  # made at once and sorted by length
WARM_UP_SHARE = 0.05
#: (steps, highest learning rate) on the first and on the later catalogue of `pairs.shelves`
STAGES = ((3000, 5e-4), (712, 2.5e-4))
STEPS = sum(steps for steps, _ in STAGES)
#: Outputs of the model, in order; one value is a regression.
HEADS = {
    "duplicate": 2,
    "same-brand": 2,
    "same-type": 2,
    "difference": len(DIFFERENCES),
    "similarity": 1,
}
SPECIAL_ID_MAX = 4  # [PAD], [UNK], [CLS], [SEP], [MASK]


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    stored = torch.load(arguments.backbone, weights_only=True)
    tokenizer = Tokenizer.from_str(stored["tokenizer"])
    tokenizer.enable_truncation(TOKENS_MAX)
    model = PairHeads(
        EncoderShape(vocabulary=tokenizer.get_vocab_size(), positions=TOKENS_MAX), HEADS
    )
    backbone = {
        name.removeprefix("bert."): weights
        for name, weights in stored["weights"].items()
        if name.startswith("bert.")
    }
    model.bert.load_state_dict(backbone)
    training = Training(model, tokenizer, arguments)
    if not training.run():
        print(f"stopped after {training.step} of {STEPS} steps; run again to go on")
        return
    model.eval()
    export_artifact(
        model,
        tokenizer,
        seed=arguments.seed,
        out=arguments.out,
        facts={
            "seed": arguments.seed,
            "training_pairs": STEPS * BATCH_ROWS,
            "training_s": round(training.spent_s),
            "weights": sum(p.numel() for n, p in model.named_parameters() if "matcher" not in n),
        },
    )


class Training:
    """AdamW with warm-up and linear decay; every step has pairs of its own."""

    def __init__(
        self, model: PairHeads, tokenizer: Tokenizer, arguments: argparse.Namespace
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._arguments = arguments
        self._shelves = shelves(arguments.seed)
        parameters = list(model.parameters())
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.01},
                {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
            ]
        )
        self._group = -1
        self._batches: list[list[Pair]] = []
        self.step = 0
        self.spent_s = 0.0
        path = arguments.checkpoint
        if path is not None and path.exists():
            state = torch.load(path, weights_only=True)
            model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self.spent_s = state["step"], state["spent_s"]

    def run(self) -> bool:
        """Returns whether all steps are done."""
        arguments = self._arguments
        begun = time.monotonic()
        self._model.train()
        losses: list[list[float]] = []
        while self.step < STEPS and time.monotonic() - begun < arguments.seconds:
            losses.append(self._one_step())
            if self.step % 50 == 0:
                shown = " ".join(f"{value:.3f}" for value in np.mean(losses[-50:], axis=0))
                spent = self.spent_s + time.monotonic() - begun
                print(f"step {self.step}: losses {shown}, {spent:.0f} s", flush=True)
        self.spent_s += time.monotonic() - begun
        if losses and arguments.checkpoint is not None:
            self._save(arguments.checkpoint)
        return self.step == STEPS

    def _save(self, path: Path) -> None:
        state = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "spent_s": self.spent_s,
        }
        torch.save(state, path)

    def _one_step(self) -> list[float]:
        arguments = self._arguments
        torch.manual_seed(arguments.seed * 1_000_000 + self.step)  # dropout, also after a restart
        pairs = self._batch()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.step)
        inputs = encoded(self._tokenizer, pairs)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
            answers = self._model(*inputs)
        losses = _losses([answer.float() for answer in answers], pairs, inputs)
        self._optimizer.zero_grad(set_to_none=True)
        torch.stack(losses).sum().backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        return [float(loss.detach()) for loss in losses]

    def _batch(self) -> list[Pair]:
        """Pairs of like length, so that little is padding; the batches come in random order."""
        group, at = divmod(self.step, BATCHES_PER_GROUP)
        if group != self._group or not self._batches:
            seed = f"{self._arguments.seed}-train-{group}"
            shelf = self._shelves[int(group * BATCHES_PER_GROUP >= STAGES[0][0])]
            pairs = make_pairs(shelf, BATCH_ROWS * BATCHES_PER_GROUP, seed)
            pairs.sort(key=lambda pair: len(pair.text) + len(pair.text_pair))
            starts = range(0, len(pairs), BATCH_ROWS)
            self._batches = [pairs[start : start + BATCH_ROWS] for start in starts]
            random.Random(seed).shuffle(self._batches)
            self._group = group
        return self._batches[at]


def learning_rate(step: int) -> float:
    """Up and down again in each stage."""
    for steps, highest in STAGES:
        if step < steps:
            share = step / steps
            rate = min(share / WARM_UP_SHARE, (1.0 - share) / (1.0 - WARM_UP_SHARE))
            return highest * max(rate, 1.0 / steps)
        step -= steps
    raise ValueError("all stages are over")


def encoded(tokenizer: Tokenizer, pairs: list[Pair]) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, mask, segments), padded to the longest."""
    encodings = tokenizer.encode_batch([(pair.text, pair.text_pair) for pair in pairs])
    width = max(len(encoding.ids) for encoding in encodings)
    arrays = np.zeros((3, len(pairs), width), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        length = len(encoding.ids)
        arrays[:, row, :length] = (encoding.ids, encoding.attention_mask, encoding.type_ids)
    ids, mask, types = torch.from_numpy(arrays)
    return ids, mask, types


def _losses(
    answers: list[Tensor], pairs: list[Pair], inputs: tuple[Tensor, Tensor, Tensor]
) -> list[Tensor]:
    """Of each head, and of the matcher; weighted by what is asked most."""
    duplicate, brand, kind, difference, similarity, matched = answers
    ids, mask, types = inputs
    words = (mask == 1) & (ids > SPECIAL_ID_MAX)
    target = _matched(ids, types, words)
    return [
        functional.cross_entropy(duplicate, torch.tensor([int(p.duplicate) for p in pairs])),
        0.5 * functional.cross_entropy(brand, torch.tensor([int(p.same_brand) for p in pairs])),
        0.5 * functional.cross_entropy(kind, torch.tensor([int(p.same_type) for p in pairs])),
        functional.cross_entropy(
            difference, torch.tensor([DIFFERENCES.index(p.difference) for p in pairs])
        ),
        4.0 * functional.mse_loss(similarity[:, 0], torch.tensor([p.similarity for p in pairs])),
        2.0 * functional.binary_cross_entropy_with_logits(matched[words], target[words]),
    ]


def _matched(ids: Tensor, types: Tensor, words: Tensor) -> Tensor:
    """(rows, tokens, 2): does the other title have this token; and this one after the one before?

    The second tells codes of the same digits in another order apart.
    """
    equal = (ids[:, :, None] == ids[:, None, :]) & (types[:, :, None] != types[:, None, :])
    equal &= words[:, None, :]
    in_order = equal.clone()
    in_order[:, 1:, 1:] &= ids[:, :-1, None] == ids[:, None, :-1]
    return torch.stack([equal.any(dim=2), in_order.any(dim=2)], dim=2).float()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", type=Path, required=True, help="query intent's checkpoint")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--checkpoint", type=Path, help="where to keep what was learned so far")
    parser.add_argument(
        "--precision",
        choices=("bf16", "f32"),
        default="bf16",
        help="of the matrix products in training; f32 is faster on a CPU without BF16 instructions",
    )
    parser.add_argument(
        "--out", type=Path, default=HERE, help="where artifact/ and metrics.json go"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
