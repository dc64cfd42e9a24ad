"""Answers of the model in PyTorch and of the compiled artifact, both by greedy search.

Serves `train.py` and `export.py`. The artifact is run as the server runs it, without the server.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokens import PAD
from transformers import T5ForConditionalGeneration

from penstock.artifacts.description import model_yaml
from penstock.compile.seq2seq.seq2seq_parity import generate
from penstock.runtimes.base import LoadContext
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

TOKENS_NEW_MAX = 48


def correct(
    model: T5ForConditionalGeneration, reader: Tokenizer, texts: list[str], *, rows: int = 100
) -> list[str]:
    """Answers of PyTorch, in batches of `rows` texts of like length."""
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    answers = [""] * len(texts)
    for start in range(0, len(order), rows):
        places = order[start : start + rows]
        sources = [reader.encode(texts[at]).ids for at in places]
        width = max(map(len, sources))
        ids = torch.tensor([source + [PAD] * (width - len(source)) for source in sources])
        with torch.inference_mode():
            made = model.generate(
                ids,
                attention_mask=(ids != PAD).long(),
                do_sample=False,
                num_beams=1,
                max_new_tokens=TOKENS_NEW_MAX,
            )
        given = reader.decode_batch(made.tolist(), skip_special_tokens=True)
        for at, answer in zip(places, given, strict=True):
            answers[at] = answer
    return answers


class Corrector:
    """The artifact in a folder, on one thread."""

    def __init__(self, folder: Path) -> None:
        self._description = model_yaml.load(folder)
        context = LoadContext(
            model_dir=folder,
            description=self._description,
            endpoint_name="spelling",
            variant_name="all",
            cores=1.0,
            memory_bytes_max=0,
        )
        self._model = Seq2SeqModel(context)
        spec = self._description.tokenizer
        assert spec is not None
        self._tokenizer = Tokenizer.from_file(str(folder / spec.file))
        self._tokenizer.enable_truncation(max_length=spec.tokens_max)

    def answers(self, texts: list[str]) -> list[str]:
        made = self.tokens(texts)
        return [self._tokenizer.decode(ids, skip_special_tokens=True) for ids in made]

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """All texts together: rows of the decode batch are filled as they fall free."""
        sources = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        request = GenerationRequest(max_new_tokens=TOKENS_NEW_MAX)
        return generate(self._model, self._description, sources, request)
