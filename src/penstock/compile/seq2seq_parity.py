"""A compiled encoder-decoder model beside its source: the same inputs, answers token for token."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description import ModelDescription
from penstock.clock import SystemClock
from penstock.compile.libraries import need
from penstock.runtimes.base import LoadContext
from penstock.runtimes.seq2seq.decoding import DecodeLoop, Job
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

_RANDOM_LENGTHS = (1, 3, 9, 17, 40)
_TOKENS_NEW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    answers: int  #: compared
    same: int  #: equal in every token under greedy search
    token_agreement: float  #: tokens equal before an answer's first difference, over all tokens
    difference: float  #: of the first step's logits, largest, over the range of the source's
    difference_mean: float

    @property
    def agreement(self) -> float:
        return self.same / self.answers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"agreement": self.agreement}


def compare(
    model: Any, folder: Path, description: ModelDescription, samples: list[str] | None
) -> Parity:
    """Runs both; the compiled model takes all inputs at once, so mates are part of the test."""
    sources = _sources(folder, description, samples)
    context = LoadContext(
        model_dir=folder, description=description, endpoint_name="parity", variant_name="",
        cores=2.0, memory_bytes_max=0,
    )  # fmt: skip
    compiled = Seq2SeqModel(context)
    generation = description.generation
    assert generation is not None
    try:
        wanted = [_reference(model, source) for source in sources]
        differences = [
            _difference(model, compiled, source, generation.decoder_start_id) for source in sources
        ]
        given = generate(compiled, description, sources, GenerationRequest(
            max_new_tokens=_TOKENS_NEW))  # fmt: skip
    finally:
        compiled.close()
    equal = [_equal_tokens(a, b) for a, b in zip(wanted, given, strict=True)]
    return Parity(
        answers=len(sources),
        same=sum(a == b for a, b in zip(wanted, given, strict=True)),
        token_agreement=sum(equal) / max(1, sum(map(len, wanted))),
        difference=float(max(largest for largest, _ in differences)),
        difference_mean=float(np.mean([mean for _, mean in differences])),
    )


def generate(
    compiled: Seq2SeqModel,
    description: ModelDescription,
    sources: list[list[int]],
    request: GenerationRequest,
) -> list[list[int]]:
    """Token ids of every answer; all sources share the decode batch."""
    generation = description.generation
    assert generation is not None
    loop = DecodeLoop(
        compiled, SystemClock(), start_id=generation.decoder_start_id, eos_ids=generation.eos_ids
    )
    answers: dict[int, Any] = {}
    for at, source in enumerate(sources):
        loop.add(Job(source, request, partial(answers.__setitem__, at)))
    while loop.busy:
        loop.turn()
    for outcome in answers.values():
        if isinstance(outcome, Exception):
            raise outcome
    return [answers[at] for at in range(len(sources))]


def _sources(
    folder: Path, description: ModelDescription, samples: list[str] | None
) -> list[list[int]]:
    tokenizer = description.tokenizer
    assert tokenizer is not None
    import tokenizers  # noqa: PLC0415 - heavy

    reader = tokenizers.Tokenizer.from_file(str(folder / tokenizer.file))
    reader.enable_truncation(max_length=tokenizer.tokens_max)
    if samples:
        return [reader.encode(text).ids for text in samples]
    generation = description.generation
    assert generation is not None
    special = {tokenizer.pad_id, generation.decoder_start_id, *generation.eos_ids}
    largest = reader.get_vocab_size()
    ids = [each for each in range(largest) if each not in special] or [0]
    random = np.random.default_rng(0)
    lengths = [min(length, tokenizer.tokens_max) for length in _RANDOM_LENGTHS]
    return [random.choice(ids, length).tolist() for length in lengths for _ in range(2)]


def _reference(model: Any, source: list[int]) -> list[int]:
    """What greedy `generate` of transformers writes, without the decoder's start."""
    torch = need("torch")
    with torch.inference_mode():
        ids = model.generate(
            torch.tensor([source]), attention_mask=torch.ones(1, len(source), dtype=torch.long),
            max_new_tokens=_TOKENS_NEW, num_beams=1, do_sample=False, no_repeat_ngram_size=0,
            min_length=0, forced_bos_token_id=None, forced_eos_token_id=None,
        )  # fmt: skip
    return list(ids[0, 1:].tolist())


def _difference(
    model: Any, compiled: Seq2SeqModel, source: list[int], start_id: int
) -> tuple[float, float]:
    """(largest, mean) difference of the first logits, over the range of the source's."""
    torch = need("torch")
    with torch.inference_mode():
        given = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start_id]])
        )
    wanted = given.logits[0, 0].float().numpy()
    compiled.prefill([source], [(0,)], 0)
    compiled.rows.ids[0] = start_id
    ours = compiled.step(1)[0]
    finite = np.isfinite(wanted)
    error = np.abs(ours - wanted)[finite]
    extent = float(np.ptp(wanted[finite])) or 1.0
    return float(error.max()) / extent, float(error.mean()) / extent


def _equal_tokens(wanted: list[int], given: list[int]) -> int:
    """How many tokens agree before the first that does not."""
    for at, (one, other) in enumerate(zip(wanted, given, strict=False)):
        if one != other:
            return at
    return min(len(wanted), len(given))
