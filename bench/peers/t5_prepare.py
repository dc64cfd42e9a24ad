"""Makes a T5 of a real shape with random weights, and our three artifacts of it.

`python t5_prepare.py FOLDER small|base`; runs where the extra `compile` is installed. Nothing is
fetched: the time of a step depends on the shape of the weights and not on what they say. What they
say is chosen so that the answers depend on the source: freshly made, the output layer (which is the
embedding) would repeat the token that it was fed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import torch
import transformers

from penstock.compile.seq2seq import seq2seq, seq2seq_graph, seq2seq_t5
from penstock.compile.seq2seq.seq2seq import Seq2SeqSpec, compile_seq2seq
from penstock.compile.staging import staged

SHAPES = {
    "small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
VOCABULARY = 32128
#: The decoder's layers write this many times more into the stream than freshly made ones, so that
#: they outweigh the token that was fed.
LAYERS_GAIN = 8.0


def write_source(folder: Path, size: str) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **SHAPES[size])
    model = transformers.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.decoder.named_parameters():
            if name.endswith((".o.weight", ".wo.weight")):
                weight.mul_(LAYERS_GAIN)
    model.save_pretrained(folder)
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    words |= {f"w{at}": at for at in range(3, VOCABULARY)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": at, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for at, word in enumerate(("<pad>", "</s>", "<unk>"))
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>",
        "unk_token": "<unk>",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def made_by() -> str:
    """Changes with the code that makes the source or an artifact: kept ones are then made anew."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for module in (seq2seq, seq2seq_graph, seq2seq_t5):
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()


def main(folder: Path, size: str) -> None:
    stamp = folder / "made-by"
    if not stamp.exists() or stamp.read_text() != made_by():
        shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    if not (source / "tokenizer_config.json").exists():
        source.mkdir(parents=True, exist_ok=True)
        write_source(source, size)
    for precision in ("f32", "bf16", "int8"):
        if not (folder / precision).exists():
            with staged(folder / precision) as made:
                parity = compile_seq2seq(source, made, Seq2SeqSpec(precision=precision))
            (folder / f"{precision}.json").write_text(json.dumps(parity.to_dict()))
    stamp.write_text(made_by())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
