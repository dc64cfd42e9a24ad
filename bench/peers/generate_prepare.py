"""Makes a language model of a real shape with random weights, prompts for it, and our artifact.

`python generate_prepare.py FOLDER SHAPE`; runs where the extra `compile` is installed. Nothing is
fetched: the time of a step depends on the shape of the weights and not on what they say. They are
made by a seed; the layers' outputs are scaled so that an answer depends on its prompt (freshly made
weights would only repeat the token that was fed). The tokenizer is a byte-level BPE of the shape's
full size, so that text costs what text costs.

    FOLDER/source      Hugging Face's format, as every engine reads it
    FOLDER/artifact    `penstock compile --target cpu-int8` of it
    FOLDER/bf16        the same with `--target cpu-bf16`
    FOLDER/words.json  words that stay single tokens wherever they stand in a text
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

#: "135m" has the dimensions of SmolLM-135M; "7m" is small enough for four copies on two cores.
SHAPES: dict[str, dict[str, Any]] = {
    "135m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
        "max_position_embeddings": 2048,
    },
    "7m": {
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8192,
        "max_position_embeddings": 2048,
    },
}  # fmt: skip
SEED = 0
#: Layers write this many times more into the stream than freshly made ones.
LAYERS_GAIN = 8.0
_SPECIAL = ("<s>", "</s>")
_VOWELS = "aeiou"
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"


def write_source(folder: Path, shape: dict[str, Any]) -> None:
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(
        **shape, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0, bos_token_id=0,
        eos_token_id=1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(LAYERS_GAIN)
    model.to(torch.bfloat16).save_pretrained(folder)


def write_tokenizer(folder: Path, vocabulary: int) -> list[str]:
    """A byte-level BPE; returns the words (each " xxxx") that are single tokens everywhere."""
    tokens, merges, words = _merged(vocabulary)
    space = _letter_of(32)
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": at, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for at, word in enumerate(_SPECIAL)
        ],
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
        },
        "model": {
            "type": "BPE", "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": [" ".join(pair) for pair in merges], "unk_token": None,
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return [word.replace(space, " ") for word in words]


def _merged(vocabulary: int) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Bytes, syllables, spaced syllables, then words of two syllables and of three.

    A syllable is a consonant and a vowel, so that no merge ever crosses two of them.
    """
    space = _letter_of(32)
    tokens = [*_SPECIAL, *(_letter_of(byte) for byte in range(256))]
    syllables = ["".join(pair) for pair in itertools.product(_CONSONANTS, _VOWELS)]
    merges = [(each[0], each[1]) for each in syllables]
    merges += [(space, each) for each in syllables]
    spaced = [space + each for each in syllables]
    tokens += syllables + spaced
    chance = random.Random(SEED)
    words: list[str] = []
    stems = spaced
    while len(tokens) + len(words) < vocabulary:
        longer = list(itertools.product(stems, syllables))
        chance.shuffle(longer)
        longer = longer[: vocabulary - len(tokens) - len(words)]
        merges += longer
        stems = [stem + syllable for stem, syllable in longer]
        words += stems
    return tokens + words, merges, words


def _letter_of(byte: int) -> str:
    """How byte-level BPE writes a byte: itself where it is printable, else from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [each for each in range(256) if each not in printable].index(byte))


def main(folder: Path, shape: str) -> None:
    made_by = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    stamp = folder / "made-by"
    if stamp.exists() and stamp.read_text() == made_by:
        return
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    words = write_tokenizer(source, SHAPES[shape]["vocab_size"])
    write_source(source, SHAPES[shape])
    encode = transformers.AutoTokenizer.from_pretrained(source).encode
    some = random.Random(SEED).sample(words, 100)
    if len(encode("".join(some), add_special_tokens=False)) != len(some):
        raise RuntimeError("the tokenizer does not take the words as single tokens")
    (folder / "words.json").write_text(json.dumps(words))
    for name, target in (("artifact", "cpu-int8"), ("bf16", "cpu-bf16")):
        argv = ["compile", str(source), "-o", str(folder / name), "--target", target]
        subprocess.run([sys.executable, "-m", "penstock", *argv, "--measure-s", "0"], check=True)
    stamp.write_text(made_by)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
