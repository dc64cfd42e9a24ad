"""Makes an encoder of a real shape that classifies queries, as a Hugging Face directory and ONNX.

`python bert_prepare.py FOLDER base|minilm`; runs where the extra `compile` is installed. Nothing is
fetched: random weights are trained for a few minutes on the queries of examples/query_intent. Time
depends on their shape and not on what they say, but agreement does: a random backbone under a
fitted head tells queries apart by so little that BF16 and INT8 alike fail the compiler's parity.
"""

from __future__ import annotations

import json
import math
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "query_intent"
sys.path.insert(0, str(EXAMPLE))
from data import generate, split_phrasings, split_words  # noqa: E402 - a folder of scripts
from grammar import LABELS  # noqa: E402

SHAPES = {
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "intermediate_size": 3072},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
               "intermediate_size": 1536},
}  # fmt: skip
VOCABULARY = 30522
TOKENS = 16
TRAINED_TOKENS = 24
ROWS = 32
#: Steps and largest learning rate: one to three minutes on two cores.
TRAINING = {"base": (120, 2e-4), "minilm": (200, 5e-4)}
HELD_OUT_PER_LABEL = 30
SERVED = 64  #: texts of exactly TOKENS tokens, for the load
CALIBRATION = 500


def texts_of(*, per_label: int, seed: str) -> list[tuple[str, int]]:
    """One to four queries of one label after another (3 to some 60 tokens), and the label."""
    words, _ = split_words(7)
    phrasings, _ = split_phrasings(7)
    rng = random.Random(seed)
    by_label: dict[str, list[str]] = {}
    for query in generate(words, phrasings, per_label=per_label * 2, seed=seed):
        by_label.setdefault(query.label, []).append(query.text)
    made = [
        (" ".join(rng.sample(texts, rng.randint(1, 4))), LABELS.index(label))
        for label, texts in by_label.items()
        for _ in range(per_label)
    ]
    rng.shuffle(made)
    return made


def batches(
    tokenizer: Tokenizer, texts: list[tuple[str, int]], *, rows: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(ids, mask, labels), padded to the longest of the batch."""
    for at in range(0, len(texts), rows):
        part = texts[at : at + rows]
        found = [each.ids[:TRAINED_TOKENS] for each in tokenizer.encode_batch([t for t, _ in part])]
        ids = torch.zeros((len(part), max(map(len, found))), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, known in enumerate(found):
            ids[row, : len(known)] = torch.tensor(known)
            mask[row, : len(known)] = 1
        yield ids, mask, torch.tensor([label for _, label in part])


def train(model: Any, tokenizer: Tokenizer, *, steps: int, rate: float) -> None:
    """AdamW with warm-up and linear decay, every query seen once; products in BF16."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)
    texts = texts_of(per_label=math.ceil(steps * ROWS / len(LABELS)), seed="training")
    for step, (ids, mask, labels) in enumerate(batches(tokenizer, texts, rows=ROWS)):
        share = min((step + 1) / (0.15 * steps), max(0.0, steps - step) / (0.85 * steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=ids, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.float(), labels, label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    model.eval()


def accuracy(model: Any, tokenizer: Tokenizer) -> float:
    """On texts of another seed; the words and phrasings are those of training."""
    right = count = 0
    with torch.inference_mode():
        texts = texts_of(per_label=HELD_OUT_PER_LABEL, seed="held-out")
        for ids, mask, labels in batches(tokenizer, texts, rows=ROWS):
            answers = model(input_ids=ids, attention_mask=mask).logits.argmax(1)
            right += int((answers == labels).sum())
            count += len(labels)
    return right / count


def write_source(folder: Path, size: str, tokenizer: Tokenizer) -> float:
    """The Hugging Face directory. Returns the held-out accuracy."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        id2label=dict(enumerate(LABELS)),
        label2id={label: at for at, label in enumerate(LABELS)},
        hidden_dropout_prob=0.0,  # nothing is seen twice
        attention_probs_dropout_prob=0.0,
        **SHAPES[size],
    )
    model = transformers.BertForSequenceClassification(config)
    steps, rate = TRAINING[size]
    train(model, tokenizer, steps=steps, rate=rate)
    model.save_pretrained(folder)
    write_onnx(model, folder.parent / "model.onnx")
    tokenizer.no_truncation()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512,
        "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return accuracy(model, tokenizer)


def write_onnx(model: Any, path: Path) -> None:
    example = torch.ones((2, 8), dtype=torch.long)
    free = {0: "rows", 1: "tokens"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs no further package
        torch.onnx.export(
            model,
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_axes={"input_ids": free, "attention_mask": free, "logits": {0: "rows"}},
            opset_version=17,
            dynamo=False,
        )


def main(folder: Path, size: str) -> None:
    if (folder / "facts.json").exists():
        return
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(EXAMPLE / "artifact" / "tokenizer.json"))
    share_right = write_source(source, size, tokenizer)
    texts = [text for text, _ in texts_of(per_label=150, seed="load")]
    exact = [text for text in texts if len(tokenizer.encode(text).ids) == TOKENS]
    (folder / "texts.json").write_text(json.dumps(exact[:SERVED]))
    calibration = [text for text, _ in texts_of(per_label=60, seed="calibration")]
    (folder / "calibration.txt").write_text("\n".join(calibration[:CALIBRATION]))
    facts = {"size": size, "accuracy_held_out": round(share_right, 3), "texts": len(exact[:SERVED])}
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
