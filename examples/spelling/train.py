"""Trains the spelling corrector, a small T5, and writes the artifact.

    PYTHONPATH=examples/query_intent python examples/spelling/train.py

The words of query intent are part of the queries, hence the path. Makes the pairs, trains on one
CPU core, compiles with `penstock compile` to INT8 weights, measures on held-out queries beside
SymSpell and doing nothing, and writes `artifact/` and `metrics.json` next to this file.
`--checkpoint FILE` with `--seconds N` trains in parts: the run stops after N seconds and the next
one goes on from there.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from decode import correct
from export import export_artifact, write_source
from hints import hints
from pairs import Corpus, Pair
from tokenizers import Tokenizer
from tokens import EOS, PAD, reading, train_tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import T5Config, T5ForConditionalGeneration

HERE = Path(__file__).resolve().parent
SEED = 7
STEPS = 12_000
BATCH_ROWS, BATCH_LETTERS = 32, 900  # more rows while queries are short
BATCHES_PER_GROUP = 64  # made at once and sorted by length
RATE_MAX = 1e-3
#: T5 begins with embeddings more than ten times as large as its other weights.
EMBEDDING_RATE_MAX = 5e-3
#: (step, share of the highest rate), straight lines between. Small batches learn fast and stop at
#: a loss that falls with the rate.
RATE_POINTS = ((0, 0.0), (150, 1.0), (2000, 1.0), (STEPS, 0.0))
#: Short queries come first, longer ones step by step: from so many letters to all in so many steps.
LETTERS_FIRST, LETTERS_LAST, SHORT_STEPS = 16, 80, 1200
HELD_OUT, NEW_WORDS = 5000, 2000
TOKENS_MAX = 96
#: The distance at which the first heads of encoder and decoder look in the beginning.
ENCODER_OFFSETS, DECODER_OFFSETS = (-1, 1, 2, 3, 4), (-1, -2)
OFFSET_BIAS = 4.0
HINT_WEIGHT = 0.5
HINTED_HEADS = 2  #: of the decoder's first layer, told where to look
VOCABULARY_TEXTS = 60_000
PROGRESS_STEPS, PROGRESS_PAIRS = 500, 100


def corpus_of(seed: int) -> Corpus:
    return Corpus(
        seed, held_out=HELD_OUT, new_words=NEW_WORDS, handwritten=HERE / "handwritten.tsv"
    )


def config_of(vocabulary: int) -> T5Config:
    """Deep where it runs once (the encoder), shallow where it runs for each token."""
    return T5Config(
        vocab_size=vocabulary,
        d_model=192,
        d_kv=32,
        d_ff=512,
        num_heads=6,
        num_layers=3,
        num_decoder_layers=2,
        dropout_rate=0.0,  # no pair is seen twice
        feed_forward_proj="relu",
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        attn_implementation="eager",  # sdpa's backward pass is the slower one on a CPU
    )


def new_model(vocabulary: int) -> T5ForConditionalGeneration:
    """Random weights, but for where heads look at first: letters make words by their order, and
    heads that begin by looking everywhere find single neighbours only after a long time."""
    model = T5ForConditionalGeneration(config_of(vocabulary))
    for stack, offsets in ((model.encoder, ENCODER_OFFSETS), (model.decoder, DECODER_OFFSETS)):
        table = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        ahead = table.shape[0] // 2  # T5's buckets: places ahead after those behind
        with torch.no_grad():
            for head, offset in enumerate(offsets):
                table[ahead + offset if offset > 0 else -offset, head] += OFFSET_BIAS
    return model


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # tiny probabilities make the softmax several times slower
    corpus = corpus_of(arguments.seed)
    writing = train_tokenizer(corpus.clean(VOCABULARY_TEXTS, "vocabulary"))
    model = new_model(writing.get_vocab_size())
    training = Training(model, corpus, writing, arguments)
    done = training.run()
    if arguments.source is not None:
        write_source(model, reading(writing), arguments.source, tokens_max=TOKENS_MAX)
    if not done:
        print(f"stopped after {training.step} of {STEPS} steps; run again to go on")
        return
    export_artifact(
        model,
        reading(writing),
        corpus,
        out=arguments.out,
        tokens_max=TOKENS_MAX,
        facts={
            "seed": arguments.seed,
            "training_pairs": training.pairs,
            "training_s": round(training.spent_s),
            "weights": sum(p.numel() for p in model.parameters()),
        },
    )


class Training:
    """AdamW with warm-up and linear decay; every step has pairs of its own."""

    def __init__(
        self,
        model: T5ForConditionalGeneration,
        corpus: Corpus,
        writing: Tokenizer,
        arguments: argparse.Namespace,
    ) -> None:
        self._model = model
        self._corpus = corpus
        self._writing, self._reading = writing, reading(writing)
        self._arguments = arguments
        embeddings = model.shared.weight
        others = [p for p in model.parameters() if p is not embeddings]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [embeddings], "rate_max": EMBEDDING_RATE_MAX},
                {"params": others, "rate_max": RATE_MAX},
            ],
            betas=(0.9, 0.98),
            weight_decay=0.0,
        )
        half = arguments.precision == "bf16"
        #: what runs forward and backward: the weights rounded, with gradients of its own
        self._twin = copy.deepcopy(model).to(torch.bfloat16) if half else model
        self._group = -1
        self._batches: list[list[Pair]] = []
        self.step = self.pairs = 0
        self.spent_s = 0.0
        path = arguments.checkpoint
        if path is not None and path.exists():
            state = torch.load(path, weights_only=True)
            model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step, self.pairs = state["step"], state["pairs"]
            self.spent_s = state["spent_s"]
        self._round()

    def run(self) -> bool:
        """Returns whether all steps are done; the model is left ready to answer."""
        arguments = self._arguments
        begun = time.monotonic()
        losses: list[float] = []
        while self.step < STEPS and time.monotonic() - begun < arguments.seconds:
            losses.append(self._one_step())
            if self.step % 100 == 0:
                spent = self.spent_s + time.monotonic() - begun
                print(
                    f"step {self.step}: loss {np.mean(losses[-100:]):.4f}, {spent:.0f} s",
                    flush=True,
                )
            if self.step % PROGRESS_STEPS == 0:
                self._progress()
                self._save(self.spent_s + time.monotonic() - begun)
        self.spent_s += time.monotonic() - begun
        self._save(self.spent_s)
        self._model.eval()
        return self.step == STEPS

    def _save(self, spent_s: float) -> None:
        if self._arguments.checkpoint is None:
            return
        state = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "pairs": self.pairs,
            "spent_s": spent_s,
        }
        path = self._arguments.checkpoint
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def _one_step(self) -> float:
        share = max(float(np.interp(self.step, *zip(*RATE_POINTS, strict=True))), 1e-3)
        for group in self._optimizer.param_groups:
            group["lr"] = share * group["rate_max"]
        batch = encoded(self._reading, self._writing, self._batch())
        self._twin.zero_grad(set_to_none=True)
        loss, shown = self._loss(batch)
        loss.backward()
        for exact, rounded in self._both():
            exact.grad = None if rounded.grad is None else rounded.grad.float()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._round()
        self.step += 1
        return shown

    def _both(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self._model.parameters(), self._twin.parameters(), strict=True)

    @torch.no_grad()
    def _round(self) -> None:
        for exact, rounded in self._both():
            rounded.copy_(exact)

    def _loss(self, batch: Batch) -> tuple[Tensor, float]:
        """What is learned from, and the part that `model(labels=...)` would give, for people.

        Logits are made where a label is, and not for the padding.
        """
        model, labels, scale = self._twin, batch.labels, self._model.config.d_model**-0.5
        read = model.encoder(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
        starts = torch.full_like(labels[:, :1], PAD)
        written = model.decoder(
            input_ids=torch.cat([starts, labels[:, :-1].clamp(min=PAD)], dim=1),
            encoder_hidden_states=read,
            encoder_attention_mask=batch.mask,
            use_cache=False,
            output_attentions=True,
        )
        kept, hinted = labels >= 0, batch.places >= 0
        right = model.lm_head(written.last_hidden_state[kept] * scale).float()
        loss = functional.cross_entropy(right, labels[kept])
        rows, steps = hinted.nonzero(as_tuple=True)
        places = batch.places[rows, steps]
        known = model.lm_head(read[rows, places] * scale).float()
        piece = functional.cross_entropy(known, labels[rows, steps])
        looked = written.cross_attentions[0][rows, :HINTED_HEADS, steps, places].float()
        look = -torch.log(looked.mean(dim=1) + 1e-6).mean()
        return loss + HINT_WEIGHT * (piece + look), float(loss.detach())

    def _batch(self) -> list[Pair]:
        """Pairs of like length, so that little is padding; the batches come in random order."""
        group, at = divmod(self.step, BATCHES_PER_GROUP)
        if group != self._group:
            grown = min(self.step / SHORT_STEPS, 1.0) ** 2
            letters = LETTERS_FIRST + round((LETTERS_LAST - LETTERS_FIRST) * grown)
            rows = max(BATCH_ROWS, BATCH_LETTERS // letters)
            pairs = self._corpus.training(group, rows * BATCHES_PER_GROUP, letters)
            pairs.sort(key=lambda pair: len(pair.typed))
            starts = range(0, len(pairs), rows)
            self._batches = [pairs[start : start + rows] for start in starts]
            random.Random(group).shuffle(self._batches)
            self._group = group
        self.pairs += len(self._batches[at])
        return self._batches[at]

    def _progress(self) -> None:
        pairs = self._corpus.held_out[:PROGRESS_PAIRS]
        answers = correct(self._model, self._reading, [pair.typed for pair in pairs])
        right = sum(answer == pair.meant for answer, pair in zip(answers, pairs, strict=True))
        print(f"  {right / len(pairs):.3f} of {len(pairs)} held-out queries right", flush=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of pairs, padded to the longest; -100 in labels and places where there is none."""

    ids: Tensor
    mask: Tensor
    labels: Tensor
    places: Tensor  #: in ids, where each label begins


def encoded(reader: Tokenizer, writer: Tokenizer, pairs: list[Pair]) -> Batch:
    sources = [encoding.ids for encoding in reader.encode_batch([pair.typed for pair in pairs])]
    written = writer.encode_batch([pair.meant for pair in pairs])
    ids = np.full((len(pairs), max(map(len, sources))), PAD, dtype=np.int64)
    labels = np.full((len(pairs), max(len(each.ids) for each in written)), -100, dtype=np.int64)
    places = np.full_like(labels, -100)
    for row, (pair, source, target) in enumerate(zip(pairs, sources, written, strict=True)):
        ids[row, : len(source)] = source
        labels[row, : len(target.ids)] = target.ids
        found = hints(pair.typed, pair.meant, target.tokens[:-1])
        places[row, : len(found)] = found
        places[row, len(target.ids) - 1] = len(source) - 1  # the ends belong together
    tensor = torch.from_numpy(ids)
    return Batch(tensor, (tensor != PAD).long(), torch.from_numpy(labels), torch.from_numpy(places))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--checkpoint", type=Path, help="where to keep what was learned so far")
    parser.add_argument(
        "--source", type=Path, help="where to keep the model in Hugging Face's form"
    )
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
