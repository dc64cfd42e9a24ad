"""Trains the sentence encoder of the search, a small BERT, and writes its directory.

    PYTHONPATH=examples/assistant/pipeline/code \\
        python examples/assistant/train_embedder.py --source build/assistant-embed

A question and the text of a product that answers it are drawn together, the other products of the
batch pushed away, many of them of the same kind (van den Oord et al., 2018, InfoNCE). Minutes on
one CPU core. `judge_search.py` compiles what comes out and measures it.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from catalogue import make_catalogue
from retrieval import product_text
from searches import Fields, Search, make_search
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SEED = 7
STEPS = 700
KINDS, PER_KIND = 12, 6  #: products of a batch
RATE_MAX = 1e-3
#: Cosines are divided by this before the softmax.
TEMPERATURE = 0.05
TOKENS_MAX = 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def config_of(vocabulary: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=512,
        max_position_embeddings=TOKENS_MAX,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    products = [asdict(each) for each in make_catalogue()]
    shown = [each for each in products if int(each["id"][1:]) % 10]  # the others are held out
    supply = batches(shown, random.Random(arguments.seed))
    texts = [text for _ in range(60) for pairs in [next(supply)] for pair in pairs for text in pair]
    tokenizer = train_tokenizer(texts)
    model = BertModel(config_of(tokenizer.get_vocab_size()), add_pooling_layer=False)
    begun = time.monotonic()
    train(model, tokenizer, supply, arguments.steps)
    write_source(model.eval(), tokenizer, arguments.source)
    told = {
        "seed": arguments.seed,
        "steps": arguments.steps,
        "training_s": round(time.monotonic() - begun),
        "weights": sum(each.numel() for each in model.parameters()),
    }
    (arguments.source / "training.json").write_text(json.dumps(told), encoding="utf-8")


def train(
    model: BertModel, tokenizer: Tokenizer, supply: Iterator[list[tuple[str, str]]], steps: int
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE_MAX, weight_decay=0.01)
    begun, losses = time.monotonic(), []
    for step in range(steps):
        share = min((step + 1) / 100, 1.0) * (1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = RATE_MAX * share
        pairs = next(supply)
        questions = vectors(model, tokenizer, [question for question, _ in pairs])
        texts = vectors(model, tokenizer, [text for _, text in pairs])
        scores = questions @ texts.T / TEMPERATURE
        right = torch.arange(len(pairs))
        loss = functional.cross_entropy(scores, right) + functional.cross_entropy(scores.T, right)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if (step + 1) % 100 == 0:
            spent = time.monotonic() - begun
            print(f"step {step + 1}: loss {np.mean(losses[-100:]):.3f}, {spent:.0f} s", flush=True)


def batches(products: Sequence[Fields], rng: random.Random) -> Iterator[list[tuple[str, str]]]:
    """(question, text of a product) pairs; no other product of the batch answers the question."""
    kinds: dict[str, list[Fields]] = {}
    for product in products:
        kinds.setdefault(product["kind"], []).append(product)
    while True:
        picked = [
            product
            for kind in rng.sample(list(kinds), KINDS)
            for product in rng.sample(kinds[kind], PER_KIND)
        ]
        made: list[tuple[Search, Fields]] = []
        for product in picked:
            search = make_search(product, rng)
            if not any(search.answers(other) for other in picked if other is not product):
                made.append((search, product))
        yield [(search.question, product_text(product)) for search, product in made]


def vectors(model: BertModel, tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """Means over tokens, of length 1."""
    encoded = [each.ids[:TOKENS_MAX] for each in tokenizer.encode_batch(list(texts))]
    width = max(map(len, encoded))
    ids = torch.tensor([[*each, *[0] * (width - len(each))] for each in encoded])
    mask = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in encoded])
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    counted = mask[:, :, None].to(hidden.dtype)
    return functional.normalize((hidden * counted).sum(1) / counted.sum(1), dim=-1)


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=2500, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def write_source(model: BertModel, tokenizer: Tokenizer, folder: Path) -> None:
    """A sentence-transformers directory, which is what `penstock compile` reads."""
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=TOKENS_MAX,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 192, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", type=Path, required=True, help="folder for the trained model")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
