"""Trains the query intent classifier and writes the artifact that Penstock serves.

    python examples/query_intent/train.py

Makes the data, trains tokenizer and encoder on one CPU core, measures on held-out queries, exports
to OpenVINO, quantises to INT8, checks that the answers survived, and writes `artifact/` and
`metrics.json` next to this file. One seed gives one result on one kind of machine.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from data import Corpus, Query, read_handwritten
from encoder import BertForSequenceClassification, EncoderShape
from export import export_artifact
from grammar import LABELS
from tokenizers import Tokenizer
from tokens import padded, train_tokenizer
from torch.nn import functional

HERE = Path(__file__).resolve().parent
VOCABULARY = 6000
TOKENS_MAX = 64
MERGE_DROPOUT = 0.1
TOKEN_DROPOUT = 0.08  # share of tokens that training hides behind [MASK]: no cue may carry it all
LABEL_SMOOTHING = 0.05
BATCH_ROWS = 128
LEARNING_RATE_MAX = 6e-4
WARM_UP_SHARE = 0.06


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    corpus = Corpus(
        arguments.seed,
        held_out_per_label=500,
        handwritten=read_handwritten(HERE / "handwritten.tsv"),
    )
    first_epoch = corpus.training(0, per_label=arguments.per_label)
    tokenizer = train_tokenizer(
        [query.text for query in first_epoch], vocabulary=VOCABULARY, tokens_max=TOKENS_MAX
    )
    shape = EncoderShape(vocabulary=tokenizer.get_vocab_size(), positions=TOKENS_MAX)
    model = BertForSequenceClassification(shape, len(LABELS))
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{weights:,} weights, {shape.vocabulary} tokens, labels: {', '.join(LABELS)}", flush=True
    )
    training_s = 0.0
    if arguments.checkpoint is not None and arguments.checkpoint.exists():
        stored = torch.load(arguments.checkpoint, weights_only=True)
        model.load_state_dict(stored["weights"])
        training_s = stored["training_s"]
        if stored["tokenizer"] != tokenizer.to_str():
            raise SystemExit(f"{arguments.checkpoint} was trained on other tokens: remove it")
    else:
        begun = time.monotonic()
        train(model, tokenizer, corpus, arguments, rows_per_epoch=len(first_epoch))
        training_s = time.monotonic() - begun
        if arguments.checkpoint is not None:
            stored = {
                "weights": model.state_dict(),
                "training_s": training_s,
                "tokenizer": tokenizer.to_str(),
            }
            torch.save(stored, arguments.checkpoint)
    model.eval()
    export_artifact(
        model,
        tokenizer,
        corpus,
        calibration=first_epoch,
        out=arguments.out,
        facts={
            "seed": arguments.seed,
            "epochs": arguments.epochs,
            "training_queries": arguments.epochs * len(first_epoch),
            "training_s": round(training_s),
            "weights": weights,
        },
    )


def train(
    model: BertForSequenceClassification,
    tokenizer: Tokenizer,
    corpus: Corpus,
    arguments: argparse.Namespace,
    *,
    rows_per_epoch: int,
) -> None:
    """AdamW with warm-up and linear decay; every epoch has queries of its own."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    )
    steps = arguments.epochs * math.ceil(rows_per_epoch / BATCH_ROWS)
    step = 0
    begun = time.monotonic()
    model.train()
    for epoch in range(arguments.epochs):
        queries = corpus.training(epoch, per_label=arguments.per_label)
        tokenizer.model.dropout = MERGE_DROPOUT
        losses = []
        for ids, mask, labels in _batches(queries, tokenizer, seed=f"{arguments.seed}-{epoch}"):
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE_MAX * _schedule(step / steps)
            with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
                logits = model(ids, mask)
            loss = functional.cross_entropy(logits.float(), labels, label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
            step += 1
        tokenizer.model.dropout = None
        spent = time.monotonic() - begun
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, {spent:.0f} s", flush=True)


def _schedule(share: float) -> float:
    """The learning rate as a share of its maximum, at this share of the training.

    Epochs may differ by a few rows, so the last step may lie just past the end.
    """
    return max(0.0, min(share / WARM_UP_SHARE, (1.0 - share) / (1.0 - WARM_UP_SHARE)))


def _batches(
    queries: Sequence[Query], tokenizer: Tokenizer, *, seed: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(ids, mask, labels) of queries of like length, in random order."""
    rng = random.Random(seed)
    noise = np.random.default_rng(rng.randrange(2**32))
    separator, masked = tokenizer.token_to_id("[SEP]"), tokenizer.token_to_id("[MASK]")
    encodings = tokenizer.encode_batch([query.text for query in queries])
    order = sorted(range(len(queries)), key=lambda i: (len(encodings[i].ids), rng.random()))
    chunks = [order[at : at + BATCH_ROWS] for at in range(0, len(order), BATCH_ROWS)]
    rng.shuffle(chunks)
    for chunk in chunks:
        ids, mask = padded([encodings[i] for i in chunk])
        labels = [LABELS.index(queries[i].label) for i in chunk]
        hidden = noise.random(ids.shape) < TOKEN_DROPOUT
        ids[hidden & (ids > separator)] = masked
        yield torch.from_numpy(ids), torch.from_numpy(mask), torch.tensor(labels)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--per-label", type=int, default=7500, help="queries of a label per epoch")
    parser.add_argument(
        "--precision",
        choices=("bf16", "f32"),
        default="bf16",
        help="of the matrix products in training; f32 is faster on a CPU without BF16 instructions",
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="FP32 weights: used if the file is there, else written"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE, help="where artifact/ and metrics.json go"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
